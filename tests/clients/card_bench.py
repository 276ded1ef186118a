"""What a long prefix costs to save and to put back on a card, beside llama-server, and what each kernel of the plug-in brings.

    card_bench.py restore PLATEAU MODEL [LLAMA_SERVER]   needs 24 GB of disk and of memory besides the model
    card_bench.py kernels PLATEAU MODEL                  a row for every kernel that is off, and one for all

Servers are started one after the other. Prompts are token ids, so that any model of the shape does, also one of random weights.
PLATEAU_FLAGS and LLAMA_FLAGS are added to the servers' flags. Needs no package; a JSON object with all figures goes to the file
that PLATEAU_JSON names. Not for: whether restored answers are right, which `plateau check cache` and the tests show.
"""
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

CONTEXT = int(os.environ.get("CONTEXT", 65_536))
PREFIX = int(os.environ.get("PREFIX", 40_000))
# Prompts of the table of kernels, and the steps behind them.
DEPTH = int(os.environ.get("DEPTH", 16_384))
STEPS = int(os.environ.get("STEPS", 48))
REPEATS = int(os.environ.get("REPEATS", 3))
KERNELS = ["fattn_quant", "fattn_quant_prefill", "gdn_chunk", "gdn_in_place"]
# Ids of plain words in every vocabulary of the family.
WORDS = range(1_000, int(os.environ.get("VOCABULARY", 200_000)))


class Server:
    """A server process; `ready_s` is how long it took to answer."""

    def __init__(self, command, port):
        self.url = f"http://127.0.0.1:{port}"
        self.log = tempfile.TemporaryFile()
        start = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while time.monotonic() < start + 240:
            if self.process.poll() is not None:
                self.log.seek(0)
                raise SystemExit(f"{command[0]} ended with {self.process.returncode}: {self.log.read()[-3000:].decode()}")
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        self.ready_s = time.monotonic() - start

    def post(self, path, body):
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def first_token(self, path, body):
        """Seconds until the first event of the answer, and the last event that has `timings`."""
        data = json.dumps({**body, "stream": True}).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"})
        start, first, timings = time.monotonic(), None, {}
        with urllib.request.urlopen(request, timeout=300) as answer:
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise SystemExit(event)
                if first is None and (event.get("choices") or "content" in event):
                    first = time.monotonic() - start
                timings = event.get("timings") or timings
        return first, timings

    def metrics(self):
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            lines = [line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] not in ("#", "")]
        return {name: float(value) for name, value in lines}

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()


def plateau(executable, model, *flags):
    extra = os.environ.get("PLATEAU_FLAGS", "").split()
    return Server(
        [executable, "serve", "--profile", "generic", "--model", model, "--port", "18091", "--ctx-tokens", str(CONTEXT),
         "--parallel", "1", "--cache-type-k", "q4_0", "--cache-type-v", "q4_0", "--ubatch-tokens", "512", *flags, *extra], 18091)


def llama_server(executable, model, *flags):
    extra = os.environ.get("LLAMA_FLAGS", "").split()
    return Server(
        [executable, "-m", model, "--port", "18092", "-c", str(CONTEXT), "-np", "1", "-ngl", "99", "-fa", "on", "-ctk", "q4_0",
         "-ctv", "q4_0", "-ub", "512", "-cram", "24576", "--spec-type", "draft-mtp", "--spec-draft-n-max", "3", *flags, *extra],
        18092)


def words(rng, n):
    return [rng.choice(WORDS) for _ in range(n)]


def gpu_mib():
    line = "nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits".split()
    try:
        return int(subprocess.run(line, capture_output=True, text=True, check=True).stdout.split()[0])
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


