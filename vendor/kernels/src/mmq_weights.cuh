// How mmq_small.cu reads 256 weights of 16 rows from shared memory: bytes for mma.m16n8k32, and their scales.
//
// Each format has the bytes of 256 weights, the 16-byte pieces that hold them wherever they begin, the bytes from row to
// row in shared memory (8 rows of 16 bytes fall into different banks), and `add`: c += weights x columns. A lane (g, t) of a
// warp has rows g and g + 8, of each block of 32 weights the bytes 4 t .. 4 t + 3 and 16 + 4 t .. 16 + 4 t + 3, and of the
// products the columns 2 t and 2 t + 1. Sums of products are whole numbers below 2^22: added to 1.5 * 2^23 they are floats
// already, and taking that away again is cheaper than a conversion.
#pragma once

#include "mmq_small.h"
#include "warp.cuh"

namespace plateau {

constexpr int WHOLE = 0x4b400000; // 1.5 * 2^23 as bits
__device__ __forceinline__ float whole(int x) { return as_float(static_cast<uint32_t>(x)) - 12582912.0f; }

// Byte `which` of a word, as a number.
__device__ __forceinline__ float byte_value(uint32_t word, int which) { return as_float(bytes_of(word, 0x4b000000u, 0x7440u | which)) - 8388608.0f; }
// Of a signed byte whose highest bit has been turned over.
__device__ __forceinline__ float signed_byte_value(uint32_t word, int which) { return as_float(bytes_of(word, 0x4b000000u, 0x7440u | which)) - 8388736.0f; }

// Columns of 256 values as lanes hold them.
struct Columns {
    uint4 q[4];  // blocks 2 i and 2 i + 1 of 32: bytes 4 t.., 16 + 4 t.. of each
    float4 d[4]; // their scales: of column 2 t (block 2 i, 2 i + 1), of column 2 t + 1
    uint2 sum;   // sums of blocks 2 t and 2 t + 1 as bfloat16, and what that lost
};

__device__ __forceinline__ uint32_t word_at(const char * p) { return *reinterpret_cast<const uint32_t *>(p); }
// A row of words that begin at an even address.
struct EvenWords {
    const uint32_t * from;
    int bits;
    __device__ __forceinline__ EvenWords(const uint32_t * from_, int bits_) : from(from_), bits(bits_) {}
    __device__ __forceinline__ explicit EvenWords(const char * p) {
        const int odd = static_cast<int>(reinterpret_cast<uintptr_t>(p)) & 2;
        from = reinterpret_cast<const uint32_t *>(p - odd);
        bits = 8 * odd;
    }
    __device__ __forceinline__ uint32_t operator[](int i) const { return shift_pair(from[i], from[i + 1], bits); }
};
__device__ __forceinline__ uint32_t half_word_at(const char * p) { return *reinterpret_cast<const uint16_t *>(p); }

// One block of 32: sum += scale of row and column times the sum of products.
__device__ __forceinline__ void add_block(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, float low, float high, float left, float right) {
    int d[4];
    multiply_bytes(d, a, b0, b1, WHOLE);
    sum[0] += whole(d[0]) * left * low;
    sum[1] += whole(d[1]) * right * low;
    sum[2] += whole(d[2]) * left * high;
    sum[3] += whole(d[3]) * right * high;
}

// Scales and minima of Q4_K and Q5_K: 8 of 6 bits each, as bytes.
struct Scales {
    uint32_t scale[2], least[2];
    float d, least_d;
    __device__ __forceinline__ explicit Scales(const char * row) {
        const uint4 w = *reinterpret_cast<const uint4 *>(row);
        d = low_half(w.x);
        least_d = high_half(w.x);
        scale[0] = w.y & 0x3f3f3f3fu;
        least[0] = w.z & 0x3f3f3f3fu;
        scale[1] = (w.w & 0x0f0f0f0fu) | (w.y >> 2 & 0x30303030u);
        least[1] = (w.w >> 4 & 0x0f0f0f0fu) | (w.z >> 2 & 0x30303030u);
    }
    // Minima 2 t and 2 t + 1 as two bfloat16.
    __device__ __forceinline__ uint32_t pair(int t) const {
        return less_128_bf16(bytes_of(t & 2 ? least[1] : least[0], 0x43434343u, t & 1 ? 0x4342u : 0x4140u));
    }
};

template <WeightType type> struct Weights;

// Q4_K, and Q5_K with a fifth bit: 32 bytes are the low and high nibbles of two blocks.
template <bool fifth> struct WeightsWithLeast {
    static constexpr int BYTES = fifth ? 176 : 144, PIECES = BYTES / 16, STRIDE = BYTES;
    static constexpr bool ALIGNED = true;
    template <int NT> static __device__ __forceinline__ void add(float (&c)[NT][4], const char * low_row, const char * high_row, int t, const Columns (&x)[NT]) {
        const Scales low(low_row), high(high_row);
        const uint32_t least[4] = { low.pair(t), high.pair(t), low.pair(t), high.pair(t) };
        const char * low_q = low_row + BYTES - 128 + 4 * t;
        const char * high_q = high_row + BYTES - 128 + 4 * t;
        uint32_t h[4];
        if (fifth) {
            h[0] = word_at(low_row + 16 + 4 * t);
            h[1] = word_at(high_row + 16 + 4 * t);
            h[2] = word_at(low_row + 32 + 4 * t);
            h[3] = word_at(high_row + 32 + 4 * t);
        }
        float sum[NT][4] = {};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint32_t q[4] = { word_at(low_q + 32 * i), word_at(high_q + 32 * i), word_at(low_q + 32 * i + 16), word_at(high_q + 32 * i + 16) };
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                const int block = 2 * i + n;
                uint32_t a[4];
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    a[e] = (n ? q[e] >> 4 : q[e]) & 0x0f0f0f0fu;
                    if (fifth) {
                        a[e] |= (block < 4 ? h[e] << (4 - block) : h[e] >> (block - 4)) & 0x10101010u;
                    }
                }
                const float low_d = byte_value(low.scale[block / 4], block % 4), high_d = byte_value(high.scale[block / 4], block % 4);
#pragma unroll
                for (int j = 0; j < NT; ++j) {
                    const uint4 b = x[j].q[i];
                    const float4 d = x[j].d[i];
                    add_block(sum[j], a, n ? b.z : b.x, n ? b.w : b.y, low_d, high_d, n ? d.y : d.x, n ? d.w : d.z);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < NT; ++j) {
            float taken[4];
            multiply_bf16(taken, least, x[j].sum.x, x[j].sum.y);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                c[j][e] += (e < 2 ? low.d : high.d) * sum[j][e] - (e < 2 ? low.least_d : high.least_d) * taken[e];
            }
        }
    }
};
template <> struct Weights<WeightType::Q4_K> : WeightsWithLeast<false> {};
template <> struct Weights<WeightType::Q5_K> : WeightsWithLeast<true> {};

