// Phases between the two products: mask, weights as f16 in shared memory, running maximum, sums
// over the warps.
#pragma once

#include "fattn_params.cuh"

namespace plateau {

// Where the two columns of this lane find their token's mask beside the tile, in halves: one in
// each half of a word.
template <int NT> __device__ __forceinline__ void place_masks(const AttentionParams & p, Place at, int row0, int token0, uint32_t (&mask_at)[NT]) {
#pragma unroll
    for (int j = 0; j < NT; ++j) {
        const int a = min((row0 + 8 * j + 2 * at.t) / p.group, p.a.tokens - 1) - token0;
        const int b = min((row0 + 8 * j + 2 * at.t + 1) / p.group, p.a.tokens - 1) - token0;
        mask_at[j] = a * MASK_STRIDE | b * MASK_STRIDE << 16;
    }
}

// Adds the mask to the scores; true where one rises too far above its row's running maximum.
template <int NT>
__device__ __forceinline__ bool mask_scores(Place at, const half_bits * mask, const uint32_t (&mask_at)[NT], const float (&m)[NT][2], float (&s)[NT][4]) {
    bool rises = false;
    const half_bits * tile_mask = mask + 16 * at.warp + at.g;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const int column = (c & 1) ? mask_at[j] >> 16 : mask_at[j] & 0xffff;
            const float bias = from_half(tile_mask[column + (c >> 1) * 8]);
            s[j][c] = bias == -INFINITY ? -INFINITY : fmaf(bias, LOG2E, s[j][c]);
            rises |= s[j][c] > m[j][c & 1] + SLACK;
        }
    }
    return rises;
}

// exp2(s - m) as f16 into shared memory, [query row][cell]; `sum` is what was stored.
template <int NT>
__device__ __forceinline__ void store_weights(Place at, half_bits * p, const float (&s)[NT][4], const float (&m)[NT][2], float (&sum)[NT][2]) {
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const float top = m[j][c] == -INFINITY ? 0.0f : m[j][c];
            const half_bits low = to_half(power2(s[j][c] - top));
            const half_bits high = to_half(power2(s[j][c + 2] - top));
            half_bits * row = p + (8 * j + 2 * at.t + c) * P_STRIDE + 16 * at.warp + at.g;
            row[0] = low;
            row[8] = high;
            sum[j][c] = from_half(low) + from_half(high);
        }
    }
}

// The largest score of each query row among this warp's cells, [warp][query row].
template <int NT> __device__ __forceinline__ void store_warp_tops(Place at, float * warp_rows, const float (&s)[NT][4]) {
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            float top = fmaxf(s[j][c], s[j][c + 2]);
#pragma unroll
            for (int lanes = 4; lanes < 32; lanes *= 2) {
                top = fmaxf(top, shuffle_xor(top, lanes));
            }
            if (at.g == 0) {
                warp_rows[at.warp * 8 * NT + 8 * j + 2 * at.t + c] = top;
            }
        }
    }
}

// Moves the running maximum to the largest score of all warps and shrinks what was added up below
// it.
template <int HEAD, int NT> __device__ __forceinline__ void raise_maximum(Place at, const float * warp_rows, Accumulators<HEAD, NT> & acc) {
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            float top = acc.m[j][c];
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                top = fmaxf(top, warp_rows[w * 8 * NT + 8 * j + 2 * at.t + c]);
            }
            const float shrink = top == -INFINITY ? 1.0f : power2(acc.m[j][c] - top);
            acc.m[j][c] = top;
            acc.l[j][c] *= shrink;
#pragma unroll
            for (int i = 0; i < HEAD / 64; ++i) {
                acc.o[i][j][c] *= shrink;
                acc.o[i][j][c + 2] *= shrink;
            }
        }
    }
}

// The sum of each query row's weights over this warp's cells, [warp][query row].
template <int NT> __device__ __forceinline__ void store_warp_sums(Place at, float * warp_rows, const float (&l)[NT][2]) {
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            float x = l[j][c];
#pragma unroll
            for (int lanes = 4; lanes < 32; lanes *= 2) {
                x += shuffle_xor(x, lanes);
            }
            if (at.g == 0) {
                warp_rows[at.warp * 8 * NT + 8 * j + 2 * at.t + c] = x;
            }
        }
    }
}

} // namespace plateau
