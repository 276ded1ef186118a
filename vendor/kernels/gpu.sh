#!/usr/bin/env bash
# Tests and benches of the kernels on this machine's card. Needs nvcc, g++ and ninja, no Rust: NVCC, LLAMA_SOURCE,
# CORE_VERSION and CUDA_OBJECTS as for build.sh.
#
#   gpu.sh test    float64 references, memory and race checkers where they work, then against upstream
#   gpu.sh bench   ours and upstream's operators by tokens, cells and K/V formats; JSON into $OUT or the current folder
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
arch=${ARCH:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)}
library=$("$here/build.sh" "$arch" tests)
build=$(dirname "$library")
out=${OUT:-$PWD}
case ${1:-test} in
test)
    failed=0
    "$build/gdn_graph" || failed=1
    "$build/fattn_check" check full || failed=1
    "$build/gdn_check" check || failed=1
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck; do
            for test in fattn_check gdn_check; do
                compute-sanitizer --tool $tool --error-exitcode 3 "$build/$test" check tiny 2>&1 | tail -2 || failed=1
            done
        done
    else
        echo "SKIPPED memcheck and racecheck: no compute-sanitizer here"
    fi
    "$build/op_compare" "$library" check 2>/dev/null || failed=1
    "$build/gdn_compare" "$library" check 2>/dev/null || failed=1
    [ $failed = 0 ] && echo "gpu-test: passed" || echo "gpu-test: FAILED"
    exit $failed
    ;;
bench)
    PLATEAU_JSON=$out/fattn_bench.json "$build/fattn_check" bench
    PLATEAU_JSON=$out/gdn_bench.json "$build/gdn_check" bench
    PLATEAU_JSON=$out/gdn_compare.json "$build/gdn_compare" "$library" bench 2>/dev/null
    PLATEAU_JSON=$out/op_bench.json "$build/op_compare" "$library" bench deep 2>/dev/null
    ;;
*) echo "usage: gpu.sh test | bench" >&2; exit 64 ;;
esac
