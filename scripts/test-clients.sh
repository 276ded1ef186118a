#!/usr/bin/env bash
# The official SDKs, the demo model's skills and two models of other architectures, against the release binary; and the
# template comparison with jinja2 on real templates.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
"$root/scripts/models.sh"
"$root/scripts/templates.sh"
export PLATEAU_BIN=$CARGO_TARGET_DIR/release/plateau PLATEAU_MODELS=$cache/models PLATEAU_NODE=$cache/node
cd "$root"
"$cache/test-venv/bin/python" -m pytest -q -p no:cacheprovider tests/clients "$@"
PATH=$cache/test-venv/bin:$PATH PLATEAU_TEMPLATES=$cache/templates \
    cargo test --locked --no-default-features --test templates -- --nocapture
