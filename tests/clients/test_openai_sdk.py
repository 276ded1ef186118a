"""The official Python SDK against a running server."""
import json
import subprocess
import os
import pathlib

import openai
import pytest

QUESTION = [{"role": "user", "content": "Write the number 7 as a word."}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def client(server):
    return openai.OpenAI(base_url=server.url + "/v1", api_key="unused", max_retries=0)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def test_models_say_the_context_size(client):
    card = client.models.list().data[0]
    assert card.meta["n_ctx"] > 0 and card.meta["n_ctx_train"] > 0
    assert card.max_model_len == card.meta["n_ctx"]
    assert client.models.retrieve(card.id).id == card.id


def test_streamed_text_equals_whole_text(client, model):
    fields = dict(model=model, messages=QUESTION, temperature=0, reasoning_effort="none")
    whole = client.chat.completions.create(**fields)
    assert "seven" in whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "stop"
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_thinking_goes_to_reasoning_content(client, model):
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0)
    message = answer.choices[0].message
    assert message.content and "<think>" not in message.content and "</think>" not in message.content
    assert isinstance(message.reasoning_content, str)


def test_a_tool_is_called_and_its_response_used(client, model):
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    first = client.chat.completions.create(model=model, messages=messages, tools=[WEATHER], temperature=0)
    assert first.choices[0].finish_reason == "tool_calls"
    call = first.choices[0].message.tool_calls[0]
    assert call.function.name == "get_weather" and json.loads(call.function.arguments) == {"city": "Oslo"}
    messages.append(first.choices[0].message.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": '{"temperature": 17, "sky": "rainy"}'})
    second = client.chat.completions.create(model=model, messages=messages, tools=[WEATHER], temperature=0)
    assert "17" in second.choices[0].message.content and "rainy" in second.choices[0].message.content


def test_a_tool_call_streams_as_the_sdk_expects(client, model):
    stream = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "What is the weather in Oslo?"}],
        tools=[WEATHER], temperature=0, stream=True,
    )
    arguments, heads, reasons = "", [], []
    for chunk in stream:
        choice = chunk.choices[0]
        reasons.append(choice.finish_reason)
        for delta in choice.delta.tool_calls or []:
            if delta.id:
                heads.append((delta.index, delta.function.name))
            arguments += delta.function.arguments or ""
    assert heads == [(0, "get_weather")]
    assert json.loads(arguments) == {"city": "Oslo"}
    assert reasons[-1] == "tool_calls"


def test_logprobs_are_those_of_the_chosen_tokens(client, model):
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, logprobs=True, top_logprobs=3, reasoning_effort="none"
    )
    entries = answer.choices[0].logprobs.content
    assert "".join(e.token for e in entries).startswith(answer.choices[0].message.content)
    for entry in entries:
        assert entry.logprob == pytest.approx(entry.top_logprobs[0].logprob)
        assert len(entry.top_logprobs) == 3


def test_overflow_names_both_numbers(client, model, server):
    n_ctx = server.get("/v1/models")["data"][0]["meta"]["n_ctx"]
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=model, messages=[{"role": "user", "content": "word " * (n_ctx * 2)}])
    body = error.value.body
    assert body["type"] == "exceed_context_size_error" and body["n_ctx"] == n_ctx and body["n_prompt_tokens"] > n_ctx


def test_errors_are_typed_and_name_the_field(client, model):
    with pytest.raises(openai.BadRequestError) as error:
        client.chat.completions.create(model=model, messages=QUESTION, top_p=7)
    assert error.value.param == "top_p"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=model, input="x")


def test_completions_n_and_stop(client, model):
    answer = client.completions.create(
        model=model, prompt="one two three", n=2, max_tokens=16, temperature=0, stop=["\n"]
    )
    assert len(answer.choices) == 2 and answer.choices[0].text == answer.choices[1].text
    assert "\n" not in answer.choices[0].text


def test_node_sdk(server):
    """The same through the Node SDK; its own runner prints its own names."""
    folder = pathlib.Path(__file__).parent / "node"
    modules = pathlib.Path(os.environ["PLATEAU_NODE"])
    test = modules / "sdk.test.mjs"
    test.write_text((folder / "sdk.test.mjs").read_text())
    result = subprocess.run(
        ["node", "--test", str(test)], cwd=modules, env={**os.environ, "PLATEAU_URL": server.url},
        capture_output=True, text=True, timeout=300, check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
