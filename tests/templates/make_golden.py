"""Writes tests/templates/golden/*.json: every template of ours rendered by jinja2 for every shape.

Run it after a change to a template or a shape: python3 tests/templates/make_golden.py
"""

import json
from pathlib import Path

from reference import render_all

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def main():
    shapes = json.loads((HERE / "shapes.json").read_text(encoding="utf-8"))
    templates = {path.stem: path for path in sorted((HERE / "cases").glob("*.jinja"))}
    templates["demo-model"] = ROOT / "vendor/demo-model/chat_template.jinja"
    for name, path in templates.items():
        golden = {
            "template": path.relative_to(ROOT).as_posix(),
            "renderings": render_all(path.read_text(encoding="utf-8"), shapes),
        }
        out = HERE / "golden" / f"{name}.json"
        out.write_text(json.dumps(golden, indent=1, ensure_ascii=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
