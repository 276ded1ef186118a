// Gated DeltaNet on a card: the state S of a head takes S = e^g S + k (beta (v - (e^g S)^T k))^T and gives S^T q, token by
// token. Two ways to compute it; the interface, free of ggml.
//
// For: the plug-in, the device tests and the emulation. Not for: choosing between them (gdn_dispatch.cu); gates a channel
// (KDA), which stay upstream's.
#pragma once

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

namespace plateau {

// Strides are in floats. q, k [size, k_heads, tokens, seqs / seq_share]; v [size, heads, tokens, seqs]; g, beta [heads,
// tokens, seqs]. Head h takes k-head h % k_heads. A state is [column of v][row of k] a head, heads one after the other.
struct GdnArgs {
    const float * q;
    const float * k;
    const float * v;
    const float * g;
    const float * beta;
    const float * states;  // of the sequences, `heads * size * size` floats each
    const int32_t * row;   // device memory or null: the state is that many states further on (one sequence only)
    float * out;           // [size, heads, tokens, seqs], contiguous but for out_seq
    float * planes;        // plane i gets the state before the last i tokens, for the last min(tokens, plane_count) tokens
    int64_t plane_stride;
    int plane_count;       // at least 1
    int size;              // 64 or 128
    int heads, k_heads;
    int tokens, seqs, seq_share;
    int64_t k_token, k_head, k_seq; // of q too
    int64_t v_token, v_head, v_seq;
    int64_t gate_token, gate_seq;   // of g and beta
    int64_t out_seq;
    float scale;           // of the output
};

// True where sizes and strides are within what the kernels handle. Looks at no data pointer.
bool gdn_in_domain(const GdnArgs & args);

// Token by token, in upstream's order of operations and rounding: the same bits. Asynchronous on `stream`.
cudaError_t gdn_step(const GdnArgs & args, cudaStream_t stream);

// Chunks of 64 tokens on tensor cores for all but the last plane_count - 1 tokens, which are stepped, so that the planes are
// what they would have been. `exact`: every product in three terms, else only those that the state depends on most.
// `tokens` must be at least plane_count. `scratch`: gdn_scratch_bytes, aligned to 256 bytes.
cudaError_t gdn_chunks(const GdnArgs & args, bool exact, void * scratch, cudaStream_t stream);
size_t gdn_scratch_bytes(const GdnArgs & args, bool exact);

// Tokens of a chunk, and tokens that share the scratch memory: longer batches go through it piece by piece.
constexpr int GDN_CHUNK_TOKENS = 64;
constexpr int GDN_SEGMENT_TOKENS = 1024;

} // namespace plateau
