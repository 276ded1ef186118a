"""Records golden/NAME.json from a running llama-server, or compares one with a running plateau: see scripts/parity.sh.

A model with a chat template is asked through /v1/chat/completions; Gemma 3 270M is a base model without one, and completes text.

usage: record.py record URL FILE | compare URL FILE
"""
import json
import sys
import urllib.request

PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "List three primary colors.",
    "Explain gravity to a child in two sentences.",
    "Translate 'good morning' to Spanish.",
    "What is 12 times 12?",
    "Name the planets of the solar system.",
    "Write a Python function that reverses a string.",
    "Who wrote Romeo and Juliet?",
    "Give me a recipe for pancakes.",
    "What does HTTP stand for?",
    "Summarize the water cycle.",
    "Complete: The quick brown fox",
    "What are the benefits of exercise?",
    "Convert 100 degrees Fahrenheit to Celsius.",
    "Write a JSON object with name and age.",
    "Why is the sky blue?",
    "Tell me a joke about computers.",
    "Qu'est-ce que la photosynth\u00e8se ?",
    "\u8bf7\u7528\u4e00\u53e5\u8bdd\u4ecb\u7ecd\u5317\u4eac\u3002 \U0001f600",
]
MAX_TOKENS = 64


def answer(url, case):
    path = "/v1/chat/completions" if "messages" in case["ask"] else "/v1/completions"
    body = {**case["ask"], "temperature": 0, "max_tokens": case["max_tokens"], "cache_prompt": False}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as reply:
        choice = json.load(reply)["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


def main(verb, url, path):
    if verb == "record":
        cases = []
        for prompt in PROMPTS:
            chat = {"messages": [{"role": "user", "content": prompt}]}
            case = {"ask": {"prompt": prompt} if "gemma3" in path else chat, "max_tokens": MAX_TOKENS}
            cases.append({**case, "answer": answer(url, case)})
        with open(path, "w") as file:
            json.dump(cases, file, indent=1, ensure_ascii=False)
            file.write("\n")
        return 0
    with open(path) as file:
        cases = json.load(file)
    differ = 0
    for case in cases:
        got = answer(url, case)
        if got != case["answer"]:
            differ += 1
            print("differs:", json.dumps({"ask": case["ask"], "expected": case["answer"], "got": got}, ensure_ascii=False))
    print(f"{len(cases) - differ} of {len(cases)} equal")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
