#!/usr/bin/env bash
# Greedy answers from a llama-server built here, compared with plateau's, live: of SmolLM2 and Gemma 3, and of the demo model
# about 200 drawn pictures.
#   parity.sh            compare
#   parity.sh pictures   the pictures alone
#   parity.sh record     rewrite tests/clients/golden from llama-server
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
python=$cache/test-venv/bin/python
peer=$("$root/scripts/peer.sh" build)
golden=$root/tests/clients/golden
[ "${1:-}" = record ] || golden=$(mktemp -d)
mkdir -p "$golden"

# Starts a server, waits until it answers, runs a command with its URL, stops it.
with_server() {
    local port=$1 pid; shift
    local command=(); while [ "$1" != -- ]; do command+=("$1"); shift; done; shift
    "${command[@]}" >/dev/null 2>&1 & pid=$!
    for _ in $(seq 300); do
        "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=1)" 2>/dev/null && break
        sleep 0.2
    done
    local rc=0; "$@" || rc=$?
    kill "$pid"; wait "$pid" 2>/dev/null || true
    return $rc
}

# Without its checkpoints (-ctxcp 0) llama-server prefills a prompt in one batch, as plateau does: kernels round differently
# for other batch sizes, and a base model's near ties follow.
failed=0
see_pictures() {
    local demo=$root/vendor/demo-model seen
    seen=$(mktemp)
    with_server 18081 "$peer/llama-server" -m "$demo/plateau-demo-q8_0.gguf" --mmproj "$demo/plateau-demo-mmproj-f16.gguf" \
        --port 18081 -c 4096 -np 1 -t 2 --jinja -ctxcp 0 -- \
        "$python" "$root/tests/clients/see.py" record http://127.0.0.1:18081 "$seen"
    echo "pictures: llama-server against plateau"
    with_server 18082 "$CARGO_TARGET_DIR/release/plateau" serve --profile demo --port 18082 --ctx-tokens 4096 --parallel 1 -- \
        "$python" "$root/tests/clients/see.py" compare http://127.0.0.1:18082 "$seen" || failed=1
    rm -f "$seen"
}
[ "${1:-}" = record ] || see_pictures
[ "${1:-}" != pictures ] || exit $failed

"$root/scripts/models.sh"
for name in smollm2 gemma3; do
    model=$cache/models/$name.gguf
    with_server 18081 "$peer/llama-server" -m "$model" --port 18081 -c 4096 -np 1 -t 2 --jinja -ctxcp 0 -- \
        "$python" "$root/tests/clients/record.py" record http://127.0.0.1:18081 "$golden/$name.json"
    echo "$name: llama-server against plateau"
    with_server 18082 "$CARGO_TARGET_DIR/release/plateau" serve --profile demo --lookup false --model "$model" --port 18082 \
        --ctx-tokens 4096 --parallel 1 -- \
        "$python" "$root/tests/clients/record.py" compare http://127.0.0.1:18082 "$golden/$name.json" || failed=1
done
exit $failed
