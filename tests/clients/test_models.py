"""Other architectures: greedy answers equal to those of llama-server b11434 (the same core), recorded by record.py.

The models come from packages at test time (scripts/test-clients.sh); without them these tests say so and are skipped.
"""
import json
import os
import pathlib

import pytest
from conftest import Server
from record import answer

GOLDEN = pathlib.Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_greedy_answers_equal_llama_server(name):
    model = pathlib.Path(os.environ.get("PLATEAU_MODELS", "")) / f"{name}.gguf"
    if not model.is_file():
        pytest.skip(f"{name}.gguf is not there: set PLATEAU_MODELS")
    cases = json.loads((GOLDEN / f"{name}.json").read_text())
    assert len(cases) == 20
    server = Server("--profile", "demo", "--model", str(model), "--ctx-tokens", "4096", "--parallel", "1", "--lookup", "false")
    try:
        differ = [
            (case["ask"], case["answer"], got)
            for case in cases
            if (got := answer(server.url, case)) != case["answer"]
        ]
    finally:
        server.stop()
    assert not differ, json.dumps(differ, indent=1, ensure_ascii=False)
