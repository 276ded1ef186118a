#!/usr/bin/env bash
# Tests and benches of the kernels on this machine's card. Needs nvcc, g++ and ninja, no Rust: NVCC, LLAMA_SOURCE,
# CORE_VERSION and CUDA_OBJECTS as for build.sh.
#
#   gpu.sh test    float64 references, memory and race checkers where they work, then against upstream
#   gpu.sh bench   ours and upstream's operators by tokens, cells and K/V formats; JSON into $OUT or the current folder
#   gpu.sh model GGUF TEXT   whole models with Gated DeltaNet and small-batch products on and off (LLAMA_INSTALL, see build.sh): speed with GGUF, then
#                            answers of the demo model to pieces of TEXT (16 MB of source text are enough) and to prompts that it knows
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
    "$build/mmq_graph_test" || failed=1
    "$build/fattn_check" check full || failed=1
    "$build/mmq_check" check || failed=1
    "$build/gdn_check" check || failed=1
    "$build/gdn_check" long || failed=1
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck; do
            for test in fattn_check gdn_check mmq_check; do
                compute-sanitizer --tool $tool --error-exitcode 3 "$build/$test" check tiny 2>&1 | tail -2 || failed=1
            done
        done
    else
        echo "SKIPPED memcheck and racecheck: no compute-sanitizer here"
    fi
    "$build/op_compare" "$library" check 2>/dev/null || failed=1
    "$build/gdn_compare" "$library" check 2>/dev/null || failed=1
    "$build/mmq_compare" "$library" check 2>/dev/null || failed=1
    [ $failed = 0 ] && echo "gpu-test: passed" || echo "gpu-test: FAILED"
    exit $failed
    ;;
bench)
    PLATEAU_JSON=$out/fattn_bench.json "$build/fattn_check" bench
    PLATEAU_JSON=$out/gdn_bench.json "$build/gdn_check" bench
    PLATEAU_JSON=$out/mmq_bench.json "$build/mmq_check" bench
    PLATEAU_JSON=$out/mmq_compare.json "$build/mmq_compare" "$library" bench 2>/dev/null
    PLATEAU_JSON=$out/gdn_compare.json "$build/gdn_compare" "$library" bench 2>/dev/null
    PLATEAU_JSON=$out/op_bench.json "$build/op_compare" "$library" bench deep 2>/dev/null
    ;;
model)
    gguf=${2:?usage: gpu.sh model GGUF TEXT} text=${3:?usage: gpu.sh model GGUF TEXT}
    [ -x "$build/gdn_model" ] || { echo "gpu.sh: no gdn_model: set LLAMA_INSTALL" >&2; exit 64; }
    failed=0
    demo=$here/../demo-model/plateau-demo-q8_0.gguf
    PLATEAU_JSON=$out/gdn_prefill.json "$build/gdn_model" "$library" "$gguf" prefill
    PLATEAU_JSON=$out/gdn_step.json "$build/gdn_model" "$library" "$gguf" step
    PLATEAU_JSON=$out/widths.json "$build/gdn_model" "$library" "$gguf" widths
    PLATEAU_JSON=$out/gdn_bits.json "$build/gdn_model" "$library" "$demo" bits "$text"
    PLATEAU_JSON=$out/gdn_parity.json "$build/gdn_model" "$library" "$demo" parity "$text" || failed=1
    python3 "$here/tests/gdn_prompts.py" >"$build/prompts.txt"
    PLATEAU_JSON=$out/gdn_answers.json "$build/gdn_model" "$library" "$demo" answers "$build/prompts.txt" || failed=1
    exit $failed
    ;;
*) echo "usage: gpu.sh test | bench | model GGUF TEXT" >&2; exit 64 ;;
esac
