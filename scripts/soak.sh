#!/usr/bin/env bash
# A memory soak: 2,000 short unique prompts; RssAnon + VmSwap must be flat after warm-up. Prints the curve.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
export PLATEAU_BIN=$CARGO_TARGET_DIR/release/plateau
exec "$cache/test-venv/bin/python" "$root/tests/clients/soak.py" "$@"
