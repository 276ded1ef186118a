#!/usr/bin/env bash
# Runs our kernels' source on the host against float64, attention, Gated DeltaNet and the small-batch product:
# emulate.sh FOLDER [-v]. Needs a C++ compiler only.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: emulate.sh FOLDER [-v]}/host
mkdir -p "$folder"
flags="-std=c++17 -O2 -Wall -Wextra -Wno-unknown-pragmas -ffp-contract=off -fno-strict-aliasing -pthread -DPLATEAU_EMULATE -I$here/tests/emulate -I$here/src"
pids=()
for source in src/fattn_quant.cu src/gdn_chunks.cu src/gdn_step.cu src/mmq_small.cu tests/fattn_emulate.cpp tests/gdn_emulate.cpp tests/mmq_emulate.cpp; do
    "${CXX:-g++}" $flags -x c++ -c "$here/$source" -o "$folder/$(basename "$source").o" & pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
"${CXX:-g++}" -pthread -o "$folder/fattn_emulate" "$folder"/{fattn_quant.cu,fattn_emulate.cpp}.o
"${CXX:-g++}" -pthread -o "$folder/gdn_emulate" "$folder"/{gdn_chunks.cu,gdn_step.cu,gdn_emulate.cpp}.o
"${CXX:-g++}" -pthread -o "$folder/mmq_emulate" "$folder"/{mmq_small.cu,mmq_emulate.cpp}.o
"$folder/fattn_emulate" "${@:2}"
"$folder/mmq_emulate" "${@:2}"
"$folder/gdn_emulate" "${@:2}"
