#!/usr/bin/env bash
# Builds libggml-cuda-sm<ARCH>.so: upstream's CUDA backend of the pinned llama.cpp with our kernels. Needs no Rust.
#
#   build.sh ARCH        86, 89, 90 or 120; prints the path of the library
#   build.sh ARCH tests  also builds fattn_check, gdn_check, mmq_check, gdn_graph, mmq_graph_test, op_compare, gdn_compare and mmq_compare beside it, and gdn_model
#                        where LLAMA_INSTALL says what to link it with
#   build.sh ARCH check  compiles our kernels only and holds registers, spills and shared memory to limits (check_ptxas.sh)
#
# LLAMA_SOURCE   llama.cpp's folder (scripts/cuda.sh finds it through cargo)
# CORE_VERSION   version of the crate it came from; the host refuses a plug-in made for another
# NVCC           the compiler (scripts/cuda-toolkit.sh finds or makes one)
# CUDA_OBJECTS   folder of the objects, kept between builds; JOBS: compilers at a time (default: processors)
# LLAMA_INSTALL  folder with `include` and `lib` of a static build of the core, as cargo makes one (out folder of llama-cpp-sys-2)
# FLAVOUR=upstream   also builds libggml-cuda-upstream.so of the same objects without our kernels, to compare with
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
arch=${1:?usage: build.sh ARCH [check]}
what=${2:-all}
: "${NVCC:?set NVCC}" "${CUDA_OBJECTS:?set CUDA_OBJECTS}"
jobs=${JOBS:-$(nproc)}
case $arch in 86 | 89 | 90 | 120) ;; *) echo "build.sh: no such architecture: $arch (86, 89, 90, 120)" >&2; exit 64 ;; esac
# Blackwell's consumer chips have instructions that only the architecture-specific target knows.
target=$arch; [ "$arch" = 120 ] && target=120a
# shellcheck source=sources.sh
. "$here/sources.sh"
build=$CUDA_OBJECTS/sm$arch
mkdir -p "$build"

common="-O3 -std=c++17 -extended-lambda -gencode=arch=compute_$target,code=sm_$target -Xcompiler=-fPIC -DNDEBUG"

flags_of() { case " $FAST_MATH " in *" $1 "*) echo -use_fast_math ;; esac; }

if [ "$what" = check ]; then
    log=$build/ptxas.log
    : >"$log"
    for source in $KERNEL_SOURCES; do
        # -Xptxas -v prints what the limits are about; nothing is linked.
        "$NVCC" $common $(flags_of "$source") -Xptxas -v -c "$here/$source" -o "$build/check.o" >>"$log" 2>&1 || { cat "$log" >&2; exit 1; }
    done
    exec "$here/check_ptxas.sh" "$log" "$arch"
fi

: "${LLAMA_SOURCE:?set LLAMA_SOURCE}" "${CORE_VERSION:?set CORE_VERSION}"
cuda=$LLAMA_SOURCE/ggml/src/ggml-cuda
toolkit=$(cd "$(dirname "$(readlink -f "$NVCC")")/.." && pwd)
library_folder=$toolkit/lib64; [ -d "$library_folder" ] || library_folder=$toolkit/lib
toolkit_ours=$(cd "$(dirname "$NVCC")/.." && pwd)

defines='-DGGML_BACKEND_DL -DGGML_BACKEND_BUILD -DGGML_BACKEND_SHARED -DGGML_CUDA_USE_GRAPHS -D_GNU_SOURCE -D_XOPEN_SOURCE=600'
quants=$(echo $FA_PAIRS | tr ' ' ',')
defines+=" -DGGML_CUDA_FA_QUANTS=\\\"$quants\\\""
for v in $FA_TYPES; do
    for k in $FA_TYPES; do
        on=0; case " $FA_PAIRS " in *" $k-$v "*) on=1 ;; esac
        defines+=" -DGGML_CUDA_FA_$(echo "${k}_$v" | tr a-z A-Z)=$on"
    done
done
includes="-I$cuda -I$LLAMA_SOURCE/ggml/src -I$LLAMA_SOURCE/ggml/include"

host_compiler=${CXX:-g++}
mkdir -p "$build/host"
# CMake would fill this header in; the tests print no version.
sed -e 's/@GGML_VERSION@/0/g; s/@GGML_BUILD_COMMIT@/none/g; s/@[A-Z_]*@/0/g' "$LLAMA_SOURCE/ggml/src/ggml-version.h.in" >"$build/host/ggml-version.h.new"
cmp -s "$build/host/ggml-version.h.new" "$build/host/ggml-version.h" || mv "$build/host/ggml-version.h.new" "$build/host/ggml-version.h"

