// Phases that fill shared memory: tiles of K and V in the background as they lie in the cache, and
// the query as halves.
#pragma once

#include "fattn_params.cuh"

namespace plateau {

// Starts the copy of one tile's rows.
template <KvType type, int HEAD> __device__ __forceinline__ void load_rows(char * slot, const char * from, int64_t stride) {
    constexpr int bytes = HEAD / 32 * block_bytes(type);
    constexpr int piece = bytes % 16 == 0 ? 16 : 8;
    constexpr int pieces = bytes / piece;
    constexpr int row = 4 * row_words(type, HEAD);
#pragma unroll 4
    for (int i = threadIdx.x; i < CELLS * pieces; i += THREADS) {
        const int r = i / pieces, c = i % pieces;
        if constexpr (piece == 16) {
            copy_later(slot + r * row + c * piece, from + r * stride + c * piece);
        } else {
            copy_8_later(slot + r * row + c * piece, from + r * stride + c * piece);
        }
    }
}

template <int HEAD> __device__ __forceinline__ void load_tile(int type, char * slot, const char * from, int64_t stride) {
    switch (static_cast<KvType>(type)) {
        case KvType::F16: load_rows<KvType::F16, HEAD>(slot, from, stride); break;
        case KvType::Q8_0: load_rows<KvType::Q8_0, HEAD>(slot, from, stride); break;
        case KvType::Q5_0: load_rows<KvType::Q5_0, HEAD>(slot, from, stride); break;
        case KvType::Q4_1: load_rows<KvType::Q4_1, HEAD>(slot, from, stride); break;
        case KvType::Q4_0: load_rows<KvType::Q4_0, HEAD>(slot, from, stride); break;
    }
}

// Waits until all but the newest ring - 2 tiles have arrived.
__device__ __forceinline__ void wait_for_tile(int ring) {
    if (ring == 2) {
        wait_for_copy_groups<0>();
    } else if (ring == 3) {
        wait_for_copy_groups<1>();
    } else {
        wait_for_copy_groups<2>();
    }
}

// The query rows of this block as f16, scaled to base 2, in the order in which keys arrive; rows
// past the end are zero.
template <int HEAD, int NT>
__device__ __forceinline__ void load_query(const AttentionParams & p, half_bits * q, int row0, int kv_head, int stream) {
    for (int i = threadIdx.x; i < 8 * NT * (HEAD / 4); i += THREADS) {
        const int r = i / (HEAD / 4), e = i % (HEAD / 4) * 4, row = row0 + r;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row < p.rows) {
            const char * from = reinterpret_cast<const char *>(p.a.q) + row / p.group * p.a.q_token
                + (kv_head * p.group + row % p.group) * p.a.q_head + stream * p.a.q_stream;
            x = *reinterpret_cast<const float4 *>(from + 4 * e);
        }
        const float f = p.a.scale * LOG2E;
        const float y[4] = { x.x * f, x.y * f, x.z * f, x.w * f };
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int place = query_place(static_cast<KvType>(p.a.type_k), (e + n) & 15);
            q[r * query_stride(HEAD) + ((e + n) & ~15) + place] = to_half(y[n]);
        }
    }
}

} // namespace plateau
