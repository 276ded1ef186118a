#!/usr/bin/env bash
# Our verdicts on texts under GBNF grammars against those of llama.cpp's grammar sampler: 2,000 texts for each shipped grammar
# and each of tests/grammar/languages, or for the files that are named. Compiles one source file of the peer (scripts/peer.sh).
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
count=${COUNT:-2000}
source "$cache/env.sh"
llama=$(scripts/peer.sh source)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Of the vocabulary and the lazy triggers nothing is called: their symbols stay open.
c++ -std=c++17 -O2 -I"$llama/src" -I"$llama/include" -I"$llama/ggml/include" -o "$work/verdicts" \
    scripts/grammar_peer/verdicts.cpp "$llama/src/llama-grammar.cpp" -static -Wl,--unresolved-symbols=ignore-all
cargo build --quiet --locked --release --no-default-features --example grammar_verdicts
failed=0
for file in "${@:-grammars/*.gbnf tests/grammar/languages/*.gbnf}"; do
    for grammar in $file; do
        "$CARGO_TARGET_DIR/release/examples/grammar_verdicts" "$grammar" "$count" >"$work/texts"
        "$work/verdicts" "$grammar" <"$work/texts" || failed=1
    done
done
exit "$failed"
