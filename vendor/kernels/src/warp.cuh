// What a warp of NVIDIA's can do beyond C++: shuffles, matrix fragments, asynchronous copies, and how a kernel is started.
//
// For: the kernels of ours, which are compiled twice: by nvcc for a card, and by a host compiler with tests/emulate.h
// (PLATEAU_EMULATE), where every lane is a fibre and these functions meet in one place. Not for: arithmetic that plain C++
// has. Halves are kept as bits, two to a word, so that both compilers see the same types.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <mutex>

namespace plateau {

using half_bits = uint16_t;

} // namespace plateau

#ifdef PLATEAU_EMULATE
#include "emulate.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// The dynamic shared memory of a block, as bytes.
#define PLATEAU_SHARED(name) extern __shared__ __align__(16) char name[]
// An array in the static shared memory of a block.
#define PLATEAU_SHARED_ARRAY(type, name, sizes) __shared__ type name sizes

namespace plateau {

// A product that is not fused with the sum it goes into.
__device__ __forceinline__ float product(float x, float y) { return __fmul_rn(x, y); }
// e^x as the compiler's flags for this file have it.
__device__ __forceinline__ float exponential(float x) { return expf(x); }
// 2^x, approximate: 0 for -INFINITY and where it would be denormal.
__device__ __forceinline__ float power2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float shuffle_xor(float x, int lanes) { return __shfl_xor_sync(0xffffffff, x, lanes); }
__device__ __forceinline__ float shuffle_up(float x, int lanes) { return __shfl_up_sync(0xffffffff, x, lanes); }
__device__ __forceinline__ float shuffle_from(float x, int lane) { return __shfl_sync(0xffffffff, x, lane); }
__device__ __forceinline__ void sync_warp() { __syncwarp(); }
__device__ __forceinline__ void sync_block() { __syncthreads(); }
// As `sync_block`: whether any thread of the block said so.
__device__ __forceinline__ bool any_in_block(bool x) { return __syncthreads_or(x); }

// Byte i of the result is the one of the eight of `low` and `high` that digit i of `selector` names.
__device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) { return __byte_perm(low, high, selector); }

__device__ __forceinline__ half_bits to_half(float x) { return __half_as_ushort(__float2half_rn(x)); }
__device__ __forceinline__ float from_half(half_bits x) { return __half2float(__ushort_as_half(x)); }

// Arithmetic on the two halves of a word, each result rounded once.
__device__ __forceinline__ half2 as_half2(uint32_t x) { return *reinterpret_cast<half2 *>(&x); }
__device__ __forceinline__ uint32_t as_word(half2 x) { return *reinterpret_cast<uint32_t *>(&x); }
__device__ __forceinline__ uint32_t both_halves(float x) { return as_word(__float2half2_rn(x)); }
__device__ __forceinline__ uint32_t subtract_halves(uint32_t x, uint32_t y) { return as_word(__hsub2(as_half2(x), as_half2(y))); }
__device__ __forceinline__ uint32_t multiply_halves(uint32_t x, uint32_t y) { return as_word(__hmul2(as_half2(x), as_half2(y))); }
__device__ __forceinline__ uint32_t multiply_add_halves(uint32_t x, uint32_t y, uint32_t z) {
    return as_word(__hfma2(as_half2(x), as_half2(y), as_half2(z)));
}

// Two values as halves, `low` in the low bits; and back.
__device__ __forceinline__ uint32_t pack(float low, float high) {
    const half2 x = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&x);
}
__device__ __forceinline__ float low_half(uint32_t x) { return __half2float(__ushort_as_half(static_cast<uint16_t>(x & 0xffff))); }
__device__ __forceinline__ float high_half(uint32_t x) { return __half2float(__ushort_as_half(static_cast<uint16_t>(x >> 16))); }

// 2^exponent, for -126 to 127.
__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }
// The exponent of |x| as it is stored: -127 for zero and denormals, 128 for what is not finite.
__device__ __forceinline__ int exponent_of(float x) { return ((__float_as_int(x) >> 23) & 255) - 127; }

__device__ __forceinline__ uint32_t shared_place(const void * p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Four 8 x 8 matrices of halves; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const half_bits * row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_place(row)) : "memory");
}
__device__ __forceinline__ void load_matrices_turned(uint32_t (&r)[4], const half_bits * row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_place(row)) : "memory");
}

// c (16 x 8) += a (16 x 16) b (16 x 8), in f32.
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 16 bytes to shared memory, in the background.
__device__ __forceinline__ void copy_later(void * to, const void * from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_place(to)), "l"(from) : "memory");
}
// The same, of which only the first `bytes` (0 to 16) are read and the rest is zero.
__device__ __forceinline__ void copy_later(void * to, const void * from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_place(to)), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_8_later(void * to, const void * from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_place(to)), "l"(from) : "memory");
}
// All copies that this thread has started have arrived.
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// The copies that this thread has started since the last call are a group, be it empty.
__device__ __forceinline__ void close_copy_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// All groups but the NEWEST have arrived.
template <int NEWEST> __device__ __forceinline__ void wait_for_copy_groups() {
    asm volatile("cp.async.wait_group %0;" ::"n"(NEWEST) : "memory");
}

