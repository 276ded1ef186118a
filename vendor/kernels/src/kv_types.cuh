// The formats in which K and V are read: block layouts of ggml, and how a lane turns its words into
// pairs of halves.
//
// For: the attention kernel over a quantized cache. Not for: writing a cache (upstream's set_rows
// does that). A tile row is read from shared memory as 32-bit words. Blocks of q4_0, q5_0 and q8_0
// have an even, not a fourfold number of bytes, so rows are handled in pairs of blocks (64 values):
// in a pair the first block's words straddle, the second's do not.
#pragma once

#include "warp.cuh"

namespace plateau {

enum class KvType : int { F16 = 0, Q8_0 = 1, Q5_0 = 2, Q4_1 = 3, Q4_0 = 4 };
constexpr int KV_TYPES = 5;

// Bytes of 32 values.
__host__ __device__ constexpr int block_bytes(KvType type) {
    return type == KvType::F16 ? 64 : type == KvType::Q8_0 ? 34 : type == KvType::Q5_0 ? 22 : type == KvType::Q4_1 ? 20 : 18;
}

// Words between rows of a tile in shared memory: 4 modulo 8 puts the 8 rows and 4 words that a warp
// reads into 32 banks.
__host__ __device__ constexpr int row_words(KvType type, int head) {
    return (head / 32 * block_bytes(type) / 4 + 3) / 8 * 8 + 4;
}

// The word of `pair`'s block `odd` that holds quants 4*k..4*k+3 (one byte each, or two nibbles
// each).
template <KvType type> __device__ __forceinline__ int quant_word(int pair, int odd, int k) {
    constexpr int pair_words = block_bytes(type) / 2;
    constexpr int even_first = type == KvType::Q5_0 || type == KvType::Q4_1 ? 1 : 0;
    constexpr int odd_first = type == KvType::Q8_0 ? 9 : type == KvType::Q5_0 ? 7 : type == KvType::Q4_1 ? 6 : 5;
    return pair * pair_words + (odd ? odd_first : even_first) + k;
}

// Quants 4*k..4*k+3 of a block, put together from two words where the block straddles.
template <KvType type> __device__ __forceinline__ uint32_t quants(const uint32_t * row, int pair, int odd, int k) {
    const int at = quant_word<type>(pair, odd, k);
    if constexpr (type == KvType::Q4_1) {
        return row[at];
    } else {
        // The second word of a block that does not straddle is the next row's: not read, it may be
        // in the making.
        return permute_bytes(row[at], row[at + 1 - odd], odd ? 0x3210 : 0x5432);
    }
}

// As `quants`, for a block whose parity the compiler knows: no second load where none is needed.
template <KvType type, int odd> __device__ __forceinline__ uint32_t quants_of(const uint32_t * row, int pair, int k) {
    const int at = quant_word<type>(pair, odd, k);
    if constexpr (type == KvType::Q4_1 || odd) {
        return row[at];
    } else {
        return permute_bytes(row[at], row[at + 1], 0x5432);
    }
}

// The first four bytes of a block: the scale in the low half; for q4_1 the minimum in the high
// half.
template <KvType type> __device__ __forceinline__ uint32_t block_head(const uint32_t * row, int pair, int odd) {
    if constexpr (type == KvType::Q4_1) {
        return row[pair * 10 + odd * 5];
    } else {
        const uint16_t * halves = reinterpret_cast<const uint16_t *>(row);
        return halves[(2 * pair + odd) * (block_bytes(type) / 2)];
    }
}

// The fifth bits of a q5_0 block.
__device__ __forceinline__ uint32_t fifth_bits(const uint32_t * row, int pair, int odd) {
    const int at = pair * 11 + (odd ? 6 : 0);
    return permute_bytes(row[at], row[at + 1 - odd], odd ? 0x3210 : 0x5432);
}

// 0x6400 is 1024, whose unit in the last place is 1: an integer below 1024 or-ed into it is 1024 +
// the integer, exactly.
constexpr uint32_t MAGIC = 0x64006400;

// The low nibble of each 16-bit half as (q - zero) * d. `fifth`: bits 4 and 20, or 0.
template <int zero> __device__ __forceinline__ uint32_t low_nibbles(uint32_t x, uint32_t fifth, uint32_t d) {
    const uint32_t q = subtract_halves((x & 0x000f000f) | fifth | MAGIC, both_halves(1024.0f + zero));
    return multiply_halves(q, d);
}

// Bits 4 to 7 of each half as (q - zero) * d: 1024 + 16 q, and a sixteenth of it is exact.
template <int zero> __device__ __forceinline__ uint32_t high_nibbles(uint32_t x, uint32_t d) {
    const uint32_t q = multiply_add_halves((x & 0x00f000f0) | MAGIC, both_halves(0.0625f), both_halves(-64.0f - zero));
    return multiply_halves(q, d);
}

__device__ __forceinline__ uint32_t low_nibbles_min(uint32_t x, uint32_t d, uint32_t m) {
    const uint32_t q = subtract_halves((x & 0x000f000f) | MAGIC, both_halves(1024.0f));
    return multiply_add_halves(q, d, m);
}

__device__ __forceinline__ uint32_t high_nibbles_min(uint32_t x, uint32_t d, uint32_t m) {
    const uint32_t q = multiply_add_halves((x & 0x00f000f0) | MAGIC, both_halves(0.0625f), both_halves(-64.0f));
    return multiply_add_halves(q, d, m);
}

// Two bytes, each in the low byte of a half, biased by 128, as q * d.
__device__ __forceinline__ uint32_t biased_bytes(uint32_t with_magic, uint32_t d) {
    return multiply_halves(subtract_halves(with_magic, both_halves(1152.0f)), d);
}

// Where value `e` (0..15) of a 16-value step stands in the query row, so that the order of the
// query is the order in which `key_step` delivers the key: for quants a lane's word holds values
// 4t..4t+3, taken as (0, 2) and (1, 3).
__device__ __forceinline__ int query_place(KvType type, int e) {
    if (type == KvType::F16) {
        return e;
    }
    const int t = e >> 2, r = e & 3;
    return 2 * t + (r & 1) * 8 + (r >> 1);
}

// One lane's share of 32 values of a key row: out[step][0] for the low, out[step][1] for the high
// half of each 16-value step.
template <KvType type, int odd>
__device__ __forceinline__ void key_block(const uint32_t * row, int pair, int t, uint32_t (&out)[2][2]) {
    if constexpr (type == KvType::F16) {
        const uint32_t * block = row + pair * 32 + odd * 16;
        out[0][0] = block[t];
        out[0][1] = block[t + 4];
        out[1][0] = block[t + 8];
        out[1][1] = block[t + 12];
    } else {
        const uint32_t head = block_head<type>(row, pair, odd);
        const uint32_t d = permute_bytes(head, head, 0x1010);
        if constexpr (type == KvType::Q8_0) {
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                const uint32_t u = quants_of<type, odd>(row, pair, 4 * step + t) ^ 0x80808080;
                out[step][0] = biased_bytes(permute_bytes(u, 0x64646464, 0x4240), d);
                out[step][1] = biased_bytes(permute_bytes(u, 0x64646464, 0x4341), d);
            }
        } else {
            const uint32_t w = quants_of<type, odd>(row, pair, t);
            if constexpr (type == KvType::Q4_0) {
                out[0][0] = low_nibbles<8>(w, 0, d);
                out[0][1] = low_nibbles<8>(w >> 8, 0, d);
                out[1][0] = high_nibbles<8>(w, d);
                out[1][1] = high_nibbles<8>(w >> 8, d);
            } else if constexpr (type == KvType::Q4_1) {
                const uint32_t m = permute_bytes(head, head, 0x3232);
                out[0][0] = low_nibbles_min(w, d, m);
                out[0][1] = low_nibbles_min(w >> 8, d, m);
                out[1][0] = high_nibbles_min(w, d, m);
                out[1][1] = high_nibbles_min(w >> 8, d, m);
            } else {
                const uint32_t bits = fifth_bits(row, pair, odd);
#pragma unroll
                for (int step = 0; step < 2; ++step) {
                    const uint32_t h = bits >> (16 * step + 4 * t);
                    const uint32_t x = step ? w >> 4 : w;
                    out[step][0] = low_nibbles<16>(x, ((h << 4) & 0x10) | ((h << 18) & 0x100000), d);
                    out[step][1] = low_nibbles<16>(x >> 8, ((h << 3) & 0x10) | ((h << 17) & 0x100000), d);
                }
            }
        }
    }
}

