// Flash attention over a quantized K/V cache, dequantized in registers on its way into the tensor
// cores.
//
// For: decode and verification (1 to 8 tokens a sequence), where converting the whole cache to f16
// costs several times the attention itself, and prefill, where the f16 copy costs memory. Not for:
// ALiBi, soft caps, sinks, other head sizes.
//
// A block owns one KV head, up to 48 query rows (tokens x heads of the group) and a range of cells,
// in steps of 64 cells:
//   S^T = K Q^T   each of the 4 warps takes 16 cells: cells are the M of the matrix unit, so 6
//                 query rows waste 2, not 10
//   P^T           goes through shared memory as f16
//   O^T = V^T P^T each warp takes a quarter of the head's width over all 64 cells
// Tiles of K and V alternate in a ring that cp.async fills. What several blocks make of one row is
// added up by `combine`.
#pragma once

#include "fattn_loads.cuh"
#include "fattn_scores.cuh"
#include "fattn_softmax.cuh"
#include "fattn_values.cuh"

namespace plateau {

template <int HEAD, int NT> __device__ __forceinline__ void clear(Accumulators<HEAD, NT> & acc) {
#pragma unroll
    for (int j = 0; j < NT; ++j) {
        acc.m[j][0] = acc.m[j][1] = -INFINITY;
        acc.l[j][0] = acc.l[j][1] = 0.0f;
#pragma unroll
        for (int i = 0; i < HEAD / 64; ++i) {
            acc.o[i][j][0] = acc.o[i][j][1] = acc.o[i][j][2] = acc.o[i][j][3] = 0.0f;
        }
    }
}

template <int NT> __device__ __forceinline__ void add_sums(const float (&sum)[NT][2], float (&l)[NT][2]) {
#pragma unroll
    for (int j = 0; j < NT; ++j) {
        l[j][0] += sum[j][0];
        l[j][1] += sum[j][1];
    }
}

template <int HEAD, int NT>
__global__ void __launch_bounds__(THREADS, resident_blocks(NT)) attention(const AttentionParams p) {
    PLATEAU_SHARED(shared);
    half_bits * q = reinterpret_cast<half_bits *>(shared);
    half_bits * weights = reinterpret_cast<half_bits *>(shared + weights_at(HEAD, 8 * NT));
    float * warp_rows = reinterpret_cast<float *>(shared + warp_rows_at(HEAD, 8 * NT)); // [warp][query row]
    char * ring = shared + ring_at(HEAD, 8 * NT);

    const Place at;
    const int row0 = blockIdx.x * 8 * NT, kv_head = blockIdx.y % p.a.kv_heads, stream = blockIdx.y / p.a.kv_heads;
    const int split = blockIdx.z;
    const int first = split * p.cells_per_split;
    const int tiles = (min(p.cells_per_split, p.a.cells - first)) / CELLS;
    const int token0 = row0 / p.group;

    const char * k = static_cast<const char *>(p.a.k) + kv_head * p.a.k_head + stream * p.a.k_stream + first * p.a.k_cell;
    const char * v = static_cast<const char *>(p.a.v) + kv_head * p.a.v_head + stream * p.a.v_stream + first * p.a.v_cell;
    const char * mask = static_cast<const char *>(p.a.mask) + stream % p.a.mask_streams * p.a.mask_stream + token0 * p.a.mask_token
        + static_cast<int64_t>(first) * sizeof(half_bits);
    const int k_bytes = tile_bytes(static_cast<KvType>(p.a.type_k), HEAD);

    // Tile n is K of step n / 2 (with its piece of the mask) when n is even, V when it is odd.
    auto load = [&](int n) {
        if (n < 2 * tiles) {
            char * slot = ring + n % p.ring * p.slot_bytes;
            const int64_t cell = static_cast<int64_t>(n >> 1) * CELLS;
            if (n & 1) {
                load_tile<HEAD>(p.a.type_v, slot, v + cell * p.a.v_cell, p.a.v_cell);
            } else {
                load_tile<HEAD>(p.a.type_k, slot, k + cell * p.a.k_cell, p.a.k_cell);
                for (int i = threadIdx.x; i < p.mask_tokens * 8; i += THREADS) {
                    const int token = min(i >> 3, p.a.tokens - 1 - token0); // past the last: repeats it, never read
                    copy_later(slot + k_bytes + (i >> 3) * MASK_STRIDE * 2 + (i & 7) * 16,
                               mask + token * p.a.mask_token + cell * 2 + (i & 7) * 16);
                }
            }
        }
        close_copy_group();
    };

    // Tiles 0 .. ring - 2 here, tile n + ring - 1 whenever tile n - 1 is done with.
    for (int n = 0; n < p.ring - 1; ++n) {
        load(n);
    }
    load_query<HEAD, NT>(p, q, row0, kv_head, stream);
    Accumulators<HEAD, NT> acc;
    uint32_t mask_at[NT];
    place_masks<NT>(p, at, row0, token0, mask_at);
    clear(acc);

    for (int step = 0; step < tiles; ++step) {
        wait_for_tile(p.ring);
        sync_block(); // K has arrived for all; all are done with the last V and P
        load(2 * step + p.ring - 1);
        const char * k_slot = ring + 2 * step % p.ring * p.slot_bytes;
        float s[NT][4] = {}, sum[NT][2];
        scores<HEAD, NT>(at, p.a.type_k, k_slot, q, s);
        const bool rises = mask_scores<NT>(at, reinterpret_cast<const half_bits *>(k_slot + k_bytes), mask_at, acc.m, s);
        store_weights<NT>(at, weights, s, acc.m, sum);
        wait_for_tile(p.ring);
        if (any_in_block(rises)) { // V and P are there for all; all are done with K
            // Rare after the first step: move the maximum and weigh this tile again.
            store_warp_tops<NT>(at, warp_rows, s);
            sync_block();
            raise_maximum<HEAD, NT>(at, warp_rows, acc);
            store_weights<NT>(at, weights, s, acc.m, sum);
            sync_block();
        }
        load(2 * step + p.ring);
        add_sums<NT>(sum, acc.l);
        values<HEAD, NT>(at, p.a.type_v, ring + (2 * step + 1) % p.ring * p.slot_bytes, weights, acc.o);
    }

    sync_block();
    store_warp_sums<NT>(at, warp_rows, acc.l);
    sync_block();
    store_output<HEAD, NT>(p, at, warp_rows, acc, row0, kv_head, stream, split);
}

} // namespace plateau