// d (16 x 8) = a (16 x 32) b (32 x 8) + c in 32-bit integers of signed bytes; `_16` with 16 in place of 32.
__device__ __forceinline__ void multiply_bytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int c) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(c));
}
__device__ __forceinline__ void multiply_bytes_16(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, int c) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(a0), "r"(a1), "r"(b), "r"(c));
}
// d (16 x 8) = a (16 x 16) b (16 x 8) of bfloat16, in f32.
__device__ __forceinline__ void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
// Two bfloat16 values less 128 each; exact for whole numbers of 7 bits above 128.
__device__ __forceinline__ uint32_t less_128_bf16(uint32_t x) {
    uint32_t y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(x), "r"(0x3f803f80u), "r"(0xc300c300u));
    return y;
}

__device__ __forceinline__ uint32_t bytes_of(uint32_t x, uint32_t y, uint32_t which) { return __byte_perm(x, y, which); }
// The low word of (high:low) >> bits, for 0 to 31 bits.
__device__ __forceinline__ uint32_t shift_pair(uint32_t low, uint32_t high, int bits) { return __funnelshift_r(low, high, bits); }
__device__ __forceinline__ float as_float(uint32_t x) { return __uint_as_float(x); }
// To the nearest bfloat16.
__device__ __forceinline__ uint16_t to_bf16(float x) { return __bfloat16_as_ushort(__float2bfloat16(x)); }
// Of memory that nothing writes while the kernel runs.
template <typename T> __device__ __forceinline__ T load_constant(const T * p) { return __ldg(p); }

// The launch before this one in the stream is done, and what it wrote can be read; what follows may be started meanwhile.
// Where a card knows no such launches both do nothing: the stream's order holds.
__device__ __forceinline__ void wait_for_earlier_launch() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_later_launch_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <typename P>
void start(void (*kernel)(P), dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream, const P & params) {
    kernel<<<grid, threads, shared_bytes, stream>>>(params);
}

// As `start`, for kernels that call `wait_for_earlier_launch` themselves: `early` lets them start before that.
template <typename P>
cudaError_t start_early(void (*kernel)(P), dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream, const P & params, bool early) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = early ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, params);
}

} // namespace plateau

#endif

namespace plateau {

constexpr int MOST_DEVICES = 64;
// What a block gets without asking.
constexpr size_t COMMON_SHARED_BYTES = 48 * 1024;

// Lets blocks of KERNEL have all the shared memory that the current device has for one. Asked for once a device; what came
// of it is the answer to every later call.
template <auto KERNEL> cudaError_t allow_shared_memory() {
    struct Request {
        std::once_flag made;
        cudaError_t result = cudaSuccess;
    };
    static Request requests[MOST_DEVICES];
    int device = 0;
    const cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) {
        return error;
    }
    if (device < 0 || device >= MOST_DEVICES) {
        return cudaErrorInvalidDevice;
    }
    Request & request = requests[device];
    std::call_once(request.made, [&] {
        int most = 0;
        cudaFuncAttributes attributes = {};
        request.result = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        if (request.result == cudaSuccess) {
            request.result = cudaFuncGetAttributes(&attributes, KERNEL);
        }
        if (request.result == cudaSuccess) {
            request.result = cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  most - static_cast<int>(attributes.sharedSizeBytes));
        }
    });
    return request.result;
}

template <auto KERNEL, typename P>
cudaError_t launch(dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream, const P & params) {
    if (shared_bytes > COMMON_SHARED_BYTES) {
        const cudaError_t error = allow_shared_memory<KERNEL>();
        if (error != cudaSuccess) {
            return error;
        }
    }
    start(KERNEL, grid, threads, shared_bytes, stream, params);
    return cudaGetLastError();
}

// The same with `start_early`.
template <auto KERNEL, typename P>
cudaError_t launch_early(dim3 grid, int threads, size_t shared_bytes, cudaStream_t stream, const P & params, bool early) {
    if (shared_bytes > COMMON_SHARED_BYTES) {
        const cudaError_t error = allow_shared_memory<KERNEL>();
        if (error != cudaSuccess) {
            return error;
        }
    }
    return start_early(KERNEL, grid, threads, shared_bytes, stream, params, early);
}

// Which row and column of a 16 x 16 tile of halves a lane names to `load_matrices`: as operand a (and as operand b when the
// tile is loaded turned), and as two b operands of 8 columns each.
__device__ __forceinline__ int row_as_a(int lane) { return (lane & 7) + 8 * ((lane >> 3) & 1); }
__device__ __forceinline__ int column_as_a(int lane) { return 8 * (lane >> 4); }
__device__ __forceinline__ int row_as_b(int lane) { return (lane & 7) + 8 * (lane >> 4); }
__device__ __forceinline__ int column_as_b(int lane) { return 8 * ((lane >> 3) & 1); }

// What `pack` has lost of both values, as halves again.
__device__ __forceinline__ uint32_t pack_rest(float low, float high, uint32_t packed) {
    return pack(low - low_half(packed), high - high_half(packed));
}

// The largest of |x| over the lanes of a warp, in every lane.
__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        x = fmaxf(x, shuffle_xor(x, lanes));
    }
    return x;
}

// The exponent by which values up to `largest` are scaled before they become halves: up to 2^12 then, so that neither the
// values overflow nor what `pack` leaves of them is denormal. Within 60 either way, where f32 has room for products.
__device__ __forceinline__ int half_scale(float largest) {
    const int exponent = 11 - exponent_of(largest);
    return exponent > 60 ? 60 : exponent < -60 ? -60 : exponent;
}

} // namespace plateau
