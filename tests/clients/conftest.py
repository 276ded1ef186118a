"""One server for the session: the release binary on the demo model, on a free port.

PLATEAU_BIN is the binary. PLATEAU_MODELS is a folder with the models of test_models.py; without it those tests are skipped.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "vendor" / "demo-model"))


class Server:
    """A plateau process; reads the port that it chose from its first line of output."""

    def __init__(self, *args, env=None):
        command = [os.environ["PLATEAU_BIN"], "serve", "--port", "0", *args]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **(env or {})}
        )
        for line in self.process.stdout:
            match = re.search(r"http://[0-9.]+:\d+", line)
            if match:
                self.url = match.group(0)
                return
        raise RuntimeError(f"{command} ended with {self.process.wait()} before it was ready")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)

    def post(self, path, body, timeout=300):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)

    def chat(self, content, **fields):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        return self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, **fields})["choices"][0]

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=60)


@pytest.fixture(scope="session")
def server():
    # Drafts are on, as they are by default. Over an f16 cache the CPU rounds by the rows of a step, and how many are drafted
    # follows the clock: near ties would differ from run to run. Over bf16 it does not.
    server = Server("--profile", "demo", "--cache-type-k", "bf16", "--cache-type-v", "bf16")
    yield server
    assert server.stop() == 0, "the server ends with 0 on SIGTERM"
