// Phase S^T = K Q^T of one tile: each of the 4 warps takes 16 cells, K becomes f16 in registers.
#pragma once

#include "fattn_params.cuh"

namespace plateau {

// S^T of 16 cells: s[j] is the 16 x 8 tile of query rows 8 j.. .
template <KvType type, int HEAD, int NT>
__device__ __forceinline__ void scores_of(Place at, const char * slot, const half_bits * q, float (&s)[NT][4]) {
    constexpr int words = row_words(type, HEAD);
    const uint32_t * low = reinterpret_cast<const uint32_t *>(slot) + (16 * at.warp + at.g) * words;
    const uint32_t * high = low + 8 * words;
    const half_bits * q_lane = q + (at.lane & 7) * query_stride(HEAD) + 8 * (at.lane >> 3);
#pragma unroll
    for (int block = 0; block < HEAD / 32; ++block) {
        uint32_t a[2][2], b[2][2];
        if (block & 1) {
            key_block<type, 1>(low, block >> 1, at.t, a);
            key_block<type, 1>(high, block >> 1, at.t, b);
        } else {
            key_block<type, 0>(low, block >> 1, at.t, a);
            key_block<type, 0>(high, block >> 1, at.t, b);
        }
#pragma unroll
        for (int j = 0; j < NT; ++j) {
            uint32_t r[4];
            load_matrices(r, q_lane + 8 * j * query_stride(HEAD) + 32 * block);
            multiply_add(s[j], { a[0][0], b[0][0], a[0][1], b[0][1] }, r[0], r[1]);
            multiply_add(s[j], { a[1][0], b[1][0], a[1][1], b[1][1] }, r[2], r[3]);
        }
    }
}

template <int HEAD, int NT>
__device__ __forceinline__ void scores(Place at, int type, const char * slot, const half_bits * q, float (&s)[NT][4]) {
    switch (static_cast<KvType>(type)) {
        case KvType::F16: scores_of<KvType::F16, HEAD, NT>(at, slot, q, s); break;
        case KvType::Q8_0: scores_of<KvType::Q8_0, HEAD, NT>(at, slot, q, s); break;
        case KvType::Q5_0: scores_of<KvType::Q5_0, HEAD, NT>(at, slot, q, s); break;
        case KvType::Q4_1: scores_of<KvType::Q4_1, HEAD, NT>(at, slot, q, s); break;
        case KvType::Q4_0: scores_of<KvType::Q4_0, HEAD, NT>(at, slot, q, s); break;
    }
}

} // namespace plateau
