"""fla-core's Triton kernel of chunked Gated DeltaNet: microseconds and error against float64, for docs/kernels.md.

Usage: gdn_fla.py [FILE.json]. Called from Python as its users do, where short inputs wait for the host, and in a captured
graph, where they do not. Errors up to 2,048 tokens: the reference goes token by token. Needs a card, torch, triton, einops and fla-core (any way: a wheel on PYTHONPATH does). Inputs
are those of gdn_compare in kind: 16 key heads, 48 heads of 128. The reference takes the inputs as the kernel gets them, so
that the rounding of bf16 inputs is not held against it. Not for: ours, which gdn_check and gdn_compare measure.
"""
import json
import sys

import torch
import torch.nn.functional as F
import triton
from fla.ops.gated_delta_rule import chunk_gated_delta_rule

K_HEADS, HEADS, SIZE = 16, 48, 128


def inputs(tokens, dtype):
    torch.manual_seed(tokens)
    q, k = (F.normalize(torch.randn(1, tokens, K_HEADS, SIZE, device="cuda"), dim=-1) for _ in range(2))
    # Grouped heads are repeated: every release takes that.
    q, k = (x.repeat_interleave(HEADS // K_HEADS, dim=2).to(dtype) for x in (q, k))
    v = (3.0 * torch.randn(1, tokens, HEADS, SIZE, device="cuda")).to(dtype)
    g = -torch.exp(-6.0 + 7.0 * torch.rand(1, tokens, HEADS, device="cuda"))
    beta = torch.sigmoid(2.0 * torch.randn(1, tokens, HEADS, device="cuda")).to(dtype)
    state = torch.randn(1, HEADS, SIZE, SIZE, device="cuda")
    return q, k, v, g, beta, state


def reference(q, k, v, g, beta, state):
    q, k, v, g, beta, s = (x[0].double() for x in (q, k, v, g, beta, state))
    out = torch.empty_like(v)
    for t in range(q.shape[0]):
        s = s * g[t].exp()[:, None, None]
        new = (v[t] - torch.einsum("hkv,hk->hv", s, k[t])) * beta[t][:, None]
        s = s + k[t][:, :, None] * new[:, None, :]
        out[t] = torch.einsum("hkv,hk->hv", s, q[t]) * SIZE**-0.5
    return out, s


def nmse(got, want):
    return (((got.double() - want) ** 2).sum() / (want**2).sum()).item()


def graph_us(call):
    try:
        return triton.testing.do_bench_cudagraph(call, rep=50) * 1e3
    except Exception as error:  # a release that cannot be captured: say so and go on
        print(f"not captured: {type(error).__name__}: {str(error)[:90]}", flush=True)
        return float("nan")


def measure(tokens, dtype):
    q, k, v, g, beta, state = inputs(tokens, dtype)

    def call():
        return chunk_gated_delta_rule(q, k, v, g, beta, initial_state=state, output_final_state=True)

    with torch.no_grad():
        out, final = call()
        us = triton.testing.do_bench(call, warmup=25, rep=100, return_mode="median") * 1e3
        row = dict(dtype=str(dtype)[6:], tokens=tokens, us=us, graph_us=graph_us(call))
        if tokens <= 2048:
            want, want_state = reference(q, k, v, g, beta, state)
            row.update(out=nmse(out[0], want), state=nmse(final[0], want_state))
    return row


def main():
    rows = []
    print(f"{'dtype':9} {'tokens':>6} {'us':>9} {'graph us':>9} {'out NMSE':>10} {'state NMSE':>10}", flush=True)
    for dtype in (torch.bfloat16, torch.float32):
        for tokens in (8192, 4096, 1024, 512, 2048):
            try:
                row = measure(tokens, dtype)
            except Exception as error:  # a dtype that a release does not take: say so and go on
                print(f"{str(dtype)[6:]:9} {tokens:6d} {type(error).__name__}: {str(error)[:90]}", flush=True)
                continue
            rows.append(row)
            errors = f"{row['out']:10.2e} {row['state']:10.2e}" if "out" in row else ""
            print(f"{row['dtype']:9} {tokens:6d} {row['us']:9.1f} {row['graph_us']:9.1f} {errors}", flush=True)
    with open(sys.argv[1] if len(sys.argv) > 1 else "gdn_fla.json", "w") as file:
        json.dump(rows, file)


main()
