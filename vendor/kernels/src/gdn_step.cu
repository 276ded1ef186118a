// Starts the token-by-token kernel. Compiled with -use_fast_math as upstream's kernel is, so that both give the same bits.
#include "gdn_step.cuh"

namespace plateau {

cudaError_t gdn_step(const GdnArgs & args, cudaStream_t stream) {
    const dim3 grid(args.heads, args.seqs, args.size / (STEP_WARPS * STEP_COLUMNS));
    return args.size == 128 ? launch<step_tokens<128>>(grid, STEP_WARPS * 32, 0, stream, args)
                            : launch<step_tokens<64>>(grid, STEP_WARPS * 32, 0, stream, args);
}

} // namespace plateau
