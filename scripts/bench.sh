#!/usr/bin/env bash
# Benches: sampling over 248,320 logits; plateau against llama-server of the same core, CPU flags and thread count, on the demo
# model and SmolLM2; what drafting brings; what rules cost; an agent's 40
# turns. Servers are all up at once and measured in paired rounds, but for the agent's, which come one after the other.
#   bench.sh [sampling|server|drafts|constraints|agent]   (all when nothing is said; MODELS="demo smollm2" says which for server)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
python=$cache/test-venv/bin/python
cd "$root"
what=${1:-all}
case $what in
    all | sampling | server | drafts | constraints | agent) ;;
    *) echo "bench.sh: $what is not sampling, server, drafts, constraints or agent" >&2; exit 2 ;;
esac
pids=()
scratch=$(mktemp -d)
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$scratch"' EXIT
# A copy, since building a bench puts an executable without llama.cpp in its place.
cp "$CARGO_TARGET_DIR/release/plateau" "$scratch/plateau"
case $what in all | sampling) cargo bench --locked --no-default-features --bench sampling ;; esac
[ "$what" = sampling ] && exit 0

if [ "$what" != constraints ]; then
    "$root/scripts/models.sh"
    peer=$("$root/scripts/peer.sh" build)
fi
threads=${THREADS:-2}
wait_for() {
    for _ in $(seq 300); do
        "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$1/health', timeout=1)" 2>/dev/null && return
        sleep 0.2
    done
    echo "no server on port $1" >&2; exit 1
}
demo=$root/vendor/demo-model/plateau-demo-q8_0.gguf
# start_plateau PORT MODEL [FLAG...]
start_plateau() {
    local port=$1 model=$2; shift 2
    "$scratch/plateau" serve --profile demo --model "$model" --port "$port" --ctx-tokens 8192 --parallel 4 \
        --threads "$threads" --threads-batch "$threads" "$@" >/dev/null 2>&1 & pids+=($!)
}
start_peer() {
    local port=$1 model=$2; shift 2
    "$peer/llama-server" -m "$model" --port "$port" -c 8192 -np 4 -kvu -t "$threads" -tb "$threads" -b 2048 -ub 512 \
        --no-webui "$@" >/dev/null 2>&1 & pids+=($!)
}
stop_all() { kill "${pids[@]}"; wait "${pids[@]}" 2>/dev/null || true; pids=(); }

if [ "$what" = all ] || [ "$what" = server ]; then
    for name in ${MODELS:-demo smollm2}; do
        if [ "$name" = demo ]; then model=$demo; else model=$cache/models/$name.gguf; fi
        start_plateau 18082 "$model" --mtp false --lookup false
        start_peer 18081 "$model"
        wait_for 18082; wait_for 18081
        cargo bench --locked --no-default-features --bench server -- "$name" 127.0.0.1:18082 127.0.0.1:18081
        stop_all
    done
fi
if [ "$what" = all ] || [ "$what" = drafts ]; then
    start_plateau 18082 "$demo"
    start_plateau 18083 "$demo" --mtp false --lookup false
    start_peer 18081 "$demo" --spec-type draft-mtp --spec-draft-n-max 3
    wait_for 18082; wait_for 18083; wait_for 18081
    cargo bench --locked --no-default-features --bench drafts -- 127.0.0.1:18082 127.0.0.1:18083 127.0.0.1:18081
    stop_all
fi
if [ "$what" = all ] || [ "$what" = constraints ]; then
    start_plateau 18082 "$demo"
    wait_for 18082
    cargo bench --locked --no-default-features --bench constraints -- 127.0.0.1:18082
    stop_all
fi
if [ "$what" = all ] || [ "$what" = agent ]; then
    PLATEAU_BIN="$scratch/plateau" "$python" tests/clients/agent_day.py "$peer/llama-server"
fi
