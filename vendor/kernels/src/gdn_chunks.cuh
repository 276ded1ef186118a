// What the two kernels of chunked Gated DeltaNet share: the scratch between them, and products of split halves.
//
// With G the sum of g within a chunk and S the state before it, for tokens t and s <= t of the chunk:
//   d_t = v_t - e^{G_t} S^T k_t - sum_{s<t} e^{G_t - G_s} (k_t.k_s) beta_s d_s      what is new of v_t
//   o_t = e^{G_t} S^T q_t + sum_{s<=t} e^{G_t - G_s} (q_t.k_s) beta_s d_s           the output
//   S'  = e^{G_C} S + sum_s e^{G_C - G_s} k_s beta_s d_s^T                          the state after it
// The sum in the first line is a triangular system that does not know S: with L its matrix (beta included) and
// T = (1 + L)^-1, D = T V - (T e^G K) S. `prepare_chunks` makes T V and T e^G K of all chunks at once, `scan_chunks` goes
// through the chunks with the state in registers. Exponents are differences of G, at most 0 for gates that shrink.
//
// Matrices of halves are kept as `hi`, the nearest half, and `lo`, what is left of it: hi hi + hi lo + lo hi has the error
// of f32 nearly. Powers of two keep both within the range of halves.
#pragma once

#include "gdn.h"
#include "warp.cuh"

namespace plateau {

constexpr int CHUNK = GDN_CHUNK_TOKENS;
constexpr int PAIR_STRIDE = CHUNK + 8; // halves between rows of tokens x tokens: 8 rows fall into different banks

// Fixed scale of keys, queries, T and the weights of pairs of tokens, none of which is much above 1.
constexpr float UNIT_SCALE = 16.0f;

// Floats of a head and chunk: e^G * scale, beta, e^{G_C - G} of each token, then e^{G_C}.
constexpr int GATES = 256;
constexpr int GATE_OUT = 0, GATE_BETA = 64, GATE_REST = 128, GATE_ALL = 192;

struct ChunkParams {
    GdnArgs a;
    int first;   // token at which this segment begins
    int tokens;  // of the segment
    int chunks;
    // Of a sequence and chunk, then of a head: rows of 64 tokens, not padded. `k`: keys, hi and lo. `q`, `w`, `p`: queries,
    // -T e^G K and weights of pairs, hi, and lo if exact.
    half_bits * k;
    half_bits * q;
    half_bits * w;
    half_bits * p;
    float * gates;
    const float * states; // before this segment, and the row of args or null
    const int32_t * row;
    float * states_after;
};

template <int SIZE, bool EXACT> struct ChunkSizes {
    static constexpr int ROW = SIZE + 8;            // halves between rows in shared memory
    static constexpr int PARTS = EXACT ? 2 : 1;     // hi, or hi and lo
    static constexpr int TERMS = EXACT ? 3 : 1;     // of products that the state is not made of
    // Of products with many large terms that take each other away where keys are alike: T e^G K, and weights with corrections.
    static constexpr int CANCELLING = EXACT ? 3 : 2;
    static constexpr int MATRIX = CHUNK * SIZE;     // halves of tokens x size
    static constexpr int PAIRS = CHUNK * CHUNK;     // halves of tokens x tokens
    static constexpr int SHARED_MATRIX = CHUNK * ROW;
};

// Index of a sequence, chunk and head in the scratch.
__device__ __forceinline__ size_t chunk_index(const ChunkParams & p, int seq, int chunk, int head, int heads) {
    return (static_cast<size_t>(seq) * p.chunks + chunk) * heads + head;
}

// Four values, scaled, to `hi` and what is left to `lo` (8 bytes each).
__device__ __forceinline__ void split_four(const float (&x)[4], float scale, uint2 & hi, uint2 & lo) {
    const float a = x[0] * scale, b = x[1] * scale, c = x[2] * scale, d = x[3] * scale;
    hi.x = pack(a, b);
    hi.y = pack(c, d);
    lo.x = pack_rest(a, b, hi.x);
    lo.y = pack_rest(c, d, hi.y);
}

// Operand a of a 16 x 16 tile from values as accumulators or a matrix in f32 hold them: rows g and g + 8 of columns
// 2 t, 2 t + 1 in `left`, of columns 8 further in `right`.
struct Operand {
    uint32_t hi[4], lo[4];

    __device__ __forceinline__ void set(const float (&left)[4], const float (&right)[4], float scale, bool with_rest) {
        const float x[8] = { left[0], left[1], left[2], left[3], right[0], right[1], right[2], right[3] };
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float low = x[2 * i] * scale, high = x[2 * i + 1] * scale;
            hi[i] = pack(low, high);
            lo[i] = with_rest ? pack_rest(low, high, hi[i]) : 0;
        }
    }
};

// Two tiles of 16 x 8 side by side: c += a b, where b is 16 x 16 in `hi` and `lo`. TERMS: 1, the nearest halves alone; 2, a
// with what is left of it; 3, both.
template <int TERMS>
__device__ __forceinline__ void multiply_add_pair(float (&left)[4], float (&right)[4], const Operand & a, const uint32_t (&hi)[4], const uint32_t (&lo)[4]) {
    if constexpr (TERMS >= 2) { // small terms first
        multiply_add(left, a.lo, hi[0], hi[1]);
        multiply_add(right, a.lo, hi[2], hi[3]);
    }
    if constexpr (TERMS == 3) {
        multiply_add(left, a.hi, lo[0], lo[1]);
        multiply_add(right, a.hi, lo[2], lo[3]);
    }
    multiply_add(left, a.hi, hi[0], hi[1]);
    multiply_add(right, a.hi, hi[2], hi[3]);
}

} // namespace plateau
