"""compare.py DIR OUT: renders every chat template below DIR with jinja2 and writes the results as one JSON file.

Templates are *.jinja files and the `chat_template` of tokenizer_config.json files. Used by tests/templates.rs for templates
of other projects, which are fetched when the tests run and are not part of this repository.
"""

import json
import sys
from pathlib import Path

from reference import render_all

HERE = Path(__file__).resolve().parent


def sources(folder):
    for path in sorted(folder.rglob("*.jinja")):
        yield path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")
    for path in sorted(folder.rglob("tokenizer_config.json")):
        template = json.loads(path.read_text(encoding="utf-8")).get("chat_template")
        if isinstance(template, str):
            yield path.relative_to(folder).as_posix(), template


def main():
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    shapes = json.loads((HERE / "shapes.json").read_text(encoding="utf-8"))
    results = [
        {"template": name, "source": source, "renderings": render_all(source, shapes)}
        for name, source in sources(folder)
    ]
    out.write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
