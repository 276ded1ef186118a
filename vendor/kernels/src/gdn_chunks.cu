// Starts the chunked kernels, segment by segment, and steps through the tokens that are left for the planes.
#include "gdn_prepare.cuh"
#include "gdn_scan.cuh"

namespace plateau {

// Parts of the scratch, in bytes from its beginning.
struct ScratchPlan {
    size_t k, q, w, p, gates, bytes;
};

static ScratchPlan plan_scratch(const GdnArgs & a, int chunks, bool exact) {
    const size_t parts = exact ? 2 : 1, matrix = sizeof(half_bits) * CHUNK * a.size, pairs = sizeof(half_bits) * CHUNK * CHUNK;
    const size_t keys = static_cast<size_t>(a.seqs) * chunks * a.k_heads, heads = static_cast<size_t>(a.seqs) * chunks * a.heads;
    ScratchPlan plan = {};
    plan.q = plan.k + keys * 2 * matrix;
    plan.w = plan.q + keys * parts * matrix;
    plan.p = plan.w + heads * parts * matrix;
    plan.gates = plan.p + heads * parts * pairs;
    plan.bytes = plan.gates + heads * GATES * sizeof(float);
    return plan;
}

static int chunks_of(int tokens) { return (tokens + CHUNK - 1) / CHUNK; }

// All but the tokens whose states are kept.
static int chunked_tokens(const GdnArgs & a) { return a.tokens - (a.plane_count - 1); }

bool gdn_in_domain(const GdnArgs & a) {
    auto whole = [](int64_t stride) { return stride % 4 == 0; }; // rows are read 16 bytes at a time
    return (a.size == 64 || a.size == 128) && a.heads > 0 && a.k_heads > 0 && a.heads % a.k_heads == 0 && a.tokens > 0 && a.seqs > 0
        && a.heads <= 65535 && a.seqs <= 65535 && a.seq_share > 0 && a.seqs % a.seq_share == 0 && a.plane_count > 0
        && whole(a.k_token) && whole(a.k_head) && whole(a.k_seq) && whole(a.v_token) && whole(a.v_head) && whole(a.v_seq)
        && whole(a.plane_stride) && whole(a.out_seq) && (!a.row || a.seqs == 1);
}

size_t gdn_scratch_bytes(const GdnArgs & a, bool exact) {
    const int tokens = chunked_tokens(a) < GDN_SEGMENT_TOKENS ? chunked_tokens(a) : GDN_SEGMENT_TOKENS;
    return plan_scratch(a, chunks_of(tokens), exact).bytes;
}

template <int SIZE, bool EXACT> static cudaError_t run_segment(const ChunkParams & p, cudaStream_t stream) {
    const cudaError_t error = launch<prepare_chunks<SIZE, EXACT>>(dim3(p.chunks, p.a.heads, p.a.seqs), PREPARE_THREADS,
                                                                  PrepareShared<SIZE, EXACT>::BYTES, stream, p);
    if (error != cudaSuccess) {
        return error;
    }
    return launch<scan_chunks<SIZE, EXACT>>(dim3(SIZE / SCAN_COLUMNS, p.a.heads, p.a.seqs), SCAN_THREADS,
                                            ScanShared<SIZE, EXACT>::BYTES, stream, p);
}

static cudaError_t run_segment(const ChunkParams & p, bool exact, cudaStream_t stream) {
    if (p.a.size == 128) {
        return exact ? run_segment<128, true>(p, stream) : run_segment<128, false>(p, stream);
    }
    return exact ? run_segment<64, true>(p, stream) : run_segment<64, false>(p, stream);
}

cudaError_t gdn_chunks(const GdnArgs & args, bool exact, void * scratch, cudaStream_t stream) {
    const int tokens = chunked_tokens(args);
    // The oldest plane is the state after the chunks, and where segments hand the state on.
    float * after = args.planes + (args.plane_count - 1) * args.plane_stride;
    for (int first = 0; first < tokens; first += GDN_SEGMENT_TOKENS) {
        ChunkParams p = {};
        p.a = args;
        p.first = first;
        p.tokens = tokens - first < GDN_SEGMENT_TOKENS ? tokens - first : GDN_SEGMENT_TOKENS;
        p.chunks = chunks_of(p.tokens);
        const ScratchPlan plan = plan_scratch(args, p.chunks, exact);
        char * base = static_cast<char *>(scratch);
        p.k = reinterpret_cast<half_bits *>(base + plan.k);
        p.q = reinterpret_cast<half_bits *>(base + plan.q);
        p.w = reinterpret_cast<half_bits *>(base + plan.w);
        p.p = reinterpret_cast<half_bits *>(base + plan.p);
        p.gates = reinterpret_cast<float *>(base + plan.gates);
        p.states = first == 0 ? args.states : after;
        p.row = first == 0 ? args.row : nullptr;
        p.states_after = after;
        const cudaError_t error = run_segment(p, exact, stream);
        if (error != cudaSuccess) {
            return error;
        }
    }
    if (args.plane_count == 1) {
        return cudaSuccess;
    }
    GdnArgs rest = args;
    rest.q += tokens * args.k_token;
    rest.k += tokens * args.k_token;
    rest.v += tokens * args.v_token;
    rest.g += tokens * args.gate_token;
    rest.beta += tokens * args.gate_token;
    rest.out += static_cast<int64_t>(tokens) * args.heads * args.size;
    rest.states = after;
    rest.row = nullptr;
    rest.tokens = args.plane_count - 1;
    rest.plane_count = args.plane_count - 1;
    return gdn_step(rest, stream);
}

} // namespace plateau
