// Starts the attention kernels as planned, and asks a device what it has.
#include "fattn_attention.cuh"
#include "fattn_combine.cuh"
#include "fattn_plan.cuh"

namespace plateau {

static cudaError_t ask_limits(int device, FattnLimits & l) {
    cudaError_t error = cudaDeviceGetAttribute(&l.multiprocessors, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&l.shared_per_multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
    }
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&l.shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    return error;
}

cudaError_t fattn_limits(int device, FattnLimits & limits) {
    struct Answer {
        std::once_flag asked;
        cudaError_t error = cudaSuccess;
        FattnLimits limits = {};
    };
    static Answer answers[MOST_DEVICES];
    if (device < 0 || device >= MOST_DEVICES) {
        return cudaErrorInvalidDevice;
    }
    Answer & answer = answers[device];
    std::call_once(answer.asked, [&] { answer.error = ask_limits(device, answer.limits); });
    limits = answer.limits;
    return answer.error;
}

template <int HEAD>
static cudaError_t launch_attention(const AttentionParams & p, const FattnPlan & plan, cudaStream_t stream) {
    const dim3 grid(plan.row_tiles, p.a.kv_heads * p.a.streams, plan.splits);
    switch (plan.row_tiles_of_8) {
        case 1: return launch<attention<HEAD, 1>>(grid, THREADS, plan.shared_bytes, stream, p);
        case 2: return launch<attention<HEAD, 2>>(grid, THREADS, plan.shared_bytes, stream, p);
        case 3: return launch<attention<HEAD, 3>>(grid, THREADS, plan.shared_bytes, stream, p);
        case 4: return launch<attention<HEAD, 4>>(grid, THREADS, plan.shared_bytes, stream, p);
        case 6: return launch<attention<HEAD, 6>>(grid, THREADS, plan.shared_bytes, stream, p);
        default: return cudaErrorInvalidValue;
    }
}

template <int HEAD> static cudaError_t run(const AttentionParams & p, const FattnPlan & plan, int64_t all_rows, cudaStream_t stream) {
    const cudaError_t error = launch_attention<HEAD>(p, plan, stream);
    if (error != cudaSuccess || plan.splits == 1) {
        return error;
    }
    return launch<combine<HEAD>>(dim3(static_cast<unsigned>(all_rows)), combine_threads(HEAD), 0, stream, p);
}

cudaError_t fattn_launch(const FattnArgs & a, const FattnPlan & plan, void * scratch, cudaStream_t stream) {
    AttentionParams p = {};
    p.a = a;
    p.group = a.heads / a.kv_heads;
    p.rows = a.tokens * p.group;
    p.splits = plan.splits;
    p.cells_per_split = plan.cells_per_split;
    p.ring = plan.ring;
    p.mask_tokens = mask_tokens_of(a, plan.row_tiles_of_8);
    p.slot_bytes = slot_bytes_of(a, p.mask_tokens);
    const int64_t all_rows = static_cast<int64_t>(a.streams) * a.tokens * a.heads;
    p.partial = static_cast<float *>(scratch);
    p.meta = reinterpret_cast<float2 *>(p.partial + plan.splits * all_rows * a.head_dim);
    return a.head_dim == 256 ? run<256>(p, plan, all_rows, stream) : run<128>(p, plan, all_rows, stream);
}

} // namespace plateau