// 128 bytes of low nibbles, 64 of two high bits, 16 scales of 8 bits for 16 weights each, d. Begins at any even address.
template <> struct Weights<WeightType::Q6_K> {
    static constexpr int BYTES = 210, PIECES = 14, STRIDE = 240;
    static constexpr bool ALIGNED = false;
    // 4 weights, 4 times each, from a nibble at bit 2 of a byte and two bits at bit 6: the highest bit turned over takes 32 off.
    static __device__ __forceinline__ uint32_t four(uint32_t nibbles, uint32_t bits) {
        return (nibbles & 0x3c3c3c3cu) | ((bits & 0xc0c0c0c0u) ^ 0x80808080u);
    }
    template <int NT> static __device__ __forceinline__ void add(float (&c)[NT][4], const char * low_row, const char * high_row, int t, const Columns (&x)[NT]) {
        const float low_d = 0.25f * low_half(half_word_at(low_row + 208)), high_d = 0.25f * low_half(half_word_at(high_row + 208));
        const EvenWords rows[2] = { EvenWords(low_row), EvenWords(high_row) };
        float sum[NT][4] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            uint32_t q[2][4], bits[2][2], scale[2][2];
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                const EvenWords own(rows[r].from + t, rows[r].bits);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    q[r][i] = own[16 * half + 4 * i];
                }
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    bits[r][i] = own[32 + 8 * half + 4 * i];
                    scale[r][i] = rows[r][48 + 2 * half + i] ^ 0x80808080u;
                }
            }
#pragma unroll
            for (int n = 0; n < 4; ++n) { // block 4 half + n of 32, in two halves of 16
                uint32_t a[2][2]; // half, row
                float d[2][2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
#pragma unroll
                    for (int r = 0; r < 2; ++r) {
                        const uint32_t nibbles = q[r][2 * (n & 1) + i];
                        a[i][r] = four(n < 2 ? nibbles << 2 : nibbles >> 2, bits[r][i] << (6 - 2 * n));
                        d[i][r] = signed_byte_value(scale[r][n / 2], 2 * (n & 1) + i);
                    }
                }
#pragma unroll
                for (int j = 0; j < NT; ++j) {
                    const uint4 b = x[j].q[2 * half + n / 2];
                    const float4 s = x[j].d[2 * half + n / 2];
                    int first[4], second[4];
                    multiply_bytes_16(first, a[0][0], a[0][1], n & 1 ? b.z : b.x, WHOLE);
                    multiply_bytes_16(second, a[1][0], a[1][1], n & 1 ? b.w : b.y, WHOLE);
                    const float left = n & 1 ? s.y : s.x, right = n & 1 ? s.w : s.z;
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const int r = e / 2;
                        sum[j][e] += (whole(first[e]) * d[0][r] + whole(second[e]) * d[1][r]) * (e & 1 ? right : left);
                    }
                }
            }
        }
#pragma unroll
        for (int j = 0; j < NT; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                c[j][e] += (e < 2 ? low_d : high_d) * sum[j][e];
            }
        }
    }
};

