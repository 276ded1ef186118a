// Second kernel of chunked Gated DeltaNet: through the chunks of a segment in order, with the state in registers.
//
// A warp owns 16 columns of the state of a head, turned so that they are the rows of every product:
//   (W S)^T = S^T W^T,  (Q S)^T = S^T Q^T,  (P U)^T = U^T P^T,  (K^T U)^T = U^T K
// The accumulators of one product are laid out as operand a of the next, so nothing but keys, queries and weights passes
// through shared memory, and warps wait for each other only when those change. A block is 64 columns: 4 warps, one for each
// tensor core of a multiprocessor. Matrices take turns in two places; the next one arrives while this one is used.
//
// Per chunk: a step with W and Q (if exact, one each, as hi and lo), then one with K (hi and lo) and P.
#pragma once

#include "gdn_chunks.cuh"

namespace plateau {

constexpr int SCAN_WARPS = 4;
constexpr int SCAN_THREADS = 32 * SCAN_WARPS;
constexpr int SCAN_COLUMNS = 16 * SCAN_WARPS; // of the state, a block

template <int SIZE, bool EXACT> struct ScanShared {
    using Sizes = ChunkSizes<SIZE, EXACT>;
    static constexpr size_t PLACE = sizeof(half_bits) * 2 * Sizes::SHARED_MATRIX; // two matrices
    static constexpr size_t PAIRS = 2 * PLACE;
    static constexpr size_t GATE = PAIRS + sizeof(half_bits) * Sizes::PARTS * CHUNK * PAIR_STRIDE;
    static constexpr size_t BYTES = GATE + 2 * sizeof(float) * GATES; // of this chunk and the next
};

template <int SIZE, bool EXACT> class Scan {
    using Sizes = ChunkSizes<SIZE, EXACT>;
    using Shared = ScanShared<SIZE, EXACT>;
    static constexpr int STEPS = EXACT ? 3 : 2; // of a chunk
    static constexpr int TILES = CHUNK / 8;     // accumulators of tokens

public:
    __device__ Scan(const ChunkParams & params, char * memory)
        : p(params), shared(memory), head(blockIdx.y), seq(blockIdx.z), lane(threadIdx.x & 31), g(lane >> 2), t(lane & 3),
          column(blockIdx.x * SCAN_COLUMNS + 16 * (threadIdx.x >> 5) + g) {}

    __device__ void run() {
        load_state();
        fetch(0);
        for (int chunk = 0; chunk < p.chunks; ++chunk) {
            float news[TILES][4], old[TILES][4] = {}, out[TILES][4] = {};
            load_news(chunk, news);
            const float state_scale = scale_of_state();
            const float * gate = gates(chunk);
            next_step(chunk * STEPS);
            if constexpr (EXACT) {
                times_rows(old, place(chunk * STEPS), state_scale);
                take_old(news, old, gate, state_scale); // before `out`: no room in registers for all three
                next_step(chunk * STEPS + 1);
                times_rows(out, place(chunk * STEPS + 1), state_scale);
            } else {
                times_two(old, out, place(chunk * STEPS), state_scale);
                take_old(news, old, gate, state_scale);
            }
            const float news_scale = weigh(news, out, gate, state_scale);
            next_step(chunk * STEPS + STEPS - 1);
            add_pairs(out, news);
            store_out(chunk, out, 1.0f / (UNIT_SCALE * news_scale));
            update_state(news, gate, news_scale, place(chunk * STEPS + STEPS - 1));
        }
        store_state();
    }

private:
    const ChunkParams & p;
    char * shared;
    const int head, seq, lane, g, t;
    const int column; // of the state; this lane has also the one 8 further
    float s[SIZE / 8][4]; // rows 8 n + 2 t, + 1 of `column`, then of the other

    __device__ __forceinline__ half_bits * place(int step) const { return reinterpret_cast<half_bits *>(shared + step % 2 * Shared::PLACE); }
    __device__ __forceinline__ half_bits * pairs() const { return reinterpret_cast<half_bits *>(shared + Shared::PAIRS); }
    __device__ __forceinline__ float * gates(int chunk) const { return reinterpret_cast<float *>(shared + Shared::GATE) + chunk % 2 * GATES; }

    __device__ __forceinline__ void load_state() {
        const float * from = p.states + (static_cast<int64_t>(seq) * p.a.heads + head) * SIZE * SIZE + 2 * t;
        if (p.row) {
            from += static_cast<int64_t>(*p.row) * p.a.heads * SIZE * SIZE;
        }
#pragma unroll
        for (int n = 0; n < SIZE / 8; ++n) {
            const float2 x = *reinterpret_cast<const float2 *>(from + column * SIZE + 8 * n);
            const float2 y = *reinterpret_cast<const float2 *>(from + (column + 8) * SIZE + 8 * n);
            s[n][0] = x.x;
            s[n][1] = x.y;
            s[n][2] = y.x;
            s[n][3] = y.y;
        }
    }

    __device__ __forceinline__ void store_state() const {
        float * to = p.states_after + (static_cast<int64_t>(seq) * p.a.heads + head) * SIZE * SIZE + 2 * t;
#pragma unroll
        for (int n = 0; n < SIZE / 8; ++n) {
            *reinterpret_cast<float2 *>(to + column * SIZE + 8 * n) = make_float2(s[n][0], s[n][1]);
            *reinterpret_cast<float2 *>(to + (column + 8) * SIZE + 8 * n) = make_float2(s[n][2], s[n][3]);
        }
    }

    // Rows of `width` halves from the scratch to shared memory, `stride` halves apart there.
    template <int width, int stride> __device__ __forceinline__ void fetch_matrix(half_bits * to, const half_bits * from) const {
        // Rows a round apart are at a constant distance, which costs no registers.
        constexpr int pieces = width / 8, rows = SCAN_THREADS / pieces;
        const int row = threadIdx.x / pieces, piece = threadIdx.x % pieces * 8;
        to += row * stride + piece;
        from += row * width + piece;
#pragma unroll
        for (int i = 0; i < CHUNK / rows; ++i) {
            copy_later(to + i * rows * stride, from + i * rows * width);
        }
    }

    // Starts the copies of a step; none after the last.
    __device__ __forceinline__ void fetch(int step) const {
        const int chunk = step / STEPS, which = step % STEPS;
        if (chunk >= p.chunks) {
            return;
        }
        const size_t of_head = chunk_index(p, seq, chunk, head, p.a.heads);
        const size_t of_keys = chunk_index(p, seq, chunk, head % p.a.k_heads, p.a.k_heads);
        const half_bits * w = p.w + of_head * Sizes::PARTS * Sizes::MATRIX;
        const half_bits * q = p.q + of_keys * Sizes::PARTS * Sizes::MATRIX;
        const half_bits * k = p.k + of_keys * 2 * Sizes::MATRIX;
        half_bits * to = place(step);
        // Two matrices a step: W and Q, or both parts of one.
        const half_bits * first = which == STEPS - 1 ? k : which == 0 ? w : q;
        const half_bits * second = !EXACT && which == 0 ? q : first + Sizes::MATRIX;
        fetch_matrix<SIZE, Sizes::ROW>(to, first);
        fetch_matrix<SIZE, Sizes::ROW>(to + Sizes::SHARED_MATRIX, second);
        if (which == 0) {
            const float * from = p.gates + of_head * GATES;
            if (threadIdx.x < (GATE_ALL + 4) / 4) {
                copy_later(gates(chunk) + 4 * threadIdx.x, from + 4 * threadIdx.x);
            }
        }
        if (which == STEPS - 1) {
            const half_bits * from = p.p + of_head * Sizes::PARTS * Sizes::PAIRS;
#pragma unroll
            for (int part = 0; part < Sizes::PARTS; ++part) {
                fetch_matrix<CHUNK, PAIR_STRIDE>(pairs() + part * CHUNK * PAIR_STRIDE, from + part * Sizes::PAIRS);
            }
        }
    }

    // The matrices of `step` are there for all, and all are done with those of the step before, whose place the next take.
    __device__ __forceinline__ void next_step(int step) const {
        wait_for_copies();
        sync_block();
        fetch(step + 1);
    }

    // T V of this warp's columns, which prepare_chunks left in the output.
    __device__ __forceinline__ float * out_at(int chunk) const {
        return p.a.out + seq * p.a.out_seq + (static_cast<int64_t>(p.first + chunk * CHUNK + 2 * t) * p.a.heads + head) * SIZE + column;
    }

    __device__ __forceinline__ void load_news(int chunk, float (&news)[TILES][4]) const {
        const float * from = out_at(chunk);
        const int valid = p.tokens - chunk * CHUNK - 2 * t, token = p.a.heads * SIZE;
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int row = 8 * n + (c & 1);
                news[n][c] = row < valid ? from[row * token + 8 * (c >> 1)] : 0.0f;
            }
        }
    }

    __device__ __forceinline__ void store_out(int chunk, const float (&out)[TILES][4], float unit) const {
        float * to = out_at(chunk);
        const int valid = p.tokens - chunk * CHUNK - 2 * t, token = p.a.heads * SIZE;
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int row = 8 * n + (c & 1);
                if (row < valid) {
                    to[row * token + 8 * (c >> 1)] = out[n][c] * unit;
                }
            }
        }
    }

    template <int N> __device__ __forceinline__ static float largest(const float (&x)[N][4]) {
        float top = 0.0f;
#pragma unroll
        for (int n = 0; n < N; ++n) {
            top = fmaxf(fmaxf(top, fmaxf(fabsf(x[n][0]), fabsf(x[n][1]))), fmaxf(fabsf(x[n][2]), fabsf(x[n][3])));
        }
        return warp_max(top);
    }

    __device__ __forceinline__ float scale_of_state() const { return power_of_two(half_scale(largest(s))); }

    // c += (rows S)^T with both parts of the rows and of the state, scaled.
    __device__ __forceinline__ void times_rows(float (&c)[TILES][4], const half_bits * matrix, float scale) const {
        const half_bits * rows = matrix + row_as_b(lane) * Sizes::ROW + column_as_b(lane);
#pragma unroll
        for (int k = 0; k < SIZE / 16; ++k) {
            Operand a;
            a.set(s[2 * k], s[2 * k + 1], scale, true);
#pragma unroll
            for (int j = 0; j < TILES / 2; ++j) {
                uint32_t hi[4], lo[4];
                load_matrices(hi, rows + 16 * j * Sizes::ROW + 16 * k);
                load_matrices(lo, rows + Sizes::SHARED_MATRIX + 16 * j * Sizes::ROW + 16 * k);
                multiply_add_pair<3>(c[2 * j], c[2 * j + 1], a, hi, lo);
            }
        }
    }

    // The same for two matrices with one part each.
    __device__ __forceinline__ void times_two(float (&c)[TILES][4], float (&d)[TILES][4], const half_bits * matrix, float scale) const {
        const half_bits * rows = matrix + row_as_b(lane) * Sizes::ROW + column_as_b(lane);
#pragma unroll
        for (int k = 0; k < SIZE / 16; ++k) {
            Operand a;
            a.set(s[2 * k], s[2 * k + 1], scale, false);
#pragma unroll
            for (int j = 0; j < TILES / 2; ++j) {
                uint32_t w[4], q[4];
                load_matrices(w, rows + 16 * j * Sizes::ROW + 16 * k);
                load_matrices(q, rows + Sizes::SHARED_MATRIX + 16 * j * Sizes::ROW + 16 * k);
                multiply_add_pair<1>(c[2 * j], c[2 * j + 1], a, w, w);
                multiply_add_pair<1>(d[2 * j], d[2 * j + 1], a, q, q);
            }
        }
    }

    // news: from T V to beta D.
    __device__ __forceinline__ void take_old(float (&news)[TILES][4], const float (&old)[TILES][4], const float * gate, float state_scale) const {
        const float unit = 1.0f / (UNIT_SCALE * state_scale);
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
            const float2 beta = *reinterpret_cast<const float2 *>(gate + GATE_BETA + 8 * n + 2 * t);
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                news[n][c] = (news[n][c] + old[n][c] * unit) * (c & 1 ? beta.y : beta.x);
            }
        }
    }

    // Scales news to the range of halves, and out, what the state gives, alike. Returns the scale.
    __device__ __forceinline__ float weigh(float (&news)[TILES][4], float (&out)[TILES][4], const float * gate, float state_scale) const {
        const float scale = power_of_two(half_scale(largest(news)));
        // Weights of pairs and queries are scaled alike, so the factor of UNIT_SCALE stays.
        const float common = scale / state_scale;
#pragma unroll
        for (int n = 0; n < TILES; ++n) {
            const float2 grown = *reinterpret_cast<const float2 *>(gate + GATE_OUT + 8 * n + 2 * t);
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                news[n][c] *= scale;
                out[n][c] *= (c & 1 ? grown.y : grown.x) * common;
            }
        }
        return scale;
    }

    // out += (P U)^T, where row t of P ends at column t.
    __device__ __forceinline__ void add_pairs(float (&out)[TILES][4], const float (&news)[TILES][4]) const {
        const half_bits * rows = pairs() + row_as_b(lane) * PAIR_STRIDE + column_as_b(lane);
#pragma unroll
        for (int k = 0; k < CHUNK / 16; ++k) {
            Operand a;
            a.set(news[2 * k], news[2 * k + 1], 1.0f, true);
#pragma unroll
            for (int j = k; j < TILES / 2; ++j) {
                uint32_t hi[4], lo[4];
                load_matrices(hi, rows + 16 * j * PAIR_STRIDE + 16 * k);
                if constexpr (EXACT) {
                    load_matrices(lo, rows + (CHUNK + 16 * j) * PAIR_STRIDE + 16 * k);
                }
                multiply_add_pair<Sizes::CANCELLING>(out[2 * j], out[2 * j + 1], a, hi, lo);
            }
        }
    }

    // S = e^{G_C} S + K^T e^{G_C - G} U, always in three terms: its errors would stay.
    __device__ __forceinline__ void update_state(float (&news)[TILES][4], const float * gate, float news_scale, const half_bits * matrix) {
        const float grow = gate[GATE_ALL] * (UNIT_SCALE * news_scale);
#pragma unroll
        for (int n = 0; n < SIZE / 8; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                s[n][c] *= grow;
            }
        }
        const half_bits * rows = matrix + row_as_a(lane) * Sizes::ROW + column_as_a(lane);
