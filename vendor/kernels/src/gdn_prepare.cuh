// First kernel of chunked Gated DeltaNet: all that does not depend on the state, a block a chunk, head and sequence.
//
// Into the scratch: keys and queries as halves (once a k-head), the weights of pairs of tokens, -T e^G K and the gates. T V
// goes where the output of the same tokens and head will be: same size, and `scan_chunks` reads it there before it writes.
#pragma once

#include "gdn_chunks.cuh"

namespace plateau {

constexpr int PREPARE_WARPS = 8;
constexpr int PREPARE_THREADS = 32 * PREPARE_WARPS;
constexpr int SOLVE_STRIDE = CHUNK + 8; // floats: 4 rows and 4 pairs of columns fall into different banks
// Below this a gate is 0 in f32; clamped, so that sums of gates stay short enough to be exact in two floats.
constexpr float LEAST_GATE = -100.0f;

template <int SIZE, bool EXACT> struct PrepareShared {
    using Sizes = ChunkSizes<SIZE, EXACT>;
    static constexpr size_t SOLVE = 0;                                                          // f32: L, then T
    static constexpr size_t SUM_HI = SOLVE + sizeof(float) * CHUNK * SOLVE_STRIDE;              // G in two floats
    static constexpr size_t SUM_LO = SUM_HI + sizeof(float) * CHUNK;
    static constexpr size_t GROWN = SUM_LO + sizeof(float) * CHUNK;                             // e^G
    static constexpr size_t BETA = GROWN + sizeof(float) * CHUNK;
    static constexpr size_t LARGEST = BETA + sizeof(float) * CHUNK;                             // of v, a warp each
    static constexpr size_t KEYS = LARGEST + sizeof(float) * PREPARE_WARPS;                     // hi, and lo if exact
    static constexpr size_t OTHER = KEYS + sizeof(half_bits) * Sizes::PARTS * Sizes::SHARED_MATRIX; // queries, then values
    static constexpr size_t BYTES = OTHER + sizeof(half_bits) * 2 * Sizes::SHARED_MATRIX;
    static_assert(KEYS % 16 == 0 && OTHER % 16 == 0, "rows of halves are read 16 bytes at a time");
};

// A sum that is kept in two floats, for sums of gates that are thousands while their differences matter to 1e-7.
struct LongSum {
    float hi, lo;
};

__device__ __forceinline__ LongSum add(LongSum a, LongSum b) {
    const float sum = a.hi + b.hi, part = sum - a.hi;
    const float rest = (a.hi - (sum - part)) + (b.hi - part) + (a.lo + b.lo);
    const float hi = sum + rest;
    return { hi, rest - (hi - sum) };
}

template <int SIZE, bool EXACT> class Prepare {
    using Sizes = ChunkSizes<SIZE, EXACT>;
    using Shared = PrepareShared<SIZE, EXACT>;

public:
    __device__ Prepare(const ChunkParams & params, char * shared)
        : p(params), solve(reinterpret_cast<float *>(shared + Shared::SOLVE)), sum_hi(reinterpret_cast<float *>(shared + Shared::SUM_HI)),
          sum_lo(reinterpret_cast<float *>(shared + Shared::SUM_LO)), grown(reinterpret_cast<float *>(shared + Shared::GROWN)),
          beta(reinterpret_cast<float *>(shared + Shared::BETA)), largest(reinterpret_cast<float *>(shared + Shared::LARGEST)),
          keys(reinterpret_cast<half_bits *>(shared + Shared::KEYS)), other(reinterpret_cast<half_bits *>(shared + Shared::OTHER)),
          chunk(blockIdx.x), head(blockIdx.y), seq(blockIdx.z), lane(threadIdx.x & 31), warp(threadIdx.x >> 5), g(lane >> 2), t(lane & 3),
          token0(p.first + chunk * CHUNK), valid(min(CHUNK, p.tokens - chunk * CHUNK)) {}

    __device__ void run() {
        if (warp == 0) {
            load_gates();
        }
        load_keys_and_queries();
        sync_block();
        // The tile of 16 rows of a warp: two warps of a scheduler have 5 steps of a triangle between them.
        const int tile = warp < 4 ? warp : 7 - warp;
        multiply_pairs(tile, warp < 4);
        sync_block();
        float values[LOADS][4];
        load_values(values);
        invert_diagonal();
        sync_block();
        store_values(values);
        join_16();
        join_32();
        if (warp < 4) {
            store_new_values(tile);
        } else {
            store_state_rows(tile);
        }
    }

private:
    static constexpr int LOADS = CHUNK * SIZE / 4 / PREPARE_THREADS;

    const ChunkParams & p;
    float * solve;
    float * sum_hi;
    float * sum_lo;
    float * grown;
    float * beta;
    float * largest;
    half_bits * keys;
    half_bits * other;
    const int chunk, head, seq, lane, warp, g, t, token0, valid;
    float value_scale = 1.0f; // of the values in shared memory

    // Four values of token `row`, zero past the end.
    __device__ __forceinline__ void load_four(const float * tokens, int64_t stride, int row, int column, float (&x)[4]) const {
        float4 y = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row < valid) {
            y = *reinterpret_cast<const float4 *>(tokens + row * stride + column);
        }
        x[0] = y.x;
        x[1] = y.y;
        x[2] = y.z;
        x[3] = y.w;
    }

