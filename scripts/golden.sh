#!/usr/bin/env bash
# The recorded requests of tests/golden to two servers with the demo model, an old one and a new one: their answers must be the
# same but for ids and times.
#
#   golden.sh OLD_BINARY NEW_BINARY
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
[ $# = 2 ] || { echo "usage: golden.sh OLD_BINARY NEW_BINARY" >&2; exit 64; }
logs=$(mktemp -d)
pids=()
stop() {
    [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait || true
    rm -r "$logs"
}
trap stop EXIT

# Starts one on a port that is free and leaves its URL in `url`.
url=
start() {
    local binary=$1 log=$logs/$2 _
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "$binary" serve --profile demo --host 127.0.0.1 --port "$port" >"$log" 2>&1 &
    pids+=($!)
    for _ in $(seq 300); do
        if curl -sf --noproxy '*' -o /dev/null "http://127.0.0.1:$port/health"; then
            url=http://127.0.0.1:$port
            return
        fi
        kill -0 "${pids[-1]}" 2>/dev/null || break
        sleep 0.2
    done
    echo "golden: $binary did not start:" >&2
    cat "$log" >&2
    exit 1
}

start "$1" old
PLATEAU_GOLDEN_OLD=$url
start "$2" new
PLATEAU_GOLDEN_NEW=$url
export PLATEAU_GOLDEN_OLD PLATEAU_GOLDEN_NEW CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
cd "$root"
cargo test --locked --no-default-features --test golden requests_are_answered_as_recorded -- --nocapture
