"""Answers about 200 drawn pictures from a running llama-server, recorded, and those of a running plateau beside them: see
scripts/parity.sh.

usage: see.py record URL FILE | compare URL FILE
"""
import json
import sys
import urllib.request

from drawn import asking, encoded, is_right, part, scenes, text

HOW_MANY = 200


def answer(url, pixels, question):
    body = {
        "messages": asking(part(encoded(pixels)), text(question)),
        "temperature": 0,
        "max_tokens": 200,
        "chat_template_kwargs": {"enable_thinking": False},
    }
    request = urllib.request.Request(
        url + "/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as reply:
        return json.load(reply)["choices"][0]["message"]["content"] or ""


def main(verb, url, path):
    asked = list(scenes(HOW_MANY, seed=1))
    said = [answer(url, pixels, question) for _, pixels, question, _ in asked]
    right = [is_right(task, words, expected) for (task, _, _, expected), words in zip(asked, said)]
    print(f"{sum(right)} of {HOW_MANY} right")
    if verb == "record":
        with open(path, "w") as file:
            json.dump({"said": said, "right": sum(right)}, file)
        return 0
    with open(path) as file:
        theirs = json.load(file)
    for (_, _, question, expected), ours, other in zip(asked, said, theirs["said"]):
        if ours != other:
            print("differs:", json.dumps({"ask": question, "right": expected, "expected": other, "got": ours}))
    equal = sum(ours == other for ours, other in zip(said, theirs["said"]))
    print(f"{equal} of {HOW_MANY} answers equal")
    return 0 if abs(sum(right) - theirs["right"]) <= HOW_MANY // 100 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
