#!/usr/bin/env bash
# Runs the source of the Gated DeltaNet kernels and of the small-batch product on the host against float64: emulate.sh FOLDER [-v]. Needs a C++ compiler only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: emulate.sh FOLDER [-v]}/host
mkdir -p "$folder"
flags="-std=c++17 -O2 -Wall -Wextra -Wno-unknown-pragmas -ffp-contract=off -DPLATEAU_EMULATE -I$here/tests/emulate -I$here/src"
pids=()
for source in src/gdn_chunks.cu src/gdn_step.cu tests/gdn_emulate.cpp src/mmq_small.cu tests/mmq_emulate.cpp; do
    "${CXX:-g++}" $flags -x c++ -c "$here/$source" -o "$folder/$(basename "$source").o" & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
"${CXX:-g++}" -o "$folder/gdn_emulate" "$folder"/{gdn_chunks.cu,gdn_step.cu,gdn_emulate.cpp}.o
"${CXX:-g++}" -o "$folder/mmq_emulate" "$folder"/{mmq_small.cu,mmq_emulate.cpp}.o
"$folder/mmq_emulate" "${@:2}"
"$folder/gdn_emulate" "${@:2}"
