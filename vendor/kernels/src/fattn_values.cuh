// Phase O^T += V^T P^T of one tile: each warp takes a quarter of the head's width over all 64
// cells. Then, once a block, where the rows go.
#pragma once

#include "fattn_params.cuh"

namespace plateau {

// O^T += V^T P^T for this warp's quarter of the head.
template <KvType type, int HEAD, int NT>
__device__ __forceinline__ void values_of(Place at, const char * slot, const half_bits * p, float (&o)[HEAD / 64][NT][4]) {
    constexpr int words = row_words(type, HEAD);
    const uint32_t * rows = reinterpret_cast<const uint32_t *>(slot) + 2 * at.t * words;
    const half_bits * p_lane = p + (at.lane & 7) * P_STRIDE + 8 * (at.lane >> 3);
#pragma unroll
    for (int half_tile = 0; half_tile < 2; ++half_tile) {
        uint32_t b[NT][4];
#pragma unroll
        for (int j = 0; j < NT; ++j) {
            load_matrices(b[j], p_lane + 8 * j * P_STRIDE + 32 * half_tile);
        }
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const uint32_t * row = rows + (32 * half_tile + 16 * step) * words;
            uint32_t near[HEAD / 32], far[HEAD / 32];
            value_pair<type, HEAD>(row, row + words, at.warp, at.g, near);
            value_pair<type, HEAD>(row + 8 * words, row + 9 * words, at.warp, at.g, far);
#pragma unroll
            for (int i = 0; i < HEAD / 64; ++i) {
#pragma unroll
                for (int j = 0; j < NT; ++j) {
                    multiply_add(o[i][j], { near[2 * i], near[2 * i + 1], far[2 * i], far[2 * i + 1] }, b[j][2 * step], b[j][2 * step + 1]);
                }
            }
        }
    }
}

template <int HEAD, int NT>
__device__ __forceinline__ void values(Place at, int type, const char * slot, const half_bits * p, float (&o)[HEAD / 64][NT][4]) {
    switch (static_cast<KvType>(type)) {
        case KvType::F16: values_of<KvType::F16, HEAD, NT>(at, slot, p, o); break;
        case KvType::Q8_0: values_of<KvType::Q8_0, HEAD, NT>(at, slot, p, o); break;
        case KvType::Q5_0: values_of<KvType::Q5_0, HEAD, NT>(at, slot, p, o); break;
        case KvType::Q4_1: values_of<KvType::Q4_1, HEAD, NT>(at, slot, p, o); break;
        case KvType::Q4_0: values_of<KvType::Q4_0, HEAD, NT>(at, slot, p, o); break;
    }
}

// Rows of the block: the output, divided by the sum of the weights; or, of several ranges of cells,
// a part for `combine`.
template <int HEAD, int NT>
__device__ __forceinline__ void store_output(const AttentionParams & p, Place at, const float * warp_rows, const Accumulators<HEAD, NT> & acc, int row0,
                                             int kv_head, int stream, int split) {
    const bool nibbles = p.a.type_v == int(KvType::Q4_0) || p.a.type_v == int(KvType::Q4_1) || p.a.type_v == int(KvType::Q5_0);
    const int64_t all_rows = static_cast<int64_t>(p.a.streams) * p.a.tokens * p.a.heads;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const int r = 8 * j + 2 * at.t + c, row = row0 + r;
            if (row >= p.rows) {
                continue;
            }
            float total = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                total += warp_rows[w * 8 * NT + r];
            }
            const int64_t out_row = (static_cast<int64_t>(stream) * p.a.tokens + row / p.group) * p.a.heads
                + kv_head * p.group + row % p.group;
            float * to = p.a.out + out_row * HEAD;
            float f = total > 0.0f ? 1.0f / total : 0.0f;
            if (p.splits > 1) {
                to = p.partial + (split * all_rows + out_row) * HEAD;
                f = 1.0f;
                if (at.warp == 0 && at.g == 0) {
                    p.meta[split * all_rows + out_row] = make_float2(acc.m[j][c], total);
                }
            }
#pragma unroll
            for (int run = 0; run < HEAD / 128; ++run) {
                const int column = nibbles ? value_place<KvType::Q4_0, HEAD>(at.g, run) : value_place<KvType::F16, HEAD>(at.g, run);
                const float4 x = make_float4(acc.o[2 * run][j][c] * f, acc.o[2 * run][j][c + 2] * f, acc.o[2 * run + 1][j][c] * f,
                                             acc.o[2 * run + 1][j][c + 2] * f);
                *reinterpret_cast<float4 *>(to + at.warp * (HEAD / 4) + column) = x;
            }
        }
    }
}

} // namespace plateau
