#!/usr/bin/env python3
"""Breaks the attention kernel on purpose, one place at a time, and says whether fattn_emulate notices.

    mutants.py [WORD]   all, or those whose description has WORD; exit status 1 where one is not noticed

Needs a C++ compiler. A build each: minutes, so not part of emulate.sh. JOBS: as many at a time (default: processors).
"""
from concurrent.futures import ThreadPoolExecutor
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ["-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread", "-DPLATEAU_EMULATE"]

# File, what stands there once, what stands there instead, in words.
MUTANTS = [
    ("fattn_loads.cuh", "i < CELLS * pieces;", "i < (CELLS - 1) * pieces;", "loads: the last row of a tile is not copied"),
    ("fattn_loads.cuh", "copy_8_later(slot + r * row + c * piece, from + r * stride + c * piece)",
     "copy_8_later(slot + r * row + c * piece, from + r * stride)", "loads: pieces of 8 bytes repeat the first"),
    ("fattn_attention.cuh", "min(i >> 3, p.a.tokens - 1 - token0)", "(i >> 3)", "loads: masks past the last token are read"),
    ("fattn_attention.cuh", "mask + token * p.a.mask_token + cell * 2", "mask + token * p.a.mask_token", "loads: every tile has the first tile's mask"),
    ("fattn_loads.cuh", "wait_for_copy_groups<0>", "wait_for_copy_groups<1>", "loads: a ring of 2 waits for one tile less"),
    ("fattn_loads.cuh", "wait_for_copy_groups<1>();\n    } else {", "wait_for_copy_groups<2>();\n    } else {",
     "loads: a ring of 3 waits for one tile less"),
    ("fattn_loads.cuh", "} else {\n        wait_for_copy_groups<2>", "} else {\n        wait_for_copy_groups<3>",
     "loads: a ring of 4 waits for one tile less"),
    ("fattn_loads.cuh", "p.a.scale * LOG2E", "p.a.scale", "query: not to base 2"),
    ("fattn_loads.cuh", "(kv_head * p.group + row % p.group)", "(row % p.group)", "query: the first KV head's for all"),
    ("fattn_loads.cuh", "+ stream * p.a.q_stream", "", "query: the first stream's for all"),
    ("fattn_scores.cuh", "r[0], r[1]", "r[1], r[0]", "scores: two columns of a fragment swapped"),
    ("fattn_scores.cuh", "q_lane + 8 * j * query_stride(HEAD)", "q_lane", "scores: the first row tile for all"),
    ("fattn_scores.cuh", "low + 8 * words", "low + 9 * words", "scores: the second rows of a warp are one further"),
    ("fattn_softmax.cuh", "(c >> 1) * 8", "0", "mask: the second rows have the first's mask"),
    ("fattn_softmax.cuh", "b * MASK_STRIDE << 16", "a * MASK_STRIDE << 16", "mask: the second column has the first's token"),
    ("fattn_softmax.cuh", "fmaf(bias, LOG2E, s[j][c])", "s[j][c] + bias", "mask: the bias is not to base 2"),
    ("fattn_softmax.cuh", "bias == -INFINITY ? -INFINITY :", "", "mask: hidden only by the sum"),
    ("fattn_softmax.cuh", "rises |= s[j][c] > m[j][c & 1] + SLACK", "rises |= m[j][c & 1] == -INFINITY && s[j][c] > -INFINITY",
     "softmax: the maximum moves once"),
    ("fattn_softmax.cuh", "m[j][c] == -INFINITY ? 0.0f : m[j][c]", "m[j][c]", "softmax: rows that have seen nothing"),
    ("fattn_softmax.cuh", "from_half(low) + from_half(high)", "from_half(low)", "softmax: half of the weights are not summed"),
    ("fattn_softmax.cuh", "row[8] = high", "row[8] = low", "softmax: a weight stored twice"),
    ("fattn_softmax.cuh", "acc.m[j][c] = top;", "", "softmax: the maximum is not kept"),
    ("fattn_softmax.cuh", "acc.l[j][c] *= shrink;", "", "softmax: sums do not shrink"),
    ("fattn_softmax.cuh", "acc.o[i][j][c + 2] *= shrink;", "", "softmax: half of the output does not shrink"),
    ("fattn_softmax.cuh", "top == -INFINITY ? 1.0f :", "", "softmax: shrinking rows that have seen nothing"),
    ("fattn_softmax.cuh", "lanes = 4; lanes < 32; lanes *= 2) {\n                top", "lanes = 8; lanes < 32; lanes *= 2) {\n                top",
     "softmax: the maximum of half the cells"),
    ("fattn_softmax.cuh", "lanes = 4; lanes < 32; lanes *= 2) {\n                x", "lanes = 4; lanes < 16; lanes *= 2) {\n                x",
     "softmax: the sum of half the cells"),
    ("fattn_values.cuh", "(row + 8 * words, row + 9 * words", "(row + 8 * words, row + 8 * words", "values: one cell twice"),
    ("fattn_values.cuh", "b[j][2 * step], b[j][2 * step + 1]", "b[j][step], b[j][step + 1]", "values: weights of other cells"),
    ("fattn_values.cuh", "P_STRIDE + 32 * half_tile", "P_STRIDE", "values: the first half of the weights twice"),
    ("fattn_values.cuh", "far[2 * i], far[2 * i + 1]", "far[2 * i + 1], far[2 * i]", "values: columns swapped"),
    ("fattn_values.cuh", "|| p.a.type_v == int(KvType::Q5_0)", "", "output: q5_0 in the order of f16"),
    ("fattn_values.cuh", "total > 0.0f ? 1.0f / total : 0.0f", "1.0f / total", "output: rows that see nothing divide by 0"),
    ("fattn_values.cuh", "make_float2(acc.m[j][c], total)", "make_float2(0.0f, total)", "output: parts without their maximum"),
    ("fattn_values.cuh", "w < WARPS; ++w) {\n                total", "w < WARPS - 1; ++w) {\n                total", "output: the sum of three warps"),
    ("fattn_attention.cuh", "sync_block(); // K has arrived", "// K has arrived", "barrier: before a tile of K"),
    ("fattn_attention.cuh", "if (any_in_block(rises))", "if (rises)", "barrier: before V and P, and its question"),
    ("fattn_attention.cuh", "store_warp_tops<NT>(at, warp_rows, s);\n            sync_block();", "store_warp_tops<NT>(at, warp_rows, s);",
     "barrier: between maxima of the warps"),
    ("fattn_attention.cuh", "acc.m, sum);\n            sync_block();", "acc.m, sum);", "barrier: after weights stored again"),
    ("fattn_attention.cuh", "acc.l);\n    sync_block();", "acc.l);", "barrier: between sums of the warps"),
    ("fattn_attention.cuh", "acc.m, sum);\n        wait_for_tile(p.ring);", "acc.m, sum);", "ring: V is not waited for"),
    ("fattn_attention.cuh", "ring + (2 * step + 1) % p.ring", "ring + 2 * step % p.ring", "ring: K taken for V"),
    ("fattn_attention.cuh", "n < p.ring - 1; ++n", "n < p.ring - 2; ++n", "ring: one tile less at first"),
    ("fattn_attention.cuh", "load(2 * step + p.ring);", "load(2 * step + p.ring + 1);", "ring: the tile after the next"),
    ("fattn_attention.cuh", "+ static_cast<int64_t>(first) * sizeof(half_bits)", "", "splits: the first range's mask for all"),
    ("fattn_attention.cuh", "min(p.cells_per_split, p.a.cells - first)", "p.cells_per_split", "splits: past the last cell"),
    ("fattn_attention.cuh", "stream % p.a.mask_streams", "0", "mask: the first stream's for all"),
    ("fattn_combine.cuh", "power2(meta.x - top)", "1.0f", "combine: parts unweighted"),
    ("fattn_combine.cuh", "total += w * meta.y", "total += meta.y", "combine: sums unweighted"),
    ("fattn_combine.cuh", "meta.x == -INFINITY ? 0.0f :", "", "combine: parts that see nothing"),
    ("fattn_combine.cuh", "    sync_block();\n", "", "combine: barrier"),
    ("fattn_combine.cuh", "int i = 1; i < COMBINE_GROUPS", "int i = 1; i < COMBINE_GROUPS - 1", "combine: a share is left out"),
    ("fattn_plan.cuh", "for (const int tiles : { FATTN_MAX_ROWS / 8, 4, 3, 2 })", "for (const int tiles : { FATTN_MAX_ROWS / 8 })\n        if (tiles) return tiles;\n    for (const int tiles : { 4, 3, 2 })",
     "plan: 48 rows whether they fit or not"),
    ("fattn_plan.cuh", "(8 * row_tiles_of_8 + group - 2) / group + 1", "(8 * row_tiles_of_8 + group - 2) / group", "plan: a token's mask less"),
    ("fattn_plan.cuh", "(tiles + splits - 1) / splits", "tiles / splits", "plan: ranges rounded down"),
    ("fattn_plan.cuh", "+ sizeof(float2))", ")", "plan: scratch without maxima and sums"),
    ("fattn_plan.cuh", "&& aligned(a.type_v, a.v_cell, a.v_head, a.v_stream)", "", "domain: any stride of V"),
    ("fattn_quant.cu", "std::call_once(answer.asked, [&] { answer.error = ask_limits(device, answer.limits); });",
     "answer.error = ask_limits(device, answer.limits);", "driver: asked at every call"),
    ("fattn_quant.cu", "return answer.error;", "return cudaSuccess;", "driver: an error is lost"),
    ("warp.cuh", "return request.result;", "return cudaSuccess;", "driver: a refused request is lost"),
    ("kv_types.cuh", "(h << 18) & 0x100000", "(h << 17) & 0x100000", "q5_0: a fifth bit of its neighbour, keys"),
    ("kv_types.cuh", "(bits[e >> 2] << (4 - (e & 3)))", "(bits[e >> 2] << (3 - (e & 3)))", "q5_0: a fifth bit of its neighbour, values"),
    ("kv_types.cuh", "out[1][1] = high_nibbles<8>(w >> 8, d)", "out[1][1] = high_nibbles<7>(w >> 8, d)", "q4_0: another zero"),
    ("kv_types.cuh", "both_halves(1152.0f)", "both_halves(1151.0f)", "q8_0: another zero"),
    ("kv_types.cuh", "permute_bytes(head, head, 0x3232)", "permute_bytes(head, head, 0x1010)", "q4_1: the scale for the minimum"),
    ("kv_types.cuh", "return 2 * t + (r & 1) * 8 + (r >> 1);", "return 2 * t + (r >> 1) * 8 + (r & 1);", "query: another order than the keys'"),
    ("kv_types.cuh", "32 * (g >> 2) + 4 * (g & 3) + 16 * q :", "8 * g + 4 * q :", "output: nibbles of 256 in the order of bytes"),
]


