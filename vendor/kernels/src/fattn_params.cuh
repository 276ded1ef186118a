// What the phases of the attention kernel and its planning share: sizes of a tile, the shared
// memory of a block, and the parameters of a launch.
#pragma once

#include "fattn_quant.h"
#include "kv_types.cuh"

namespace plateau {

constexpr int CELLS = 64; // of a tile
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * 32;
constexpr int P_STRIDE = CELLS + 8;    // halves; 144 bytes: 8 rows fall into different banks
constexpr int MASK_STRIDE = CELLS + 8; // halves
constexpr float LOG2E = 1.4426950408889634f;
// P may exceed 1 by this factor (as a power of two) before the running maximum is moved: f16 keeps
// its precision.
constexpr float SLACK = 8.0f;

// Halves between rows of the query in shared memory.
__host__ __device__ constexpr int query_stride(int head) { return head + 8; }

// Where the parts of a block's shared memory begin, in bytes: query rows, weights (P), a float a
// warp and row, and the ring.
__host__ __device__ constexpr int weights_at(int head, int rows) { return rows * query_stride(head) * 2; }
__host__ __device__ constexpr int warp_rows_at(int head, int rows) { return weights_at(head, rows) + rows * P_STRIDE * 2; }
__host__ __device__ constexpr int ring_at(int head, int rows) { return warp_rows_at(head, rows) + WARPS * rows * 4; }

// Bytes of a tile of K or V in the ring; the piece of the mask comes after K.
__host__ __device__ constexpr int tile_bytes(KvType type, int head) { return CELLS * 4 * row_words(type, head); }

// Blocks a multiprocessor must be able to hold: 128, 168 or 255 registers a thread.
__host__ __device__ constexpr int resident_blocks(int row_tiles_of_8) {
    return row_tiles_of_8 <= 1 ? 4 : row_tiles_of_8 <= 3 ? 3 : 2;
}

struct AttentionParams {
    FattnArgs a;
    float * partial;   // [split][row of the output][head_dim], not yet divided
    float2 * meta;     // [split][row of the output]: maximum (base 2), sum
    int group;         // query heads per KV head
    int rows;          // tokens * group
    int splits;
    int cells_per_split;
    int ring;
    int slot_bytes;
    int mask_tokens;   // of a block
};

// A thread's place in its block and, of its warp, in a fragment of a matrix product: row g, columns
// 2 t and 2 t + 1.
struct Place {
    int lane, warp, g, t;

    __device__ __forceinline__ Place() : lane(threadIdx.x & 31), warp(threadIdx.x >> 5), g(lane >> 2), t(lane & 3) {}
};

// Accumulators of a lane. Its columns of row tile j are the query rows 8 j + 2 t and 8 j + 2 t + 1,
// with t = lane % 4.
template <int HEAD, int NT> struct Accumulators {
    float o[HEAD / 64][NT][4]; // O^T of this warp's quarter of the head
    float m[NT][2];            // running maximum, base 2
    float l[NT][2];            // sum of the weights of this lane's cells
};

} // namespace plateau
