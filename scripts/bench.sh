#!/usr/bin/env bash
# Benches: sampling over 248,320 logits, then plateau against llama-server of the same core, CPU flags and thread count, on
# the demo model and SmolLM2, both servers up at once and measured in paired rounds.
#   bench.sh [sampling|server]   (both when nothing is said; MODELS="demo smollm2" says which)
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cache=${PLATEAU_CACHE:-$HOME/.cache/plateau}
python=$cache/test-venv/bin/python
cd "$root"
what=${1:-all}
[ "$what" = server ] || cargo bench --locked --no-default-features --bench sampling
[ "$what" = sampling ] && exit 0

"$root/scripts/models.sh"
peer=$("$root/scripts/peer.sh" build)
threads=${THREADS:-2}
pids=()
scratch=$(mktemp -d)
trap 'kill "${pids[@]}" 2>/dev/null || true; rm -rf "$scratch"' EXIT
# A copy, since building the bench puts an executable without llama.cpp in its place.
cp "$CARGO_TARGET_DIR/release/plateau" "$scratch/plateau"
wait_for() {
    for _ in $(seq 300); do
        "$python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$1/health', timeout=1)" 2>/dev/null && return
        sleep 0.2
    done
    echo "no server on port $1" >&2; exit 1
}
for name in ${MODELS:-demo smollm2}; do
    if [ $name = demo ]; then model=$root/vendor/demo-model/plateau-demo-q8_0.gguf; else model=$cache/models/$name.gguf; fi
    "$scratch/plateau" serve --profile demo --model "$model" --port 18082 --ctx-tokens 8192 --parallel 4 \
        --threads "$threads" --threads-batch "$threads" >/dev/null 2>&1 & pids+=($!)
    "$peer/llama-server" -m "$model" --port 18081 -c 8192 -np 4 -kvu -t "$threads" -tb "$threads" -b 2048 -ub 512 \
        --no-webui >/dev/null 2>&1 & pids+=($!)
    wait_for 18082; wait_for 18081
    cargo bench --locked --no-default-features --bench server -- "$name" 127.0.0.1:18082 127.0.0.1:18081
    kill "${pids[@]}"; wait "${pids[@]}" 2>/dev/null || true; pids=()
done
