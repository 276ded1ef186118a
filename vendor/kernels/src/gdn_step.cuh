// Gated DeltaNet token by token, in f32: decode, verification, and the last tokens of a prefill.
//
// A warp owns COLUMNS columns of the state, 32 lanes over its rows, as upstream's kernel has one column a warp: k and q are
// read half as often, and the sums of two columns hide each other's latency. What a lane adds to what, and where a product
// is fused, is upstream's, read off its machine code for sm_86, so that switching
// should change no bit (gdn_compare decides). The inputs of the next token are
// under way while this one is computed.
//
// The state may be read where it lies in the cache, also if a plane is written over it: a lane writes only what it has
// itself read before.
#pragma once

#include "gdn.h"
#include "warp.cuh"

namespace plateau {

constexpr int STEP_WARPS = 4;
constexpr int STEP_COLUMNS = 2; // of a warp

// Sums over the lanes, several at a time.
template <int N> __device__ __forceinline__ void warp_sums(float (&x)[N]) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            x[i] += shuffle_xor(x[i], lanes);
        }
    }
}

// What a warp needs of one token.
template <int ROWS, int COLUMNS> struct StepInputs {
    float k[ROWS], q[ROWS], v[COLUMNS], g, beta;

    __device__ __forceinline__ void load(const GdnArgs & a, int token, int head, int seq, int column) {
        const int lane = threadIdx.x & 31;
        const int64_t at = seq / a.seq_share * a.k_seq + token * a.k_token + head % a.k_heads * a.k_head + lane;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            k[r] = a.k[at + 32 * r];
            q[r] = a.q[at + 32 * r];
        }
        const float * from = a.v + seq * a.v_seq + token * a.v_token + head * a.v_head + column;
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
            v[c] = from[c];
        }
        const int64_t gate = seq * a.gate_seq + token * a.gate_token + head;
        g = a.g[gate];
        beta = a.beta[gate];
    }
};

template <int SIZE> __global__ void __launch_bounds__(STEP_WARPS * 32) step_tokens(const GdnArgs a) {
    constexpr int ROWS = SIZE / 32;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int head = blockIdx.x, seq = blockIdx.y;
    const int column = (blockIdx.z * STEP_WARPS + warp) * STEP_COLUMNS;
    const int64_t head_state = (static_cast<int64_t>(seq) * a.heads + head) * SIZE * SIZE + column * SIZE + lane;

    const float * from = a.states + head_state;
    if (a.row) {
        from += static_cast<int64_t>(*a.row) * a.heads * SIZE * SIZE;
    }
    float s[STEP_COLUMNS][ROWS];
#pragma unroll
    for (int c = 0; c < STEP_COLUMNS; ++c) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            s[c][r] = from[c * SIZE + 32 * r];
        }
    }

    float * out = a.out + seq * a.out_seq + head * SIZE + column;
    StepInputs<ROWS, STEP_COLUMNS> next;
    next.load(a, 0, head, seq, column);
    for (int token = 0; token < a.tokens; ++token) {
        const StepInputs<ROWS, STEP_COLUMNS> x = next;
        if (token + 1 < a.tokens) {
            next.load(a, token + 1, head, seq, column);
        }
        const float decay = exponential(x.g);
        float sum[STEP_COLUMNS];
#pragma unroll
        for (int c = 0; c < STEP_COLUMNS; ++c) {
            sum[c] = 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                sum[c] = fmaf(s[c][r], x.k[r], sum[c]);
            }
        }
        warp_sums(sum);
#pragma unroll
        for (int c = 0; c < STEP_COLUMNS; ++c) {
            const float delta = fmaf(sum[c], -decay, x.v[c]) * x.beta;
            sum[c] = 0.0f;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                s[c][r] = fmaf(decay, s[c][r], product(x.k[r], delta));
                sum[c] = fmaf(s[c][r], x.q[r], sum[c]);
            }
        }
        warp_sums(sum);
        if (lane == 0) {
#pragma unroll
            for (int c = 0; c < STEP_COLUMNS; ++c) {
                out[c] = sum[c] * a.scale;
            }
        }
        out += a.heads * SIZE;

        const int plane = a.tokens - 1 - token;
        if (plane < a.plane_count) {
            float * to = a.planes + plane * a.plane_stride + head_state;
#pragma unroll
            for (int c = 0; c < STEP_COLUMNS; ++c) {
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    to[c * SIZE + 32 * r] = s[c][r];
                }
            }
        }
    }
}

} // namespace plateau