def forget_pages(folder):
    """The files come from the disk at their next use, not from memory."""
    os.sync()
    for path, _, names in os.walk(folder):
        for name in names:
            fd = os.open(os.path.join(path, name), os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def row(name, seconds, timings, more=""):
    n = timings.get("prompt_n")
    print(f"{name:<52} {seconds * 1000:>9.0f} ms  {n} tokens in {timings.get('prompt_ms', 0):.0f} ms {more}", flush=True)
    return {"what": name, "ttft_ms": seconds * 1000, "timings": timings}


def there_and_back(ask, server, rng, prefix, other):
    ask(server, "cold", prefix)
    ask(server, "the same and 16 more", prefix + words(rng, 16))
    for i in range(REPEATS):
        ask(server, "another", other + words(rng, 16))
        ask(server, f"back, {i + 1}", prefix + words(rng, 16))


def restore_plateau(executable, model, folder):
    rng = random.Random(1)
    prefix, other = words(rng, PREFIX), words(rng, 2_000)
    rows = []

    def ask(server, name, prompt):
        body = {"prompt": prompt, "max_tokens": 4, "temperature": 0, "ignore_eos": True}
        seconds, timings = server.first_token("/v1/completions", body)
        cache = timings.get("cache", {})
        more = f"tier {cache.get('tier')}, {cache.get('restored_from')} restored in {cache.get('restore_ms', 0):.0f} ms"
        rows.append(row(f"plateau, {name}", seconds, timings, more))

    server = plateau(executable, model, "--cache-dir", folder)
    there_and_back(ask, server, rng, prefix, other)
    metrics = server.metrics()
    saves = metrics["plateau_cache_save_seconds_count"]
    save_ms = metrics["plateau_cache_save_seconds_sum"] / saves * 1000
    slowest = min((float(name.split('"')[1]) for name, n in metrics.items()
                   if name.startswith("plateau_cache_save_seconds_bucket") and "Inf" not in name and n == saves), default=None)
    print(f"plateau: {saves:.0f} states saved, {save_ms:.1f} ms each, all within {slowest} s; {gpu_mib()} MiB on the card; "
          f"RAM {metrics.get('plateau_cache_bytes{tier=%sram%s}' % (chr(34), chr(34)), 0) / 2**20:.0f} MiB", flush=True)
    start = time.monotonic()
    while time.monotonic() < start + 60:
        before = folder_bytes(folder)
        time.sleep(1)
        if folder_bytes(folder) == before:
            break
    server.stop()
    size = folder_bytes(folder)
    forget_pages(folder)
    server = plateau(executable, model, "--cache-dir", folder)
    ask(server, f"after a restart, from {size / 2**20:.0f} MiB of files", prefix + words(rng, 16))
    ask(server, "another", other + words(rng, 16))
    ask(server, "back", prefix + words(rng, 16))
    server.stop()
    return {"rows": rows, "states": saves, "save_ms": save_ms, "saved_within_s": slowest, "disk_bytes": size}


def folder_bytes(folder):
    return sum(os.path.getsize(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)


def restore_peer(executable, model, folder):
    rng = random.Random(1)
    prefix, other = words(rng, PREFIX), words(rng, 2_000)
    rows = []

    def ask(server, name, prompt):
        body = {"prompt": prompt, "n_predict": 4, "temperature": 0, "ignore_eos": True, "cache_prompt": True}
        seconds, timings = server.first_token("/completion", body)
        rows.append(row(f"llama-server, {name}", seconds, timings))

    server = llama_server(executable, model, "--slot-save-path", folder)
    there_and_back(ask, server, rng, prefix, other)
    print(f"llama-server: {gpu_mib()} MiB on the card", flush=True)
    start = time.monotonic()
    saved = server.post("/slots/0?action=save", {"filename": "prefix.bin"})
    save_ms = (time.monotonic() - start) * 1000
    server.stop()
    forget_pages(folder)
    server = llama_server(executable, model, "--slot-save-path", folder)
    start = time.monotonic()
    server.post("/slots/0?action=restore", {"filename": "prefix.bin"})
    restore_ms = (time.monotonic() - start) * 1000
    print(f"llama-server, slot file of {folder_bytes(folder) / 2**20:.0f} MiB: saved in {save_ms:.0f} ms, restored in {restore_ms:.0f}", flush=True)
    ask(server, "after a restart and restoring the slot", prefix + words(rng, 16))
    server.stop()
    return {"rows": rows, "slot_save_ms": save_ms, "slot_restore_ms": restore_ms, "saved": saved}


def restore(executable, model, peer=None):
    figures = {}
    for name, run, program in (("plateau", restore_plateau, executable), ("llama_server", restore_peer, peer)):
        if program:
            folder = tempfile.mkdtemp(prefix="plateau-card-")
            try:
                figures[name] = run(program, model, folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return figures


def kernels(executable, model):
    """Prefill, a decode step and a verify step (three drafts, whatever becomes of them), by the kernels that are on."""
    figures = []
    print(f"{'kernels':<24} {'prefill':>12} {'T=1':>9} {'T=4':>9} {'on the card':>12}  {DEPTH} tokens deep; calls", flush=True)
    for switches in ["default", *(f"-{kernel}" for kernel in KERNELS), "-all"]:
        rng = random.Random(2)
        prompt = words(rng, DEPTH)
        fixed = ["--kernels", switches, "--cache-ram", "0", "--lookup", "false", "--speculative-adaptive", "false"]
        figure = {"kernels": switches}
        server = plateau(executable, model, *fixed, "--draft-max", "3", "--draft-p-min", "0")
        for drafts in (3, 0):
            body = {"prompt": prompt, "max_tokens": STEPS, "temperature": 0, "ignore_eos": True,
                    "speculative": {"n_max": drafts, "lookup": False}}
            before = server.metrics()["plateau_decode_steps_total"]
            timings = server.post("/v1/completions", body)["timings"]
            steps = server.metrics()["plateau_decode_steps_total"] - before
            figure[f"step_ms_{drafts + 1}"] = timings["predicted_ms"] / max(steps, 1)
            if drafts:
                figure["prefill_per_second"] = timings["prompt_n"] * 1000 / timings["prompt_ms"]
                figure["draft_n"] = timings.get("draft_n")
        figure["card_mib"] = gpu_mib()
        figure["calls"] = {name.split('"')[1]: n for name, n in server.metrics().items()
                           if name.startswith("plateau_kernel_calls_total") and n}
        server.stop()
        figures.append(figure)
        print(f"{switches:<24} {figure['prefill_per_second']:>6.0f} tok/s {figure['step_ms_1']:>6.2f} ms {figure['step_ms_4']:>6.2f} ms "
              f"{figure['card_mib']:>8} MiB  {figure['calls']}", flush=True)
    return figures


def main(what, *rest):
    figures = {"restore": restore, "kernels": kernels}[what](*rest)
    if os.environ.get("PLATEAU_JSON"):
        with open(os.environ["PLATEAU_JSON"], "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