def compile_one(folder, source, to):
    subprocess.run([os.environ.get("CXX", "g++"), *FLAGS, f"-I{folder}/tests/emulate", f"-I{folder}/src", "-x", "c++", "-c",
                    f"{folder}/{source}", "-o", to], check=True)


def noticed(folder, test, file, old, new):
    """What the emulation says of a copy of the source with one place changed; None: nothing. `test`: its object as it is."""
    shutil.copytree(HERE.parent / "src", folder / "src")
    shutil.copytree(HERE, folder / "tests")
    source = folder / "src" / file
    text = source.read_text()
    if text.count(old) != 1:
        sys.exit(f"mutants.py: {file} has {text.count(old)} times: {old}")
    source.write_text(text.replace(old, new))
    if file == "kv_types.cuh": # the test looks into it
        test = folder / "test.o"
        compile_one(folder, "tests/fattn_emulate.cpp", test)
    compile_one(folder, "src/fattn_quant.cu", folder / "kernel.o")
    subprocess.run([os.environ.get("CXX", "g++"), "-pthread", folder / "kernel.o", test, "-o", folder / "emulate"], check=True)
    run = subprocess.Popen(["stdbuf", "-oL", f"{folder}/emulate"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = None
    for line in run.stdout:
        if line.startswith(("FAILED", "emulation:")):
            said = line.strip()
            run.kill()
            break
    status = run.wait()
    return said or (f"ended with status {status}" if status else None)


def main():
    chosen = [m for m in MUTANTS if len(sys.argv) < 2 or sys.argv[1] in m[3]]
    with tempfile.TemporaryDirectory() as common:
        test = pathlib.Path(common) / "test.o"
        compile_one(HERE.parent, "tests/fattn_emulate.cpp", test)

        def attempt(mutant):
            with tempfile.TemporaryDirectory() as folder:
                said = noticed(pathlib.Path(folder), test, *mutant[:3])
            print(f"{'noticed' if said else 'MISSED'}: {mutant[3]}: {said or ''}", flush=True)
            return said is None

        with ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
            missed = sum(pool.map(attempt, chosen))
    print(f"mutants: {len(chosen) - missed} of {len(chosen)} noticed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
