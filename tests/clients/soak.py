"""2,000 short unique prompts from four clients at once; the server's RssAnon + VmSwap, less what the prefix cache says
that it holds, must stay flat after warm-up.

usage: soak.py [PROMPTS]; prints a row every tenth of the run and exits with 1 when the second half grew by more than the
allowance, which covers the allocator's noise and nothing per request (2 KiB a prompt would be 4 MiB).
The prefix cache is kept small, so that it is full long before.
"""
import concurrent.futures
import pathlib
import re
import sys
import time

from conftest import Server

ALLOWANCE_KIB = 2048


def anonymous_kib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return sum(int(re.search(rf"{field}:\s+(\d+) kB", status).group(1)) for field in ("RssAnon", "VmSwap"))


def rest_kib(server):
    """Anonymous memory beside the saved states. These are bounded, and 2 MiB each here: one more or less is no leak.

    The least of some samples: the last answers' states are saved after they were sent, and one in the making is not listed.
    """
    samples = []
    for _ in range(5):
        time.sleep(0.1)
        samples.append(anonymous_kib(server.process.pid) - server.get("/cache")["ram"]["bytes"] // 1024)
    return min(samples)


def main(prompts=2000):
    server = Server("--profile", "demo", "--cache-type-k", "bf16", "--cache-type-v", "bf16", "--cache-ram", "8")
    curve = []
    try:
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            step = prompts // 10
            for start in range(0, prompts, step):
                ask = lambda n: server.chat(f"Write the number {n % 21} as a word. Request {n}.", max_tokens=24)
                list(pool.map(ask, range(start, start + step)))
                curve.append(rest_kib(server))
                print(f"{start + step:6d} prompts  {curve[-1] / 1024:8.2f} MiB beside the states", flush=True)
    finally:
        server.stop()
    half = curve[len(curve) // 2 - 1]
    grown = max(curve[len(curve) // 2 :]) - half
    print(f"second half grew by {grown} KiB (allowed {ALLOWANCE_KIB})")
    return 0 if grown <= ALLOWANCE_KIB else 1


if __name__ == "__main__":
    sys.exit(main(*(int(a) for a in sys.argv[1:])))