#pragma unroll
        for (int k = 0; k < CHUNK / 16; ++k) {
#pragma unroll
            for (int half_tile = 0; half_tile < 2; ++half_tile) {
                const float2 rest = *reinterpret_cast<const float2 *>(gate + GATE_REST + 16 * k + 8 * half_tile + 2 * t);
#pragma unroll
                for (int c = 0; c < 4; ++c) {
                    news[2 * k + half_tile][c] *= c & 1 ? rest.y : rest.x;
                }
            }
            Operand a;
            a.set(news[2 * k], news[2 * k + 1], 1.0f, true);
#pragma unroll
            for (int n = 0; n < SIZE / 16; ++n) {
                uint32_t hi[4], lo[4];
                load_matrices_turned(hi, rows + 16 * k * Sizes::ROW + 16 * n);
                load_matrices_turned(lo, rows + Sizes::SHARED_MATRIX + 16 * k * Sizes::ROW + 16 * n);
                multiply_add_pair<3>(s[2 * n], s[2 * n + 1], a, hi, lo);
            }
        }
        const float unit = 1.0f / (UNIT_SCALE * news_scale);
#pragma unroll
        for (int n = 0; n < SIZE / 8; ++n) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                s[n][c] *= unit;
            }
        }
    }
};

template <int SIZE, bool EXACT> __global__ void __launch_bounds__(SCAN_THREADS) scan_chunks(const ChunkParams p) {
    PLATEAU_SHARED(shared);
    Scan<SIZE, EXACT>(p, shared).run();
}

} // namespace plateau
