// Inputs for the tests of the attention kernel: calls, masks, and blocks of each format, decoded
// one value at a time.
//
// For: fattn_emulate.cpp (host) and fattn_check.cu (card). Shares no code with the kernel.
#pragma once

#include "../src/fattn_quant.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>

namespace plateau {

constexpr int FORMATS = 5; // as KvType numbers them
static const char * const NAMES[FORMATS] = { "f16", "q8_0", "q5_0", "q4_1", "q4_0" };
static const int BYTES[FORMATS] = { 64, 34, 22, 20, 18 }; // of 32 values

__host__ __device__ inline uint32_t mix(uint64_t x) {
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdull;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ull;
    x ^= x >> 33;
    return static_cast<uint32_t>(x);
}

__host__ __device__ inline float normal(uint64_t seed) {
    const float a = (mix(seed * 2 + 1) + 1.0f) / 4294967808.0f, b = mix(seed * 2 + 2) / 4294967296.0f;
    return sqrtf(-2.0f * logf(a)) * cosf(6.2831853f * b);
}

__host__ __device__ inline double half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, rest = bits & 1023;
    const double least = 1.0 / (1 << 24);
    const double size = exponent == 31 ? (rest ? NAN : INFINITY) : exponent ? (1024.0 + rest) * least * (1 << (exponent - 1)) : rest * least;
    return bits & 0x8000 ? -size : size;
}

__host__ __device__ inline int word_at(const uint8_t * b) { return b[0] | b[1] << 8; }

// Value `n` of the 32 of a block.
__host__ __device__ inline double value_of(int type, const uint8_t * b, int n) {
    const double scale = half_value(static_cast<uint16_t>(word_at(b)));
    switch (type) {
        case 0: return half_value(static_cast<uint16_t>(word_at(b + 2 * n)));
        case 1: return scale * static_cast<int8_t>(b[2 + n]);
        case 2: {
            const uint32_t bits = b[2] | b[3] << 8 | b[4] << 16 | static_cast<uint32_t>(b[5]) << 24;
            const int q = (n < 16 ? b[6 + n] & 15 : b[6 + n - 16] >> 4) | (bits >> n & 1) << 4;
            return scale * (q - 16);
        }
        case 3: return scale * (n < 16 ? b[4 + n] & 15 : b[4 + n - 16] >> 4) + half_value(static_cast<uint16_t>(word_at(b + 2)));
        default: return scale * ((n < 16 ? b[2 + n] & 15 : b[2 + n - 16] >> 4) - 8);
    }
}

// Value `d` of a row of blocks.
__host__ __device__ inline double value_at(int type, const uint8_t * row, int d, int bytes) {
    return value_of(type, row + d / 32 * bytes, d % 32);
}

// Block `i` at `b`: random, of values with a standard deviation near 1. `to_half` gives the bits of
// the nearest half.
template <typename F> __host__ __device__ void fill_block(int type, uint8_t * b, int bytes, uint64_t seed, int64_t i, F to_half) {
    auto put = [&](int at, float x) {
        const uint16_t bits = to_half(x);
        b[at] = bits & 255;
        b[at + 1] = bits >> 8;
    };
    if (type == 0) {
        for (int n = 0; n < 32; ++n) {
            put(2 * n, normal(seed + i * 32 + n));
        }
        return;
    }
    for (int n = 0; n < bytes; ++n) {
        b[n] = static_cast<uint8_t>(mix(seed + i * 64 + n) >> 11);
    }
    const float unit = type == 1 ? 0.0135f : type == 2 ? 0.108f : 0.217f;
    const float d = unit * (0.5f + mix(seed + i * 64 + 60) / 4294967296.0f);
    put(0, d);
    if (type == 3) {
        put(2, -7.5f * d);
    }
}

// HIDDEN: every third token sees nothing, the others runs of 200 cells. RISING: a bias by which
// later cells weigh more, so that the maximum moves at every tile.
enum Mask { CAUSAL, HOLES, LONE, SEQUENCES, BIAS, HIDDEN, RISING, MASKS };
static const char * const MASK_NAMES[MASKS] = { "causal", "holes", "lone", "sequences", "bias", "hidden", "rising" };

// What is added to the score of a cell: -INFINITY where it is not seen. `i`: the number of the
// mask's element.
__host__ __device__ inline float bias_of(int kind, int cell, int token, int cells, int tokens, uint64_t seed, int64_t i) {
    const uint32_t r = mix(seed + i);
    bool seen = cell <= cells - 1 - (tokens - 1 - token) % cells;
    float bias = 0.0f;
    if (kind == HOLES) {
        seen = seen && r % 10 < 7;
    } else if (kind == LONE) { // one cell a token
        seen = cell == static_cast<int>(mix(seed + token * 77) % cells);
    } else if (kind == SEQUENCES) { // cells of three sequences in runs of 100
        seen = cell / 100 % 3 == token % 3;
    } else if (kind == BIAS) {
        bias = -static_cast<float>(r % 1000) / 250.0f;
    } else if (kind == HIDDEN) {
        seen = token % 3 != 1 && (cell / 200 + token) % 2 == 0;
    } else if (kind == RISING) {
        bias = 0.125f * static_cast<float>(cell % 512);
    }
    return seen ? bias : -INFINITY;
}

struct Case {
    int head_dim, heads, kv_heads, tokens, cells, type_k, type_v, mask, streams, mask_streams;
    float query_size;

    std::string text() const {
        char text[200];
        snprintf(text, sizeof text, "D=%d heads=%d/%d T=%d cells=%d %s/%s mask=%s streams=%d/%d q=%g", head_dim, heads, kv_heads, tokens, cells,
                 NAMES[type_k], NAMES[type_v], MASK_NAMES[mask], streams, mask_streams, static_cast<double>(query_size));
        return text;
    }
};

// Sizes and strides of a case, no pointers. As in a cache: cells one after the other, heads within
// a cell. `gap`: bytes between rows, a multiple of 16.
inline FattnArgs sizes_of(const Case & c, int gap = 0) {
    FattnArgs a = {};
    a.head_dim = c.head_dim;
    a.tokens = c.tokens;
    a.heads = c.heads;
    a.kv_heads = c.kv_heads;
    a.cells = c.cells;
    a.streams = c.streams;
    a.mask_streams = c.mask_streams;
    a.type_k = c.type_k;
    a.type_v = c.type_v;
    a.scale = 1.0f / sqrtf(static_cast<float>(c.head_dim));
    a.k_head = c.head_dim / 32 * BYTES[c.type_k] + gap;
    a.k_cell = a.k_head * c.kv_heads + gap;
    a.k_stream = a.k_cell * c.cells;
    a.v_head = c.head_dim / 32 * BYTES[c.type_v] + gap;
    a.v_cell = a.v_head * c.kv_heads + gap;
    a.v_stream = a.v_cell * c.cells;
    a.q_head = c.head_dim * 4 + gap;
    a.q_token = a.q_head * c.heads + gap;
    a.q_stream = a.q_token * c.tokens;
    a.mask_token = static_cast<int64_t>(c.cells) * 2 + gap;
    a.mask_stream = a.mask_token * c.tokens;
    return a;
}

} // namespace plateau
