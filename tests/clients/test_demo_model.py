"""What the demo model can do, through HTTP: planted facts, JSON, several clients at once, clients that leave."""
import concurrent.futures
import http.client
import json
import random
import time
import urllib.error
import urllib.parse

import pytest
import synth

# Characters for a document of about so many tokens (the model's own training script uses the same factor).
CHARS_PER_TOKEN = 4.55


def planted_facts(tokens, how_many, seed):
    """(question with its document, the value to find) of the kinds that the model was measured on."""
    rng = random.Random(seed)
    generator = synth.Gen(rng)
    for i in range(how_many):
        kind = i % 3
        facts = [generator.fact(kind) for _ in range(4)]
        lines, size = [], 0
        while size < (tokens - 120) * CHARS_PER_TOKEN:
            lines.append(generator.sent())
            size += len(lines[-1]) + 1
        for fact in facts:
            lines.insert(rng.randrange(len(lines) + 1), fact[0])
        wanted = rng.choice(facts)
        yield "Read this text.\n\n" + " ".join(lines) + "\n\n" + wanted[1], wanted[3]


@pytest.mark.parametrize("tokens, how_many", [(2000, 40), (8000, 20)])
def test_planted_facts_are_found(server, tokens, how_many):
    right, sizes = 0, []
    for question, answer in planted_facts(tokens, how_many, seed=tokens):
        body = {
            "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 60,
            "reasoning_effort": "none",
        }
        reply = server.post("/v1/chat/completions", body)
        sizes.append(reply["usage"]["prompt_tokens"])
        right += reply["choices"][0]["message"]["content"].strip() == answer
    assert tokens * 0.7 < sum(sizes) / len(sizes) < tokens * 1.3, sizes
    assert right >= 0.85 * how_many, f"{right} of {how_many} at about {tokens} tokens"


def test_json_is_produced(server):
    rng = random.Random(1)
    right = 0
    for _ in range(20):
        person = synth.Gen(rng).person()
        reply = server.chat(
            "Write a JSON object with name {name} and age {age} and city {city}.".format(**person), reasoning_effort="none"
        )
        try:
            right += json.loads(reply["message"]["content"]) == {k: person[k] for k in ("name", "age", "city")}
        except ValueError:
            pass
    assert right >= 17, f"{right} of 20"


def test_tools_are_called_and_their_answers_used(server):
    tools = [json.loads(synth.tool_json(tool)) for tool in synth.TOOL_DEFS[:3]]
    right = 0
    for city in synth.CITY[:10]:
        messages = [{"role": "user", "content": f"What is the weather in {city}?"}]
        first = server.chat(messages, tools=tools)
        calls = first["message"].get("tool_calls") or []
        if [c["function"]["name"] for c in calls] != ["get_weather"]:
            continue
        if json.loads(calls[0]["function"]["arguments"]) != {"city": city}:
            continue
        messages += [first["message"], {"role": "tool", "tool_call_id": calls[0]["id"], "content": '{"temperature": 12, "sky": "windy"}'}]
        answer = server.chat(messages, tools=tools)["message"]["content"]
        right += "12" in answer and "windy" in answer
    assert right >= 9, f"{right} of 10"


def test_four_identical_greedy_prompts_give_one_answer(server):
    """Slots that answer questions they were not asked (a graph reused for another sequence)."""
    question = "Write a Python class River with the fields lantern, garden, castle."
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: server.chat(question, max_tokens=200)["message"], range(4)))
    assert len({json.dumps(a) for a in answers}) == 1


def test_four_long_prompts_at_once_all_finish(server):
    questions = list(planted_facts(6000, 4, seed=7))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        replies = list(pool.map(lambda q: server.chat(q[0], max_tokens=60, reasoning_effort="none"), questions))
    assert all(r["finish_reason"] == "stop" for r in replies)
    assert sum(r["message"]["content"].strip() == q[1] for r, q in zip(replies, questions)) >= 3


def open_stream(server, prompt, **fields):
    """A raw streaming request, so that the test decides when the socket closes."""
    host = urllib.parse.urlparse(server.url).netloc
    connection = http.client.HTTPConnection(host, timeout=60)
    body = {"messages": [{"role": "user", "content": prompt}], "stream": True, "max_tokens": 3000, "ignore_eos": True, **fields}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def wait_until(condition, what, tries=500):
    for _ in range(tries):
        if condition():
            return
        time.sleep(0.02)
    pytest.fail(what)


def all_idle(server):
    stats = server.get("/sequences")
    return stats["n_queued"] == 0 and all(s["phase"] == "idle" for s in stats["sequences"])


def test_clients_that_leave_free_their_sequence_also_while_queued(server):
    connections = [open_stream(server, f"Count to {n}.") for n in range(12)]
    wait_until(lambda: server.get("/sequences")["n_queued"] > 0, "twelve requests on four slots should queue")
    for connection in connections:
        connection.close()
    wait_until(lambda: all_idle(server), "sequences stay busy after their clients left")


def test_five_hundred_random_aborts_leave_no_stuck_sequence(server):
    rng = random.Random(5)
    for round_number in range(50):
        # Short answers: an unread stream keeps its slot to its end, and a request that is read may queue behind four of them.
        connections = [open_stream(server, "word " * rng.randrange(1, 60), max_tokens=60) for _ in range(10)]
        for connection in connections:
            if rng.random() < 0.5:
                connection.sock.settimeout(20)
                wanted, got = rng.randrange(1, 4000), 0
                try:
                    # Far enough to end in the queue, in prefill or in the middle of an answer.
                    while got < wanted and (data := connection.sock.recv(4096)):
                        got += len(data)
                except TimeoutError:
                    pytest.fail(f"no byte within 20 s in round {round_number}")
            connection.close()
    generated = server.get("/sequences")["n_steps"]
    assert generated > 200, f"the aborts hit nothing: {generated} steps"
    wait_until(lambda: all_idle(server), "sequences stay busy after 500 aborts")
    # Requests that were closed before they were read may still be on their way to the queue.
    answers = []

    def answered():
        try:
            answers.append(server.chat("Write the number 7 as a word.", reasoning_effort="none")["message"]["content"])
        except urllib.error.HTTPError as error:
            assert error.code == 503
        return answers

    wait_until(answered, "the server answers nobody after 500 aborts")
    assert "seven" in answers[0]
