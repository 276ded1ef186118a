// Attention of a few to many query tokens over a K/V cache that stays in its quantized form. The
// interface, free of ggml.
//
// For: the plug-in and the tests. Not for: choosing when to use it (dispatch.cu).
#pragma once

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

namespace plateau {

// Strides are in bytes. Query f32 [head_dim, token, head, stream]; K and V [head_dim, cell, kv
// head, stream]; mask f16 [cell, token, 1, mask_streams], 0 or -inf or a finite bias; output f32,
// contiguous [head_dim, head, token, stream].
struct FattnArgs {
    const float * q;
    const void * k;
    const void * v;
    const void * mask;
    float * out;
    int head_dim;    // 128 or 256
    int tokens;      // per stream
    int heads;       // a multiple of kv_heads
    int kv_heads;
    int cells;       // a multiple of 64
    int streams;
    int mask_streams;
    int type_k;      // KvType
    int type_v;
    int64_t q_token, q_head, q_stream;
    int64_t k_cell, k_head, k_stream;
    int64_t v_cell, v_head, v_stream;
    int64_t mask_token, mask_stream;
    float scale;
};

// What a device has, as far as a plan depends on it.
struct FattnLimits {
    int multiprocessors;
    int shared_per_multiprocessor; // bytes
    int shared_per_block;
};

// How one call is cut: decided once by `fattn_plan`, so that scratch and launch agree.
struct FattnPlan {
    int row_tiles_of_8; // of a block: 1, 2, 3, 4 or 6
    int row_tiles;      // blocks over the query rows of one KV head
    int splits;         // of the cells
    int cells_per_split;
    int ring;           // tiles of K and V in shared memory
    size_t shared_bytes;
    size_t scratch_bytes; // of device memory, 0 when splits == 1
};

// True where strides, types and sizes are within what the kernel handles. Looks at no data pointer:
// the answer for a tensor is the same when memory is planned and when it runs.
bool fattn_in_domain(const FattnArgs & args);

// Asks the driver once a device; an error then is the answer to every later call.
cudaError_t fattn_limits(int device, FattnLimits & limits);

FattnPlan fattn_plan(const FattnArgs & args, const FattnLimits & limits);

// Asynchronous on `stream` of the current device; `scratch` is device memory of plan.scratch_bytes,
// aligned to 16 bytes.
cudaError_t fattn_launch(const FattnArgs & args, const FattnPlan & plan, void * scratch, cudaStream_t stream);

// Rows (tokens x heads per KV head) that one block takes at most.
constexpr int FATTN_MAX_ROWS = 48;

} // namespace plateau
