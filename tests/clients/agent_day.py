"""An agent's day: 40 turns with tool results, an edit, a regeneration and a restart of the server. How many tokens are
processed for those that are new, and how long the first token of each turn takes.

usage: agent_day.py [LLAMA_SERVER]; prints a table for plateau and, where the executable of a llama-server is given, one for it
with the same flags. Exits with 1 when plateau processes more than 1.15 times the new tokens.

New is what no earlier prompt, with its answer behind it, begins with. The history has no thinking: the template drops it, so
an answer after thinking is new once more, as part of the next prompt.
"""
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from conftest import ROOT, Server

TURNS, EDIT, AGAIN, RESTART = 40, 15, 25, 31
RESULT_CHARACTERS = [2000, 2600, 3200, 2000, 8000]
MOST = 1.15
CTX = 32768
DEMO = ROOT / "vendor" / "demo-model" / "plateau-demo-q8_0.gguf"
WORDS = "river stone lamp bird green old house seven walks box near quiet Mia error line file test value".split()


def tool(name):
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    return {"type": "function", "function": {"name": name, "description": f"{name} a file", "parameters": parameters}}


TOOLS = [tool("read"), tool("search"), tool("run")]


def text(rng, n):
    words = []
    while sum(map(len, words)) + len(words) < n:
        words.append(rng.choice(WORDS))
    return " ".join(words)


def messages_of(turn):
    """What the client adds before turn number `turn`: a question, or a call and its result."""
    rng = random.Random(turn)
    if turn % 2 == 0:
        return [{"role": "user", "content": f"Step {turn}: {text(rng, 120)}. What is next?"}]
    call = {"id": f"call_{turn}", "type": "function", "function": {"name": "read", "arguments": json.dumps({"path": f"f{turn}.txt"})}}
    size = RESULT_CHARACTERS[turn // 2 % len(RESULT_CHARACTERS)]
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": text(rng, size)},
    ]


class Peer(Server):
    """A llama-server with the flags that plateau's server here has."""

    def __init__(self, executable):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        flags = f"--port {port} -c {CTX} -np 1 -t 2 -tb 2 -b 2048 -ub 512 --jinja --no-webui"
        command = [executable, "-m", str(DEMO), *flags.split()]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}"
        for _ in range(300):
            try:
                urllib.request.urlopen(self.url + "/health", timeout=1)
                return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("llama-server did not start")


class Day:
    """One session with one kind of server."""

    def __init__(self, start):
        self.start, self.server = start, start()
        self.known, self.history, self.rows = [], [], []

    def tokens(self, content):
        return self.server.post("/tokenize", {"content": content, "parse_special": True})["tokens"]

    def n_new(self, tokens):
        def common(known):
            n = 0
            while n < min(len(known), len(tokens)) and known[n] == tokens[n]:
                n += 1
            return n

        return len(tokens) - max(map(common, self.known), default=0)

    def ask(self, what, thinking):
        body = {"messages": self.history, "tools": TOOLS, "chat_template_kwargs": {"enable_thinking": thinking}}
        prompt = self.server.post("/apply-template", body)["prompt"]
        tokens = self.tokens(prompt)
        started = time.monotonic()
        answer = self.server.post("/v1/chat/completions", {**body, "temperature": 0, "max_tokens": 40})
        wall_ms = (time.monotonic() - started) * 1000
        timings, message = answer["timings"], answer["choices"][0]["message"]
        first_ms = wall_ms - timings["predicted_ms"]
        self.rows.append((what, len(tokens), self.n_new(tokens), timings["prompt_n"], first_ms))
        content = message.get("content") or ""
        thought = message.get("reasoning_content")
        said = f"{thought}\n</think>\n\n{content}" if thought and content else thought or content
        self.known.append(self.tokens(prompt + said))
        return {"role": "assistant", "content": content or "I go on."}

    def turn(self, number, what="turn"):
        thinking = number % 4 == 0
        return self.ask(f"{what} {number}", thinking)

    def run(self):
        for number in range(TURNS):
            self.history += messages_of(number)
            if number == EDIT:
                # A message in the middle is written anew; what stood after it stays.
                self.history[len(self.history) // 2 - 1] = {"role": "user", "content": "Forget that. What is next?"}
            if number == RESTART:
                self.server.stop()
                self.server = self.start()
            answer = self.turn(number, {EDIT: "edit", RESTART: "restart"}.get(number, "turn"))
            if number == AGAIN:
                answer = self.turn(number, "again")
            self.history.append(answer)
        self.server.stop()
        return self.rows


def show(name, rows):
    print(f"{name}\n  {'':<12} {'prompt':>7} {'new':>6} {'processed':>9} {'first token':>12}")
    for what, n_prompt, n_new, n_processed, first_ms in rows:
        print(f"  {what:<12} {n_prompt:>7} {n_new:>6} {n_processed:>9} {first_ms:>9.0f} ms")
    n_new, n_processed = (sum(row[i] for row in rows) for i in (2, 3))
    first = sorted(row[4] for row in rows)
    print(f"  processed {n_processed} for {n_new} new: {n_processed / n_new:.3f}")
    print(f"  first token: median {first[len(first) // 2]:.0f} ms, all {sum(first) / 1000:.1f} s", flush=True)
    return n_processed / n_new


def ours(folder):
    flags = f"--profile demo --ctx-tokens {CTX} --parallel 1 --threads 2 --threads-batch 2"
    return lambda: Server(*flags.split(), "--cache-dir", folder)


def main(peer=None):
    with tempfile.TemporaryDirectory() as folder:
        ratio = show("plateau", Day(ours(folder)).run())
    if peer:
        show("llama-server", Day(lambda: Peer(peer)).run())
    return 0 if ratio <= MOST else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
