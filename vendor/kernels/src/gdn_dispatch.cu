// Takes upstream's entry points for Gated DeltaNet, and for the gather of rows that brings it its state.
//
// For: deciding per tensor who computes it, and per graph whose state is read where it lies in the cache. Not for: the
// kernels; attention (dispatch.cu).
#include "gated_delta_net.cuh"
#include "getrows.cuh"

#include "ggml-backend-impl.h"
#include "ggml-impl.h"

#include "gdn.h"
#include "gdn_dispatch.h"
#include "gdn_in_place.h"
#include "mmq_dispatch.h"
#include "registry.h"

#include <memory>

void up_ggml_cuda_op_gated_delta_net(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
void up_ggml_cuda_op_gated_delta_net_fused_cache(ggml_backend_cuda_context & ctx, ggml_tensor * dst, ggml_cuda_gated_delta_net_fused_cache cache);
void up_ggml_cuda_op_get_rows(ggml_backend_cuda_context & ctx, ggml_tensor * dst);

namespace plateau {

// Tokens from which chunks are faster than steps. On an H200 (gdn_check bench, 48 heads of 128) 32 tokens take 24 us in chunks
// and 39 in steps, 16 tokens 23 and 21: half a chunk leaves room for cards that start two kernels more slowly.
constexpr int64_t CHUNKS_FROM = 32;

// The call as our kernels take it, state and planes where upstream's would be; size 0 where they cannot.
static GdnArgs arguments(const ggml_tensor * dst, const ggml_cuda_gated_delta_net_fused_cache * cache) {
    const ggml_tensor * q = dst->src[0];
    const ggml_tensor * k = dst->src[1];
    const ggml_tensor * v = dst->src[2];
    const ggml_tensor * g = dst->src[3];
    const ggml_tensor * beta = dst->src[4];
    const ggml_tensor * state = dst->src[5];
    GdnArgs a = {};
    const bool fits = g->ne[0] == 1 && v->ne[0] == q->ne[0] && ggml_are_same_shape(q, k) && ggml_are_same_stride(q, k) && ggml_is_contiguous_rows(q)
        && ggml_is_contiguous_rows(v) && ggml_is_contiguous(g) && ggml_is_contiguous(beta) && ggml_is_contiguous(state)
        && q->ne[2] == v->ne[2] && v->ne[3] % q->ne[3] == 0 && q->view_offs % 16 == 0 && k->view_offs % 16 == 0 && v->view_offs % 16 == 0
        && state->view_offs % 16 == 0 && v->ne[2] <= 1 << 20 && v->ne[1] <= 65535 && v->ne[3] <= 65535;
    if (!fits) {
        return a;
    }
    a.q = (const float *) q->data;
    a.k = (const float *) k->data;
    a.v = (const float *) v->data;
    a.g = (const float *) g->data;
    a.beta = (const float *) beta->data;
    a.states = (const float *) state->data;
    a.out = (float *) dst->data;
    a.plane_count = ggml_get_op_params_i32(dst, 0);
    a.size = (int) v->ne[0];
    a.heads = (int) v->ne[1];
    a.k_heads = (int) q->ne[1];
    a.tokens = (int) v->ne[2];
    a.seqs = (int) v->ne[3];
    a.seq_share = (int) (v->ne[3] / q->ne[3]);
    a.k_head = q->nb[1] / sizeof(float);
    a.k_token = q->nb[2] / sizeof(float);
    a.k_seq = q->nb[3] / sizeof(float);
    a.v_head = v->nb[1] / sizeof(float);
    a.v_token = v->nb[2] / sizeof(float);
    a.v_seq = v->nb[3] / sizeof(float);
    a.gate_token = a.heads;
    a.gate_seq = a.gate_token * a.tokens;
    a.out_seq = (int64_t) a.tokens * a.heads * a.size;
    a.scale = 1.0f / sqrtf((float) a.size);
    // Behind the output, or in the cache where upstream has found the copy that follows.
    a.planes = cache ? cache->data : a.out + a.out_seq * a.seqs;
    a.plane_stride = cache ? cache->slot_stride : (int64_t) a.size * a.size * a.heads * a.seqs;
    if (!gdn_in_domain(a)) {
        a.size = 0;
    }
    return a;
}

// The graph that this thread computes, and what was found in it, looked for when the first gather is met: the replay of a
// captured graph needs neither.
static thread_local const ggml_cgraph * current = nullptr;
static thread_local std::unique_ptr<InPlace> found;

static const InPlace * in_place() {
    if (!current || !enabled(GDN_IN_PLACE)) {
        return nullptr;
    }
    if (!found) {
        found = std::make_unique<InPlace>(current, [](const ggml_tensor * net) { return arguments(net, nullptr).size != 0; });
    }
    return found.get();
}

static enum ggml_status (*up_graph_compute)(ggml_backend_t, ggml_cgraph *) = nullptr;
static ggml_backend_t (*up_init_backend)(ggml_backend_dev_t, const char *) = nullptr;

static enum ggml_status graph_compute(ggml_backend_t backend, ggml_cgraph * graph) {
    current = graph;
    found.reset();
    begin_products(graph);
    const enum ggml_status status = up_graph_compute(backend, graph);
    end_products();
    current = nullptr;
    found.reset();
    return status;
}

static ggml_backend_t init_backend(ggml_backend_dev_t device, const char * params) {
    ggml_backend_t backend = up_init_backend(device, params);
    if (backend) {
        up_graph_compute = backend->iface.graph_compute;
        backend->iface.graph_compute = graph_compute;
    }
    return backend;
}

void watch_graphs(ggml_backend_reg_t reg) {
    for (size_t i = 0; i < ggml_backend_reg_dev_count(reg); ++i) {
        ggml_backend_dev_t device = ggml_backend_reg_dev_get(reg, i);
        if (device->iface.init_backend != init_backend) {
            up_init_backend = device->iface.init_backend;
            device->iface.init_backend = init_backend;
        }
    }
}

static void count(Kernel which, bool ours) {
    (ours ? kernel(which).calls : kernel(which).fallbacks).fetch_add(1, std::memory_order_relaxed);
}

// Computes it if it is ours to compute.
static bool compute(ggml_backend_cuda_context & ctx, ggml_tensor * dst, const ggml_cuda_gated_delta_net_fused_cache * cache) {
    const ggml_tensor * gather = dst->src[5]->view_src;
    const bool gathered = gather && gathers_state(gather);
    const InPlace * places = gathered ? in_place() : nullptr;
    const bool placed = places && places->reads(dst);
    GdnArgs a = arguments(dst, cache);
    const int64_t chunked = dst->src[2]->ne[2] - (ggml_get_op_params_i32(dst, 0) - 1);
    const bool long_enough = chunked >= CHUNKS_FROM && dst->src[3]->ne[0] == 1;
    const bool in_chunks = long_enough && enabled(GDN_CHUNK) && a.size != 0;
    if (long_enough && enabled(GDN_CHUNK)) {
        count(GDN_CHUNK, in_chunks);
    }
    if (gathered && enabled(GDN_IN_PLACE)) {
        count(GDN_IN_PLACE, placed);
    }
    if (!placed && !in_chunks) {
        return false;
    }
    ggml_cuda_set_device(ctx.device);
    if (placed) {
        a.states = (const float *) gather->src[0]->data;
        a.row = (const int32_t *) gather->src[1]->data;
    }
    if (!in_chunks) {
        CUDA_CHECK(gdn_step(a, ctx.stream()));
        return true;
    }
    const bool exact = enabled(GDN_EXACT);
    if (exact) {
        count(GDN_EXACT, true);
    }
    ggml_cuda_pool_alloc<char> scratch(ctx.pool(), gdn_scratch_bytes(a, exact));
    CUDA_CHECK(gdn_chunks(a, exact, scratch.ptr, ctx.stream()));
    return true;
}

} // namespace plateau

void ggml_cuda_op_gated_delta_net(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    if (!plateau::compute(ctx, dst, nullptr)) {
        up_ggml_cuda_op_gated_delta_net(ctx, dst);
    }
}

void ggml_cuda_op_gated_delta_net_fused_cache(ggml_backend_cuda_context & ctx, ggml_tensor * dst, ggml_cuda_gated_delta_net_fused_cache cache) {
    if (!plateau::compute(ctx, dst, &cache)) {
        up_ggml_cuda_op_gated_delta_net_fused_cache(ctx, dst, cache);
    }
}

void ggml_cuda_op_get_rows(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    if (plateau::gathers_state(dst)) {
        const plateau::InPlace * places = plateau::in_place();
        if (places && places->skips(dst)) {
            return;
        }
    }
    up_ggml_cuda_op_get_rows(ctx, dst);
}