// Which value of its warp's slice of HEAD / 4 the lane group `g` holds as element 4 * q of a value
// row: elements come in runs of four.
template <KvType type, int HEAD> __device__ __forceinline__ int value_place(int g, int q) {
    constexpr bool nibbles = type == KvType::Q4_0 || type == KvType::Q4_1 || type == KvType::Q5_0;
    if constexpr (HEAD == 128) {
        return nibbles ? 16 * (g >> 2) + 4 * (g & 3) : 4 * g;
    } else {
        return nibbles ? 32 * (g >> 2) + 4 * (g & 3) + 16 * q : 8 * g + 4 * q;
    }
}

// Elements of two value rows side by side: out[e] = (row0[e], row1[e]) for the HEAD / 32 elements
// of lane group `g` in the slice of `warp`.
template <KvType type, int HEAD>
__device__ __forceinline__ void value_pair(const uint32_t * row0, const uint32_t * row1, int warp, int g,
                                           uint32_t (&out)[HEAD / 32]) {
    constexpr int N = HEAD / 32;
    if constexpr (type == KvType::F16) {
#pragma unroll
        for (int i = 0; i < N / 4; ++i) {
            const int at = warp * (HEAD / 8) + g * (N / 2) + 2 * i;
            const uint2 a = *reinterpret_cast<const uint2 *>(row0 + at);
            const uint2 b = *reinterpret_cast<const uint2 *>(row1 + at);
            out[4 * i + 0] = permute_bytes(a.x, b.x, 0x5410);
            out[4 * i + 1] = permute_bytes(a.x, b.x, 0x7632);
            out[4 * i + 2] = permute_bytes(a.y, b.y, 0x5410);
            out[4 * i + 3] = permute_bytes(a.y, b.y, 0x7632);
        }
    } else {
        const int pair = HEAD == 256 ? warp : warp >> 1;
        const int odd = HEAD == 256 ? g >> 2 : warp & 1;
        const uint32_t head0 = block_head<type>(row0, pair, odd);
        const uint32_t head1 = block_head<type>(row1, pair, odd);
        const uint32_t d = permute_bytes(head0, head1, 0x5410);
        if constexpr (type == KvType::Q8_0) {
#pragma unroll
            for (int i = 0; i < N / 4; ++i) {
                const int k = HEAD == 256 ? 2 * (g & 3) + i : g;
                const uint32_t a = quants<type>(row0, pair, odd, k) ^ 0x80808080;
                const uint32_t b = quants<type>(row1, pair, odd, k) ^ 0x80808080;
                const uint32_t lo = permute_bytes(a, b, 0x5140), hi = permute_bytes(a, b, 0x7362);
                out[4 * i + 0] = biased_bytes(permute_bytes(lo, 0x64646464, 0x4140), d);
                out[4 * i + 1] = biased_bytes(permute_bytes(lo, 0x64646464, 0x4342), d);
                out[4 * i + 2] = biased_bytes(permute_bytes(hi, 0x64646464, 0x4140), d);
                out[4 * i + 3] = biased_bytes(permute_bytes(hi, 0x64646464, 0x4342), d);
            }
        } else {
            const uint32_t a = quants<type>(row0, pair, odd, g & 3);
            const uint32_t b = quants<type>(row1, pair, odd, g & 3);
            // Bytes 0 and 1 of both rows, then bytes 2 and 3.
            uint32_t x[2] = { permute_bytes(a, b, 0x5410), permute_bytes(a, b, 0x7632) };
            uint32_t bits[2] = { 0, 0 };
            uint32_t m = d;
            if constexpr (type == KvType::Q4_1) {
                m = permute_bytes(head0, head1, 0x7632);
            }
            if constexpr (type == KvType::Q5_0) {
                const uint32_t h0 = fifth_bits(row0, pair, odd) >> (4 * (g & 3));
                const uint32_t h1 = fifth_bits(row1, pair, odd) >> (4 * (g & 3));
                bits[0] = permute_bytes(h0, h1, 0x5410);
                bits[1] = permute_bytes(h0, h1, 0x7632);
            }
            if constexpr (HEAD == 128) {
                // Two lane groups share a word: the upper four take its high nibbles.
                const int shift = g & 4;
                x[0] >>= shift;
                x[1] >>= shift;
                bits[0] = shift ? bits[1] : bits[0];
            }
#pragma unroll
            for (int e = 0; e < N; ++e) {
                const uint32_t w = (e & 1) ? x[(e >> 1) & 1] >> 8 : x[(e >> 1) & 1];
                if constexpr (type == KvType::Q5_0) {
                    const uint32_t fifth = (bits[e >> 2] << (4 - (e & 3))) & 0x00100010;
                    out[e] = low_nibbles<16>(e < 4 ? w : w >> 4, fifth, d);
                } else if constexpr (type == KvType::Q4_1) {
                    out[e] = e < 4 ? low_nibbles_min(w, d, m) : high_nibbles_min(w, d, m);
                } else {
                    out[e] = e < 4 ? low_nibbles<8>(w, 0, d) : high_nibbles<8>(w, d);
                }
            }
        }
    }
}

} // namespace plateau