    // One warp: sums of the gates, two tokens a lane, and what follows from them for each token.
    __device__ __forceinline__ void load_gates() {
        float gate[2], b[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = 2 * lane + i;
            const int64_t at = seq * p.a.gate_seq + static_cast<int64_t>(token0 + row) * p.a.gate_token + head;
            gate[i] = row < valid ? p.a.g[at] : 0.0f;
            gate[i] = gate[i] < LEAST_GATE ? LEAST_GATE : gate[i]; // not fmaxf, which would hide a NaN
            b[i] = row < valid ? p.a.beta[at] : 0.0f;
        }
        LongSum sum = add({ gate[0], 0.0f }, { gate[1], 0.0f });
#pragma unroll
        for (int lanes = 1; lanes < 32; lanes *= 2) {
            const LongSum before = { shuffle_up(sum.hi, lanes), shuffle_up(sum.lo, lanes) };
            if (lane >= lanes) {
                sum = add(before, sum);
            }
        }
        LongSum before = { shuffle_up(sum.hi, 1), shuffle_up(sum.lo, 1) };
        if (lane == 0) {
            before = { 0.0f, 0.0f };
        }
        const LongSum all = { shuffle_from(sum.hi, 31), shuffle_from(sum.lo, 31) };
        float * to = p.gates + chunk_index(p, seq, chunk, head, p.a.heads) * GATES;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = 2 * lane + i;
            const LongSum here = i == 0 ? add(before, { gate[0], 0.0f }) : sum;
            const float e = exponential(here.hi + here.lo);
            sum_hi[row] = here.hi;
            sum_lo[row] = here.lo;
            grown[row] = e;
            beta[row] = b[i];
            to[GATE_OUT + row] = e * p.a.scale;
            to[GATE_BETA + row] = b[i];
            to[GATE_REST + row] = exponential((all.hi - here.hi) + (all.lo - here.lo));
        }
        if (lane < 4) { // copied 16 bytes at a time
            to[GATE_ALL + lane] = exponential(all.hi + all.lo);
        }
    }

    // e^{G_row - G_column}.
    __device__ __forceinline__ float decay(int row, int column) const {
        return exponential((sum_hi[row] - sum_hi[column]) + (sum_lo[row] - sum_lo[column]));
    }

    __device__ __forceinline__ void load_keys_and_queries() {
        const int k_head = head % p.a.k_heads;
        const int64_t at = seq / p.a.seq_share * p.a.k_seq + token0 * p.a.k_token + k_head * p.a.k_head;
        const bool first = head < p.a.k_heads; // of the heads that share these keys
        const size_t index = chunk_index(p, seq, chunk, k_head, p.a.k_heads);
        half_bits * k_to = p.k + index * 2 * Sizes::MATRIX;
        half_bits * q_to = p.q + index * Sizes::PARTS * Sizes::MATRIX;
#pragma unroll 4
        for (int i = 0; i < LOADS; ++i) {
            const int n = i * PREPARE_THREADS + threadIdx.x, row = n / (SIZE / 4), column = n % (SIZE / 4) * 4;
            float x[4];
            uint2 hi, lo;
            load_four(p.a.k + at, p.a.k_token, row, column, x);
            split_four(x, UNIT_SCALE, hi, lo);
            put(keys, row, column, hi);
            if constexpr (EXACT) {
                put(keys + Sizes::SHARED_MATRIX, row, column, lo);
            }
            if (first) {
                *reinterpret_cast<uint2 *>(k_to + row * SIZE + column) = hi;
                *reinterpret_cast<uint2 *>(k_to + Sizes::MATRIX + row * SIZE + column) = lo;
            }
            load_four(p.a.q + at, p.a.k_token, row, column, x);
            split_four(x, UNIT_SCALE, hi, lo);
            put(other, row, column, hi);
            if constexpr (EXACT) {
                put(other + Sizes::SHARED_MATRIX, row, column, lo);
            }
            if (first) {
                *reinterpret_cast<uint2 *>(q_to + row * SIZE + column) = hi;
                if constexpr (EXACT) {
                    *reinterpret_cast<uint2 *>(q_to + Sizes::MATRIX + row * SIZE + column) = lo;
                }
            }
        }
    }

    __device__ __forceinline__ void put(half_bits * matrix, int row, int column, uint2 x) const {
        *reinterpret_cast<uint2 *>(matrix + row * Sizes::ROW + column) = x;
    }

    // 16 rows of K K^T (or Q K^T) up to the diagonal, times the decay between the tokens: L, or the weights of pairs.
    __device__ __forceinline__ void multiply_pairs(int tile, bool of_keys) {
        float c[8][4] = {};
        const half_bits * rows = (of_keys ? keys : other) + (16 * tile + row_as_a(lane)) * Sizes::ROW + column_as_a(lane);
        const half_bits * columns = keys + row_as_b(lane) * Sizes::ROW + column_as_b(lane);
#pragma unroll 2
        for (int k = 0; k < SIZE; k += 16) {
            Operand a;
            load_matrices(a.hi, rows + k);
            if constexpr (EXACT) {
                load_matrices(a.lo, rows + Sizes::SHARED_MATRIX + k);
            }
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (j <= tile) {
                    uint32_t hi[4], lo[4];
                    load_matrices(hi, columns + 16 * j * Sizes::ROW + k);
                    if constexpr (EXACT) {
                        load_matrices(lo, columns + Sizes::SHARED_MATRIX + 16 * j * Sizes::ROW + k);
                    }
                    multiply_add_pair<Sizes::TERMS>(c[2 * j], c[2 * j + 1], a, hi, lo);
                }
            }
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            if (n / 2 <= tile) {
#pragma unroll
                for (int half_tile = 0; half_tile < 2; ++half_tile) {
                    store_pair(16 * tile + g + 8 * half_tile, 8 * n + 2 * t, c[n][2 * half_tile], c[n][2 * half_tile + 1], of_keys);
                }
            }
        }
    }

    // Two columns of a row of L, or of the weights of pairs.
    __device__ __forceinline__ void store_pair(int row, int column, float x, float y, bool of_keys) {
        constexpr float both = 1.0f / (UNIT_SCALE * UNIT_SCALE);
        if (of_keys) {
            solve[row * SOLVE_STRIDE + column] = column < row ? x * both * decay(row, column) * beta[column] : 0.0f;
            solve[row * SOLVE_STRIDE + column + 1] = column + 1 < row ? y * both * decay(row, column + 1) * beta[column + 1] : 0.0f;
            return;
        }
        const float unit = both * UNIT_SCALE * p.a.scale;
        x = column <= row ? x * unit * decay(row, column) : 0.0f;
        y = column + 1 <= row ? y * unit * decay(row, column + 1) : 0.0f;
        half_bits * to = p.p + chunk_index(p, seq, chunk, head, p.a.heads) * Sizes::PARTS * Sizes::PAIRS + row * CHUNK + column;
        const uint32_t hi = pack(x, y);
        *reinterpret_cast<uint32_t *>(to) = hi;
        if constexpr (EXACT) {
            *reinterpret_cast<uint32_t *>(to + Sizes::PAIRS) = pack_rest(x, y, hi);
        }
    }

    __device__ __forceinline__ void load_values(float (&x)[LOADS][4]) {
        const float * from = p.a.v + seq * p.a.v_seq + token0 * p.a.v_token + head * p.a.v_head;
        float top = 0.0f;
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int n = i * PREPARE_THREADS + threadIdx.x;
            load_four(from, p.a.v_token, n / (SIZE / 4), n % (SIZE / 4) * 4, x[i]);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                top = fmaxf(top, fabsf(x[i][e]));
            }
        }
        top = warp_max(top);
        if (lane == 0) {
            largest[warp] = top;
        }
    }

    // Over the queries, which are done with.
    __device__ __forceinline__ void store_values(const float (&x)[LOADS][4]) {
        float top = 0.0f;
        for (int i = 0; i < PREPARE_WARPS; ++i) {
            top = fmaxf(top, largest[i]);
        }
        value_scale = power_of_two(half_scale(top));
#pragma unroll
        for (int i = 0; i < LOADS; ++i) {
            const int n = i * PREPARE_THREADS + threadIdx.x, row = n / (SIZE / 4), column = n % (SIZE / 4) * 4;
            uint2 hi, lo;
            split_four(x[i], value_scale, hi, lo);
            put(other, row, column, hi);
            put(other + Sizes::SHARED_MATRIX, row, column, lo);
        }
    }

    // (1 + L)^-1 of the four 16 x 16 blocks on the diagonal, in place: half a warp a block, a lane a column.
    __device__ __forceinline__ void invert_diagonal() {
        if (warp >= 2) {
            return;
        }
        float * block = solve + (threadIdx.x >> 4) * 16 * (SOLVE_STRIDE + 1);
        const int column = threadIdx.x & 15;
        float x[16];
#pragma unroll
        for (int r = 0; r < 16; ++r) {
            float sum = r == column ? 1.0f : 0.0f;
#pragma unroll
            for (int s = 0; s < r; ++s) {
                sum -= block[r * SOLVE_STRIDE + s] * x[s]; // x[s] is 0 above the diagonal
            }
            x[r] = sum;
        }
        sync_warp(); // the block is read by the same half warp only
#pragma unroll
        for (int r = 0; r < 16; ++r) {
            block[r * SOLVE_STRIDE + column] = x[r];
        }
    }

    // From blocks of 16 on the diagonal to blocks of 32: the inverse of (A 0; B C) has -C^-1 B A^-1 below. The product B A^-1
    // waits in the same place above the diagonal, which holds nothing.
    __device__ __forceinline__ void join_16() {
        const int pair = threadIdx.x >> 7, row = (threadIdx.x & 127) >> 3, column = (threadIdx.x & 7) * 2;
        float * block = solve + pair * 32 * (SOLVE_STRIDE + 1);
        float x = 0.0f, y = 0.0f;
#pragma unroll 4
        for (int s = 0; s < 16; ++s) {
            const float b = block[(16 + row) * SOLVE_STRIDE + s];
            const float2 a = *reinterpret_cast<const float2 *>(block + s * SOLVE_STRIDE + column);
            x += b * a.x;
            y += b * a.y;
        }
        *reinterpret_cast<float2 *>(block + row * SOLVE_STRIDE + 16 + column) = make_float2(x, y);
        sync_block();
        x = y = 0.0f;
#pragma unroll 4
        for (int s = 0; s < 16; ++s) {
            const float c = block[(16 + row) * SOLVE_STRIDE + 16 + s];
            const float2 b = *reinterpret_cast<const float2 *>(block + s * SOLVE_STRIDE + 16 + column);
            x -= c * b.x;
            y -= c * b.y;
        }
        *reinterpret_cast<float2 *>(block + (16 + row) * SOLVE_STRIDE + column) = make_float2(x, y);
        sync_block();
    }

    // The same from 32 to 64. Blocks above the diagonal hold what join_16 left there: they are passed over.
    __device__ __forceinline__ void join_32() {
        const int row = threadIdx.x >> 3, column = (threadIdx.x & 7) * 4;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
        for (int s = column & 16; s < 32; ++s) {
            const float b = solve[(32 + row) * SOLVE_STRIDE + s];
            const float4 a = *reinterpret_cast<const float4 *>(solve + s * SOLVE_STRIDE + column);
            x.x += b * a.x;
            x.y += b * a.y;
            x.z += b * a.z;
            x.w += b * a.w;
        }
        *reinterpret_cast<float4 *>(solve + row * SOLVE_STRIDE + 32 + column) = x;
        sync_block();
        x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
        for (int s = 0; s < (row & 16) + 16; ++s) {
            const float c = solve[(32 + row) * SOLVE_STRIDE + 32 + s];
            const float4 b = *reinterpret_cast<const float4 *>(solve + s * SOLVE_STRIDE + 32 + column);
            x.x -= c * b.x;
            x.y -= c * b.y;
            x.z -= c * b.z;
            x.w -= c * b.w;
        }
        *reinterpret_cast<float4 *>(solve + (32 + row) * SOLVE_STRIDE + column) = x;
        sync_block();
    }

    // 16 rows of T as operand a, columns 16 j.. ; `times` scales column s by times[s].
    __device__ __forceinline__ void rows_of_inverse(Operand & a, int tile, int j, const float * times, bool with_rest) const {
        const float * from = solve + (16 * tile + g) * SOLVE_STRIDE + 16 * j + 2 * t;
        float x[2][4];
#pragma unroll
        for (int right = 0; right < 2; ++right) {
            const float2 low = *reinterpret_cast<const float2 *>(from + 8 * right);
            const float2 high = *reinterpret_cast<const float2 *>(from + 8 * SOLVE_STRIDE + 8 * right);
            const float e = times ? times[16 * j + 8 * right + 2 * t] : 1.0f, f = times ? times[16 * j + 8 * right + 2 * t + 1] : 1.0f;
            x[right][0] = low.x * e;
            x[right][1] = low.y * f;
            x[right][2] = high.x * e;
            x[right][3] = high.y * f;
        }
        a.set(x[0], x[1], UNIT_SCALE, with_rest);
    }

    // c = 16 rows of T times a matrix of tokens x size in shared memory.
    template <int TERMS>
    __device__ __forceinline__ void times_inverse(float (&c)[SIZE / 8][4], int tile, const half_bits * matrix, const float * times) const {
        const half_bits * rows = matrix + row_as_a(lane) * Sizes::ROW + column_as_a(lane);
        for (int j = 0; j <= tile; ++j) {
            Operand a;
            rows_of_inverse(a, tile, j, times, TERMS > 1);
#pragma unroll
            for (int n = 0; n < SIZE / 16; ++n) {
                uint32_t hi[4], lo[4];
                load_matrices_turned(hi, rows + 16 * j * Sizes::ROW + 16 * n);
                if constexpr (TERMS == 3) {
                    load_matrices_turned(lo, rows + Sizes::SHARED_MATRIX + 16 * j * Sizes::ROW + 16 * n);
                }
                multiply_add_pair<TERMS>(c[2 * n], c[2 * n + 1], a, hi, lo);
            }
        }
    }

    // T V, in place of the output. Always in three terms: the state is made of it.
    __device__ __forceinline__ void store_new_values(int tile) {
        float c[SIZE / 8][4] = {};
        times_inverse<3>(c, tile, other, nullptr);
        const float unit = 1.0f / (UNIT_SCALE * value_scale);
#pragma unroll
        for (int half_tile = 0; half_tile < 2; ++half_tile) {
            const int row = 16 * tile + g + 8 * half_tile;
            if (row < valid) {
                float * to = p.a.out + seq * p.a.out_seq + (static_cast<int64_t>(token0 + row) * p.a.heads + head) * SIZE + 2 * t;
#pragma unroll
                for (int n = 0; n < SIZE / 8; ++n) {
                    *reinterpret_cast<float2 *>(to + 8 * n) = make_float2(c[n][2 * half_tile] * unit, c[n][2 * half_tile + 1] * unit);
                }
            }
        }
    }

    // -T e^G K.
    __device__ __forceinline__ void store_state_rows(int tile) {
        float c[SIZE / 8][4] = {};
        times_inverse<Sizes::CANCELLING>(c, tile, keys, grown);
        half_bits * to = p.w + chunk_index(p, seq, chunk, head, p.a.heads) * Sizes::PARTS * Sizes::MATRIX;
#pragma unroll
        for (int n = 0; n < SIZE / 8; ++n) {
#pragma unroll
            for (int half_tile = 0; half_tile < 2; ++half_tile) {
                half_bits * at = to + (16 * tile + g + 8 * half_tile) * SIZE + 8 * n + 2 * t;
                const float x = c[n][2 * half_tile] * (-1.0f / UNIT_SCALE), y = c[n][2 * half_tile + 1] * (-1.0f / UNIT_SCALE);
                const uint32_t hi = pack(x, y);
                *reinterpret_cast<uint32_t *>(at) = hi;
                if constexpr (EXACT) {
                    *reinterpret_cast<uint32_t *>(at + Sizes::MATRIX) = pack_rest(x, y, hi);
                }
            }
        }
    }
};

template <int SIZE, bool EXACT> __global__ void __launch_bounds__(PREPARE_THREADS) prepare_chunks(const ChunkParams p) {
    PLATEAU_SHARED(shared);
    Prepare<SIZE, EXACT>(p, shared).run();
}

} // namespace plateau
