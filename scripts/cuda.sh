#!/usr/bin/env bash
# The CUDA plug-in: finds the compiler and the ggml-cuda sources of the pinned crate, and builds.
#
#   cuda.sh build [ARCH...]   libggml-cuda-smARCH.so into the folder of the release binary (default: 86 and 90)
#   cuda.sh check [installed] our kernels on an emulated multiprocessor (needs g++ only), then our kernels'
#                             registers, spills and shared memory for sm_86 against their limits; `installed`: with an nvcc
#                             that is there, else skipped by name
#   cuda.sh test|bench        on this machine's card; the plug-in is built for it first
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
export CUDA_OBJECTS=${CUDA_OBJECTS:-$cache/cuda-objects}
what=${1:-build}
[ $# -gt 0 ] && shift

if [ "$what" = check ]; then
    vendor/kernels/emulate.sh "$CUDA_OBJECTS"
    if ! NVCC=$(scripts/cuda-toolkit.sh ${1:+"$1"}); then
        echo "cuda: SKIPPED the check of the kernels' registers: no nvcc can be had here"
        exit 0
    fi
    export NVCC
    exec vendor/kernels/build.sh 86 check
fi

NVCC=$(scripts/cuda-toolkit.sh)
export NVCC
if [ -z "${LLAMA_SOURCE:-}" ]; then
    crate=$(cargo metadata --locked --format-version 1 | python3 -c '
import json, os, sys
[p] = [p for p in json.load(sys.stdin)["packages"] if p["name"] == "llama-cpp-sys-2"]
print(os.path.dirname(p["manifest_path"]), p["version"])')
    export LLAMA_SOURCE=${crate% *}/llama.cpp CORE_VERSION=${crate#* }
fi
case $what in
build)
    target=${CARGO_TARGET_DIR:-$cache/target}/release
    mkdir -p "$target"
    for arch in "${@:-86 90}"; do for one in $arch; do cp "$(vendor/kernels/build.sh "$one")" "$target/"; done; done
    ls -l "$target"/libggml-cuda-sm*.so
    ;;
test | bench) exec vendor/kernels/gpu.sh "$what" "$@" ;;
*) echo "usage: cuda.sh build [ARCH...] | check [installed] | test | bench" >&2; exit 64 ;;
esac