ninja=$build/build.ninja
objects=''
upstream_objects=''
{
    echo "ninja_required_version = 1.5"
    echo "rule nvcc"
    echo "  command = $NVCC $common $defines $includes \$extra -MD -MF \$out.d -c \$in -o \$out"
    echo "  depfile = \$out.d"
    echo "  deps = gcc"
    echo "  description = nvcc \$out"
    echo "rule link"
    # ggml's own symbols stay undefined: the host has them. cudart comes along; cublas is the toolkit's, the driver the machine's.
    echo "  command = ${CXX:-g++} -shared -s -o \$out \$in -Wl,-Bsymbolic -L$library_folder -L$toolkit_ours/lib/stubs -L$library_folder/stubs -Wl,-rpath,$library_folder -lcudart_static -lcublas -lcuda -lpthread -ldl -lrt"
    echo "  description = link \$out"
    sources=$(cd "$cuda" && ls $UPSTREAM_GLOBS)
    for pair in $FA_PAIRS; do sources+=" template-instances/fattn-vec-instance-$pair.cu"; done
    for source in $sources; do
        object=upstream/$(echo "$source" | tr / _).o
        extra='-use_fast_math'
        for rule in "${RENAMED[@]}"; do
            set -- $rule
            if [ "$1" = "$source" ]; then
                shift
                plain=upstream/plain_$(echo "$source" | tr / _).o
                echo "build $plain: nvcc $cuda/$source"
                echo "  extra = -use_fast_math"
                upstream_objects+=" $plain"
                for symbol in "$@"; do extra+=" -D$symbol=up_$symbol"; done
                object=upstream/renamed_$(echo "$source" | tr / _).o
            fi
        done
        echo "build $object: nvcc $cuda/$source"
        echo "  extra = $extra"
        objects+=" $object"
        case $object in upstream/renamed_*) ;; *) upstream_objects+=" $object" ;; esac
    done
    for source in $OURS; do
        object=ours/$(basename "$source").o
        echo "build $object: nvcc $here/$source"
        echo "  extra = $(flags_of "$source") -DPLATEAU_CORE_VERSION=\\\"$CORE_VERSION\\\" -DPLATEAU_CUDA_ARCH=$arch"
        objects+=" $object"
    done
    # The tests: binaries without ggml, one of ggml alone, and those that host the plug-in.
    echo "rule host"
    echo "  command = $host_compiler -O2 -fPIC \$std -I$build/host $includes -I$LLAMA_SOURCE/ggml/src -DGGML_BACKEND_DL -D_GNU_SOURCE -MD -MF \$out.d -c \$in -o \$out"
    echo "  depfile = \$out.d"
    echo "  deps = gcc"
    echo "rule program"
    echo "  command = $host_compiler -o \$out \$in -rdynamic -lpthread -ldl -lm"
    echo "rule nvprogram"
    echo "  command = $NVCC $common -cudart static -o \$out \$in"
    host_objects=''
    for source in ggml.c ggml.cpp ggml-alloc.c ggml-backend.cpp ggml-backend-meta.cpp ggml-opt.cpp ggml-threading.cpp ggml-quants.c gguf.cpp ggml-backend-reg.cpp ggml-backend-dl.cpp; do
        echo "build host/$source.o: host $LLAMA_SOURCE/ggml/src/$source"
        case $source in *.c) echo "  std = -x c -std=c11" ;; *) echo "  std = -std=c++17" ;; esac
        host_objects+=" host/$source.o"
    done
    for test in op_compare gdn_compare gdn_graph mmq_compare mmq_graph_test; do
        echo "build host/$test.o: host $here/tests/$test.cpp"
        echo "  std = -std=c++17"
    done
    echo "build op_compare: program host/op_compare.o$host_objects"
    echo "build gdn_compare: program host/gdn_compare.o$host_objects"
    echo "build mmq_compare: program host/mmq_compare.o$host_objects"
    for search in gdn_in_place mmq_graph; do
        echo "build host/$search.o: host $here/src/$search.cu"
        echo "  std = -x c++ -std=c++17"
    done
    echo "build gdn_graph: program host/gdn_graph.o host/gdn_in_place.o$host_objects"
    echo "build mmq_graph_test: program host/mmq_graph_test.o host/mmq_graph.o$host_objects"
    for test in fattn_check gdn_check mmq_check; do echo "build ours/$test.o: nvcc $here/tests/$test.cu"; done
    echo "build fattn_check: nvprogram ours/fattn_check.o ours/fattn_quant.cu.o"
    echo "build gdn_check: nvprogram ours/gdn_check.o ours/gdn_chunks.cu.o ours/gdn_step.cu.o"
    echo "build mmq_check: nvprogram ours/mmq_check.o ours/mmq_small.cu.o"
    if [ -n "${LLAMA_INSTALL:-}" ]; then
        # Hosts the plug-in, so all of ggml is kept and exported.
        core="-L$LLAMA_INSTALL/lib -Wl,--start-group -lllama -lggml-cpu -Wl,--whole-archive -lggml-base -lggml -Wl,--no-whole-archive -Wl,--end-group"
        echo "rule model"
        echo "  command = $host_compiler -O2 -std=c++17 -I$LLAMA_INSTALL/include -MD -MF \$out.d -o \$out \$in -rdynamic $core -lpthread -ldl -lm"
        echo "  depfile = \$out.d"
        echo "build gdn_model: model $here/tests/gdn_model.cpp"
    fi
    echo "build libggml-cuda-sm$arch.so: link$objects"
    echo "build upstream/libggml-cuda-upstream.so: link$upstream_objects"
    echo "default libggml-cuda-sm$arch.so"
} >"$ninja.new"
# Unchanged rules keep the time stamp, so that nothing is built twice.
cmp -s "$ninja.new" "$ninja" && rm "$ninja.new" || mv "$ninja.new" "$ninja"
targets="libggml-cuda-sm$arch.so"
[ "$what" = tests ] && targets+=" fattn_check op_compare gdn_check gdn_compare gdn_graph mmq_check mmq_compare mmq_graph_test${LLAMA_INSTALL:+ gdn_model}"
[ "${FLAVOUR:-}" = upstream ] && targets+=" upstream/libggml-cuda-upstream.so"
ninja -C "$build" -j "$jobs" $targets >&2
echo "$build/libggml-cuda-sm$arch.so"
