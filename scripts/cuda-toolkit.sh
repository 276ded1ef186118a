#!/usr/bin/env bash
# Prints the path of an nvcc: the one on PATH or in /usr/local/cuda if it is new enough (12.8), else a compile-only toolkit
# made of packages under the cache (about 1.3 GB; needs python3 and a package index).
set -euo pipefail
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
new_enough() { # NVCC
    local version
    version=$("$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -n "$version" ] || return 1
    # shellcheck disable=SC2086  # three words
    set -- $version
    [ "$1" -gt 12 ] || { [ "$1" -eq 12 ] && [ "$2" -ge 8 ]; }
}
for nvcc in "${NVCC:-}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc "$cache/cuda/bin/nvcc"; do
    if [ -n "$nvcc" ] && [ -x "$nvcc" ] && new_enough "$nvcc"; then echo "$nvcc"; exit 0; fi
done
[ "${1:-}" = installed ] && { echo "cuda-toolkit: no nvcc of 12.8 or later is installed" >&2; exit 69; }

toolkit=$cache/cuda; venv=$toolkit/.venv
echo "cuda-toolkit: making a CUDA 13.0 toolkit of packages in $toolkit" >&2
mkdir -p "$toolkit"
python3 -m venv "$venv"
"$venv/bin/pip" --quiet --disable-pip-version-check install --no-deps nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 \
    nvidia-nvvm==13.0.88 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85 nvidia-cuda-culibos==13.0.85 \
    nvidia-cublas==13.1.0.3 >&2
root=$(echo "$venv"/lib/python3*/site-packages/nvidia/cu13)
for folder in bin include lib nvvm; do ln -sfn "$(realpath "$root")/$folder" "$toolkit/$folder"; done
# nvcc looks beside its real path.
ln -sfn lib "$root/lib64"
ln -sfn lib "$toolkit/lib64"
(cd "$toolkit/lib/" && for file in *.so.*; do ln -sfn "$file" "${file%%.so*}.so"; done && mkdir -p stubs)
# No package has the driver's stub: one is made of the names in cuda.h. It is linked against and never run.
{ grep -oE 'CUDAAPI +cu[A-Za-z0-9_]+' "$toolkit/include/cuda.h" | awk '{print $2}'
  grep -oE '\bcu[A-Z][A-Za-z0-9]*_v[0-9]+\b' "$toolkit/include/cuda.h"; } | grep -E '^cu[A-Z]' | sort -u |
    awk '{print "int "$1"(void){return 34;}"}' >"$toolkit/stub.c"
gcc -shared -fPIC -Wl,-soname,libcuda.so.1 "$toolkit/stub.c" -o "$toolkit/lib/stubs/libcuda.so"
"$toolkit/bin/nvcc" --version | tail -2 >&2
echo "$toolkit/bin/nvcc"
