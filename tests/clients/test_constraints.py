"""Constraints on the demo model, through HTTP, with drafts on: calls, bounded thinking, schemas, grammars.

CONSTRAINT_RUNS multiplies the runs of each test (docs/grammars.md says how many were run for its figures).
"""
import json
import os
import random
import re
import urllib.error

import pytest
import synth

MANY = int(os.environ.get("CONSTRAINT_RUNS", "1"))
ON, OFF = {}, {"speculative": {"n_max": 0, "lookup": False}}

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city", "unit"],
}
SUM = {
    "type": "object",
    "properties": {"numbers": {"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 4}},
    "required": ["numbers"],
}


def tool(name, parameters):
    return {"type": "function", "function": {"name": name, "description": f"the tool {name}", "parameters": parameters}}


TOOLS = [tool("get_weather", WEATHER), tool("sum", SUM), tool("ping", {"type": "object", "properties": {}})]


def check_call(call, allowed):
    name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
    assert name in allowed
    if name == "get_weather":
        assert {"city", "unit"} <= set(arguments) <= {"city", "unit", "days"}, arguments
        assert arguments["unit"] in ("celsius", "fahrenheit") and isinstance(arguments["city"], str)
        assert 1 <= arguments.get("days", 1) <= 9
    elif name == "sum":
        assert set(arguments) == {"numbers"} and 1 <= len(arguments["numbers"]) <= 4
        assert all(isinstance(n, (int, float)) for n in arguments["numbers"])


def questions(n, seed):
    rng = random.Random(seed)
    for i in range(n):
        yield rng.choice(
            [
                f"What is the weather in {rng.choice(['Berlin', 'Oslo', 'Kyoto'])}?",
                f"Write the number {rng.randrange(21)} as a word.",
                "Write a JSON object with name {name} and age {age} and city {city}.".format(**synth.Gen(rng).person()),
                f"Add {rng.randrange(99)} and {rng.randrange(99)}. Request {i}.",
            ]
        )


@pytest.mark.parametrize("choice", ["required", "named"])
def test_a_forced_call_is_a_valid_call_to_an_allowed_tool(server, choice):
    rng = random.Random(choice)
    for i, question in enumerate(questions(10 * MANY, seed=5)):
        name = rng.choice(["get_weather", "sum", "ping"])
        wanted = "required" if choice == "required" else {"type": "function", "function": {"name": name}}
        answer = server.chat(
            question, tools=TOOLS, tool_choice=wanted, temperature=rng.choice([0, 1.2]), seed=i, max_tokens=400,
            reasoning_effort=rng.choice(["none", "minimal"]),
        )
        if answer["finish_reason"] == "length":
            # Free text of a hot small model may not end within the room that it has.
            continue
        assert answer["finish_reason"] == "tool_calls", answer
        calls = answer["message"]["tool_calls"]
        assert answer["message"]["content"] in (None, "") and (choice == "required" or len(calls) == 1)
        for call in calls:
            check_call(call, ["get_weather", "sum", "ping"] if choice == "required" else [name])


def test_a_choice_of_none_makes_no_call(server):
    for question in questions(5 * MANY, seed=6):
        message = server.chat(question, tools=TOOLS, tool_choice="none", max_tokens=60)["message"]
        assert not message.get("tool_calls") and "<tool_call>" not in (message["content"] or "")


def test_thinking_beyond_its_budget_is_closed_once_and_an_answer_follows(server):
    rng = random.Random(7)
    for i, question in enumerate(questions(20 * MANY, seed=7)):
        body = {
            "messages": [{"role": "user", "content": question}], "max_tokens": 300, "seed": i,
            "temperature": rng.choice([0, 1.0]), "enable_thinking": True,
            # A thought that the model would never end by itself.
            "thinking": {"budget_tokens": 20, "grammar": 'root ::= [a-z ]{400}'},
        }
        reply = server.post("/v1/chat/completions", body)
        message, usage = reply["choices"][0]["message"], reply["usage"]
        content = message["content"] or ""
        assert "think>" not in content and "think>" not in message["reasoning_content"], message
        assert content.strip() or reply["choices"][0]["finish_reason"] == "length", reply
        # The closing text counts as thinking, too.
        assert 20 <= usage["completion_tokens_details"]["reasoning_tokens"] <= 60, usage


def random_schema(rng, depth=0):
    kinds = ["string", "integer", "boolean", "enum", "array", "object"] if depth < 3 else ["integer", "boolean", "enum"]
    kind = rng.choice(kinds if depth else ["object"])
    if kind == "enum":
        return {"enum": rng.sample(["red", "green", "blue", 1, 2, None], 3)}
    if kind == "string":
        return {"type": "string", "maxLength": rng.randrange(1, 20)}
    if kind == "integer":
        return {"type": "integer", "minimum": 0, "maximum": rng.randrange(1, 5000)}
    if kind == "array":
        return {"type": "array", "items": random_schema(rng, depth + 1), "minItems": 1, "maxItems": 3}
    if kind == "object":
        names = rng.sample(["name", "age", "city", "tags", "size", "ok"], rng.randrange(1, 4))
        return {
            "type": "object", "properties": {name: random_schema(rng, depth + 1) for name in names},
            "required": names, "additionalProperties": False,
        }
    return {"type": kind}


def fits(value, schema):
    if "enum" in schema:
        return any(value == v and isinstance(value, bool) == isinstance(v, bool) for v in schema["enum"])
    if schema["type"] == "string":
        return isinstance(value, str) and len(value) <= schema["maxLength"]
    if schema["type"] == "integer":
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= schema["maximum"]
    if schema["type"] == "boolean":
        return isinstance(value, bool)
    if schema["type"] == "array":
        return isinstance(value, list) and 1 <= len(value) <= 3 and all(fits(v, schema["items"]) for v in value)
    return set(value) == set(schema["required"]) and all(fits(v, schema["properties"][k]) for k, v in value.items())


def test_whatever_is_generated_under_a_schema_parses_and_validates(server):
    rng = random.Random(8)
    for _ in range(5 * MANY):
        schema = random_schema(rng)
        asked = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
        for seed in range(2):
            answer = server.chat(
                "Write any JSON object.", response_format=asked, reasoning_effort="none", temperature=rng.choice([0, 1.0]),
                seed=seed, max_tokens=1500,
            )
            text = answer["message"]["content"]
            assert answer["finish_reason"] == "stop", (schema, text)
            assert fits(json.loads(text), schema), (schema, text)


GRAMMARS = [
    {"response_format": {"type": "json_object"}, "max_tokens": 80},
    {"regex": "[A-Z][a-z]+( [a-z]+){2,6}\\."},
    {"guided_choice": ["yes", "no", "perhaps"]},
    {"grammar": 'root ::= ("- " [a-z ]{3,20} "\\n"){3}'},
    {"tools": TOOLS, "tool_choice": "required", "max_tokens": 120},
    {"thinking": {"grammar": "scratchpad", "budget_tokens": 120}, "enable_thinking": True, "max_tokens": 200},
    {"thinking": {"grammar": "tagline"}, "enable_thinking": True, "max_tokens": 120},
    {"enable_thinking": True, "thinking_budget_tokens": 10, "max_tokens": 80},
]


@pytest.mark.parametrize("rules", GRAMMARS, ids=lambda rules: "-".join(rules)[:40])
def test_a_greedy_answer_under_rules_is_the_same_with_and_without_drafts(server, rules):
    fields = {"max_tokens": 60, **rules}
    for question in questions(2 * MANY, seed=9):
        on, off = (server.chat(question, **fields, **how)["message"] for how in (ON, OFF))
        for message in (on, off):
            for call in message.get("tool_calls") or []:
                call["id"] = ""
        assert on == off, question


def test_shapes_of_thinking_hold(server):
    body = {"enable_thinking": True, "thinking": {"grammar": "tagline"}, "max_tokens": 300}
    reasoning = server.chat("Add 3 and 4.", **body)["message"]["reasoning_content"]
    assert re.fullmatch(r"Q=\w+ M=\w+ K=\S+ R=\S+ V=\w+\n?", reasoning), reasoning


BAD = [
    {"grammar": "(" * 60_000},
    {"grammar": "root ::= [a-z]{5,2}"},
    {"grammar": "root ::= root \"a\""},
    {"grammar": "root ::= ("},
    {"grammar": "root ::= \"\""},
    {"json_schema": {"type": "string", "minLength": 5, "maxLength": 2}},
    {"json_schema": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}},
    {"guided_choice": [f"choice {i}" for i in range(100_000)]},
    {"json_schema": {"type": "object", "properties": {f"p{i}": {"enum": [f"v{j}" for j in range(99)]} for i in range(9_000)}}},
    {"regex": "(" * 5_000},
    {"grammar": "root ::= \"a\"", "regex": "a"},
    {"thinking": {"grammar": "root ::= [a-z]+"}, "enable_thinking": True},
    {"tool_choice": "required"},
]


@pytest.mark.parametrize("body", BAD, ids=lambda body: f"{next(iter(body))}-{str(list(body.values())[0])[:20]}")
def test_a_constraint_that_cannot_be_compiled_is_an_error_that_names_its_field(server, body):
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.chat("hi", **body)
    error = json.load(refused.value)["error"]
    assert refused.value.code in (400, 413) and error["param"], error
    assert server.get("/health")["status"] == "ok"
