"""Long prompts of the kind that the demo model was trained on, for `gdn_model answers`: form feeds between them.

Usage: gdn_prompts.py [COUNT [DEMO_MODEL_FOLDER]] >FILE. Always the same ones. A text of 4,000 to 30,000 tokens (short and long
ones alike by ratio) with facts in it, questions with their answers, and a last one that is left open: about a fact, for a
call of a declared tool, or one of the model's small tasks (JSON, code, sums). Not for: whether answers are right.
"""
import os
import random
import sys

COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 200
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "..", "..", "demo-model"))
from synth import TOOL_DEFS, Gen, tool_json

CHARS_A_TOKEN = 4.6  # of sentences in the demo model's vocabulary


def document(gen, chars):
    """Sentences with facts at random places, as Gen.needle makes them; and the facts."""
    facts = {}
    for _ in range(gen.r.choice([2, 4, 8, 16])):
        fact = gen.fact(gen.r.randrange(4))
        facts[fact[1]] = fact
    lines, size = [], 0
    while size < chars:
        lines.append(gen.sent())
        size += len(lines[-1]) + 1
    for fact in facts.values():
        lines.insert(gen.r.randrange(len(lines) + 1), fact[0])
    return gen.r.choice(["\n", " "]).join(lines), list(facts.values())


def turn(user, reasoning, answer, **more):
    return [dict(role="user", content=user), dict(role="assistant", content=answer, reasoning=reasoning, **more)]


def prompt(gen, kind):
    r = gen.r
    text, facts = document(gen, CHARS_A_TOKEN * 4200 * (28500 / 4200) ** r.random())
    first, last = r.sample(facts, 2) if len(facts) > 1 else (facts[0], facts[0])
    messages, tools = turn("Read this text.\n\n" + text + "\n\n" + first[1], "", first[3]), None
    if kind == "fact":
        messages += turn(last[1], gen.th(last[2]), last[3])
    elif kind == "task":
        user, reasoning, answer = r.choice([gen.t_json, gen.t_code, gen.t_arith, gen.t_fact])()
        messages += turn(user, gen.th(reasoning), answer)
    else:
        tools = [tool_json(t, r) for t in TOOL_DEFS[:3]]
        city = gen.value("city")
        messages += turn(f"What is the weather in {city}?", gen.th("I should call get_weather."), "", tool_calls=[("get_weather", [("city", city)])])
    parts = gen.render(messages, tools)
    end = max(i for i, (_, assistant) in enumerate(parts) if assistant)
    return "".join(part for part, _ in parts[:end])


def main():
    gen = Gen(random.Random(5))
    kinds = ["fact", "fact", "tool", "task"]
    sys.stdout.write("\f".join(prompt(gen, kinds[i % len(kinds)]) for i in range(COUNT)))


main()
