#!/usr/bin/env bash
# Tests and benches of the kernels on this machine's card. Needs nvcc, g++ and ninja, no Rust: NVCC, LLAMA_SOURCE,
# CORE_VERSION and CUDA_OBJECTS as for build.sh.
#
#   gpu.sh test    float64 reference over 578 cases, memory and race checkers where they work, then against upstream
#   gpu.sh bench   ours and upstream's operator by tokens, cells and K/V formats; JSON into $OUT or the current folder
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
arch=${ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)}
library=$("$here/build.sh" "$arch" tests)
build=$(dirname "$library")
out=${OUT:-$PWD}
case ${1:-test} in
test)
    failed=0
    "$build/fattn_check" check full || failed=1
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck; do
            compute-sanitizer --tool $tool --error-exitcode 3 "$build/fattn_check" check tiny 2>&1 | tail -2 || failed=1
        done
    else
        echo "SKIPPED memcheck and racecheck: no compute-sanitizer here"
    fi
    "$build/op_compare" "$library" check 2>/dev/null || failed=1
    [ $failed = 0 ] && echo "gpu-test: passed" || echo "gpu-test: FAILED"
    exit $failed
    ;;
bench)
    PLATEAU_JSON=$out/fattn_bench.json "$build/fattn_check" bench
    PLATEAU_JSON=$out/op_bench.json "$build/op_compare" "$library" bench deep 2>/dev/null
    ;;
*) echo "usage: gpu.sh test | bench" >&2; exit 64 ;;
esac
