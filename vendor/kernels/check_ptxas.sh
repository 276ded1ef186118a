#!/usr/bin/env bash
# Holds what the compiler reports of our kernels to limits: check_ptxas.sh LOG ARCH.
#
# Registers: a multiprocessor has 65,536, given out in steps of 8 a thread. Attention, blocks of 128 threads: 128, 168 and
# 255 registers are resident 4, 3 and 2 times (fattn_params.cuh, resident_blocks). Gated DeltaNet: prepare_chunks has 256
# threads and scan_chunks 128, and on sm_86 their shared memory lets one block be resident; step_tokens runs 1 to 8 tokens
# and needs many blocks. Small-batch products: 128 threads, at most 8 columns and one matrix 128 registers, so that 4 blocks
# are resident; two matrices (32 rows a block) 168, 9 to 16 columns 255. Spills: at most 64 bytes, and none on sm_86. Static shared memory: tiles are dynamic, at most
# 99 KiB a block by their plan; only `combine` has any.
set -euo pipefail
awk -v arch="$2" '
    function limit_of(name,    part) {
        if (name ~ /prepare_chunks|scan_chunks/) return 255
        if (name ~ /step_tokens/) return 64
        if (name ~ /small_product_rows/) return name ~ /Li2ELb/ ? 255 : name ~ /Li1ELi1ELb0/ ? 128 : 168
        if (match(name, /Li[0-9]+ELi[0-9]+E/)) {
            split(substr(name, RSTART, RLENGTH), part, /Li|E/)
            return part[4] <= 1 ? 128 : part[4] <= 3 ? 168 : 255
        }
        return 64
    }
    /Compiling entry function/ { name = $0; sub(/.*function ./, "", name); sub(/. for.*/, "", name) }
    /bytes stack frame/ {
        spill = 0; frame = $1
        for (i = 1; i <= NF; i++) if ($i == "bytes" && $(i + 1) == "spill") spill += $(i - 1)
    }
    /Used [0-9]+ registers/ {
        for (i = 1; i <= NF; i++) { if ($i == "Used") registers = $(i + 1); if ($i == "smem,") shared = $(i - 2) }
        if ($0 !~ /smem/) shared = 0
        kernels++
        limit = limit_of(name)
        spills = arch == 86 ? 0 : 64
        verdict = registers > limit || spill > spills || frame > spill || shared > 16384 ? "OVER" : "ok"
        if (verdict == "OVER") failed = 1
        printf "sm_%s %-64s %3d registers (<= %d) %3d bytes spilt %5d bytes static shared  %s\n", arch, name, registers, limit, spill, shared, verdict
    }
    END { if (kernels < 43) { print "only " kernels + 0 " kernels in the report"; exit 1 } exit failed }
' "$1"