// d, 8 scales of 6 bits, 128 bytes of nibbles that stand for 16 values; block i of 32 is 16 bytes. Begins at any multiple of 8.
template <> struct Weights<WeightType::IQ4_XS> {
    static constexpr int BYTES = 136, PIECES = 9, STRIDE = 144;
    static constexpr bool ALIGNED = false;
    // Two bits at bits 0, 4, 8 and 12, as bits 4 and 5 of four bytes.
    static __device__ __forceinline__ uint32_t spread(uint32_t x) {
        x &= 0x3333u;
        x = (x | x << 8) & 0x00ff00ffu;
        return (x << 4 | x << 8) & 0x30303030u;
    }
    static __device__ __forceinline__ void scales_of(const uint2 w, uint32_t (&scale)[2]) {
        scale[0] = (w.y & 0x0f0f0f0fu) | spread(w.x >> 16);
        scale[1] = (w.y >> 4 & 0x0f0f0f0fu) | spread(w.x >> 18);
    }
    // The values of 8 nibbles: the low ones of the 4 bytes, and the high ones.
    static __device__ __forceinline__ void eight(uint32_t q, uint32_t & low, uint32_t & high) {
        // -127 -104 -83 -65 | -49 -35 -22 -10 | 1 13 25 38 | 53 69 89 113
        constexpr uint32_t v0 = 0xbfad9881u, v1 = 0xf6eaddcfu, v2 = 0x26190d01u, v3 = 0x71594535u;
        const uint32_t eighth = (q >> 1 & 0x44444444u) | 0x32103210u, index = q & 0x77777777u;
        const uint32_t x = bytes_of(bytes_of(v0, v1, index), bytes_of(v2, v3, index), eighth);
        const uint32_t y = bytes_of(bytes_of(v0, v1, index >> 16), bytes_of(v2, v3, index >> 16), eighth >> 16);
        low = bytes_of(x, y, 0x6420u);
        high = bytes_of(x, y, 0x7531u);
    }
    template <int NT> static __device__ __forceinline__ void add(float (&c)[NT][4], const char * low_row, const char * high_row, int t, const Columns (&x)[NT]) {
        const uint2 low = *reinterpret_cast<const uint2 *>(low_row), high = *reinterpret_cast<const uint2 *>(high_row);
        uint32_t low_scale[2], high_scale[2]; // of even and of odd blocks, a byte each
        scales_of(low, low_scale);
        scales_of(high, high_scale);
        float sum[NT][4] = {};
#pragma unroll
        for (int block = 0; block < 8; ++block) {
            uint32_t a[4];
            eight(word_at(low_row + 8 + 16 * block + 4 * t), a[0], a[2]);
            eight(word_at(high_row + 8 + 16 * block + 4 * t), a[1], a[3]);
            const float low_d = byte_value(low_scale[block & 1], block / 2) - 32.0f, high_d = byte_value(high_scale[block & 1], block / 2) - 32.0f;
#pragma unroll
            for (int j = 0; j < NT; ++j) {
                const uint4 b = x[j].q[block / 2];
                const float4 d = x[j].d[block / 2];
                const bool n = block & 1;
                add_block(sum[j], a, n ? b.z : b.x, n ? b.w : b.y, low_d, high_d, n ? d.y : d.x, n ? d.w : d.z);
            }
        }
#pragma unroll
        for (int j = 0; j < NT; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                c[j][e] += low_half(e < 2 ? low.x : high.x) * sum[j][e];
            }
        }
    }
};

// 8 blocks of d and 32 bytes.
template <> struct Weights<WeightType::Q8_0> {
    static constexpr int BYTES = 272, PIECES = 17, STRIDE = 272;
    static constexpr bool ALIGNED = true;
    static __device__ __forceinline__ uint32_t word(const char * p, int block) {
        return block & 1 ? word_at(p) : shift_pair(word_at(p - 2), word_at(p + 2), 16);
    }
    template <int NT> static __device__ __forceinline__ void add(float (&c)[NT][4], const char * low_row, const char * high_row, int t, const Columns (&x)[NT]) {
#pragma unroll
        for (int block = 0; block < 8; ++block) {
            const char * low = low_row + 34 * block + 2 + 4 * t;
            const char * high = high_row + 34 * block + 2 + 4 * t;
            const uint32_t a[4] = { word(low, block), word(high, block), word(low + 16, block), word(high + 16, block) };
            const float low_d = low_half(half_word_at(low_row + 34 * block)), high_d = low_half(half_word_at(high_row + 34 * block));
#pragma unroll
            for (int j = 0; j < NT; ++j) {
                const uint4 b = x[j].q[block / 2];
                const float4 d = x[j].d[block / 2];
                const bool n = block & 1;
                add_block(c[j], a, n ? b.z : b.x, n ? b.w : b.y, low_d, high_d, n ? d.y : d.x, n ? d.w : d.z);
            }
        }
    }
};

} // namespace plateau
