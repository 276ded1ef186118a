// Takes upstream's entry points for products with quantized matrices, and for the SwiGLU or the sum behind them.
//
// For: deciding per product who computes it, and what products of a graph share. Not for: the kernels (mmq_small.cu).
#include "binbcast.cuh"
#include "mmq.cuh"
#include "mmvq.cuh"
#include "unary.cuh"

#include "mmq_dispatch.h"
#include "mmq_graph.h"
#include "mmq_small.h"
#include "registry.h"

#include <memory>
#include <unordered_set>

void up_ggml_cuda_mul_mat_vec_q(ggml_backend_cuda_context & ctx, const ggml_tensor * src0, const ggml_tensor * src1, const ggml_tensor * ids,
                                ggml_tensor * dst, const ggml_cuda_mm_fusion_args_host * fusion);
void up_ggml_cuda_mul_mat_q(ggml_backend_cuda_context & ctx, const ggml_tensor * src0, const ggml_tensor * src1, const ggml_tensor * ids, ggml_tensor * dst);
void up_ggml_cuda_op_swiglu(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
void up_ggml_cuda_op_add(ggml_backend_cuda_context & ctx, ggml_tensor * dst);

namespace plateau {

// Of the graph that this thread computes. Columns are quantized into memory that is held until the graph ends, so that
// another product of the same columns can read them again; they are those of one tensor at a time.
struct Evaluation {
    const ggml_cgraph * graph = nullptr;
    std::unique_ptr<SharedProducts> shared; // looked for at the first product: a replayed graph needs none
    ggml_backend_cuda_context * ctx = nullptr;
    std::unique_ptr<ggml_cuda_pool_alloc<char>> memory;
    size_t bytes = 0;
    const ggml_tensor * columns = nullptr;          // whose the memory holds
    std::unordered_set<const ggml_tensor *> done; // computed along with another node
};
static thread_local Evaluation now;

void begin_products(const ggml_cgraph * graph) {
    end_products();
    now.graph = graph;
}

void end_products() { now = Evaluation(); }

static bool weight_type(ggml_type type, WeightType & found) {
    switch (type) {
        case GGML_TYPE_Q4_K: found = WeightType::Q4_K; return true;
        case GGML_TYPE_Q5_K: found = WeightType::Q5_K; return true;
        case GGML_TYPE_Q6_K: found = WeightType::Q6_K; return true;
        case GGML_TYPE_IQ4_XS: found = WeightType::IQ4_XS; return true;
        case GGML_TYPE_Q8_0: found = WeightType::Q8_0; return true;
        default: return false;
    }
}

// The launch may begin before the one before it has ended: cards that know such launches, and matrices that no kernel writes.
static bool may_start_early(const ggml_tensor * weights) {
    static const bool wanted = [] {
        const char * text = getenv("GGML_CUDA_PDL"); // upstream's switch for all of its kernels
        return text == nullptr || atoi(text) != 0;
    }();
    return PLATEAU_CUDA_ARCH >= 90 && wanted && ggml_backend_buffer_get_usage(weights->buffer) == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

// The columns, quantized; made unless the memory holds them.
static const void * quantized(ggml_backend_cuda_context & ctx, const ggml_tensor * columns, bool early) {
    const size_t bytes = small_quantized_bytes((int) columns->ne[0], (int) columns->ne[1]);
    if (!now.memory || now.bytes < bytes) {
        now.memory.reset(); // before the next: the pool is a stack
        now.memory = std::make_unique<ggml_cuda_pool_alloc<char>>(ctx.pool(), bytes);
        now.bytes = bytes;
        now.columns = nullptr;
    }
    if (now.columns != columns) {
        CUDA_CHECK(small_quantize((const float *) columns->data, columns->nb[1] / sizeof(float), (int) columns->ne[0], (int) columns->ne[1], now.memory->get(),
                                  early, ctx.stream()));
        now.columns = now.shared->steady(columns) ? columns : nullptr;
    }
    return now.memory->get();
}

// The call as our kernels take it; `rows` 0 where they cannot.
static SmallProduct arguments(const ggml_tensor * weights, const ggml_tensor * columns, const ggml_tensor * dst) {
    SmallProduct p = {};
    const bool fits = weight_type(weights->type, p.type) && columns->type == GGML_TYPE_F32 && dst->type == GGML_TYPE_F32 && ggml_is_contiguous(weights)
        && ggml_is_matrix(weights) && ggml_is_matrix(columns) && ggml_is_matrix(dst) && columns->nb[0] == sizeof(float) && columns->nb[1] % 16 == 0
        && (uintptr_t) columns->data % 16 == 0 && dst->nb[0] == sizeof(float) && columns->ne[0] == weights->ne[0] && dst->ne[0] == weights->ne[1]
        && dst->ne[1] == columns->ne[1] && weights->ne[0] <= 1 << 20 && weights->ne[1] <= 1 << 24;
    if (!fits) {
        return p;
    }
    p.weights = weights->data;
    p.row_bytes = weights->nb[1];
    p.rows = (int) weights->ne[1];
    p.k = (int) weights->ne[0];
    p.columns = (int) columns->ne[1];
    p.out = (float *) dst->data;
    p.out_column = dst->nb[1] / sizeof(float);
    if (!small_in_domain(p)) {
        p.rows = 0;
    }
    return p;
}

// Takes what follows the product into the same launch: nothing runs between them, so the memory of what they make is free by
// now. Upstream does so for one column.
static void join(SmallProduct & p, const ggml_tensor * columns, const ggml_tensor * dst) {
    if (const Gate * gate = now.shared->gate(dst)) {
        SmallProduct last = arguments(gate->up->src[0], columns, gate->out);
        last.other = gate->gate->src[0]->data;
        if (last.rows != 0 && small_in_domain(last)) {
            p = last;
            now.done.insert(gate->gate == dst ? gate->up : gate->gate);
            now.done.insert(gate->out);
        }
    } else if (const Sum * sum = now.shared->sum(dst)) {
        p.out = (float *) sum->out->data;
        p.out_column = sum->out->nb[1] / sizeof(float);
        p.add = (const float *) sum->other->data;
        now.done.insert(sum->out);
    }
}

// Computes it if it is ours to compute. A product with what upstream joins to it has the last node as `dst`.
static bool compute(ggml_backend_cuda_context & ctx, const ggml_tensor * weights, const ggml_tensor * columns, ggml_tensor * dst,
                    const ggml_cuda_mm_fusion_args_host * joined) {
    WeightType type;
    if (!enabled(MMQ_SMALL) || !weight_type(weights->type, type) || columns->ne[1] > SMALL_COLUMNS) {
        return false;
    }
    if (now.done.erase(dst)) {
        return true;
    }
    SmallProduct p = arguments(weights, columns, dst);
    // One stream: with several, memory that is held over nodes would have to be watched across them.
    bool ours = p.rows != 0 && now.graph && ctx.curr_stream_no == 0 && (!now.ctx || now.ctx == &ctx);
    if (ours && joined) {
        const bool gated = joined->gate && !joined->x_bias && joined->glu_op == GGML_GLU_OP_SWIGLU && ggml_is_contiguous(joined->gate);
        const bool added = !joined->gate && joined->x_bias && joined->x_bias->type == GGML_TYPE_F32 && ggml_are_same_shape(joined->x_bias, dst)
            && ggml_are_same_stride(joined->x_bias, dst);
        ours = (gated || added) && !joined->gate_bias && !joined->x_scale && !joined->gate_scale && !joined->shared_up;
        p.other = gated ? joined->gate->data : nullptr;
        p.add = added ? (const float *) joined->x_bias->data : nullptr;
        ours = ours && small_in_domain(p);
    }
    if (!ours) {
        kernel(MMQ_SMALL).fallbacks.fetch_add(1, std::memory_order_relaxed);
        return false;
    }
    ggml_cuda_set_device(ctx.device);
    now.ctx = &ctx;
    if (!now.shared) {
        now.shared = std::make_unique<SharedProducts>(now.graph);
    }
    if (!joined) {
        join(p, columns, dst);
    }
    const bool early = may_start_early(weights);
    p.quantized = quantized(ctx, columns, early);
    kernel(MMQ_SMALL).calls.fetch_add(1, std::memory_order_relaxed);
    CUDA_CHECK(small_product(p, early, ctx.stream()));
    return true;
}

} // namespace plateau

void ggml_cuda_mul_mat_vec_q(ggml_backend_cuda_context & ctx, const ggml_tensor * src0, const ggml_tensor * src1, const ggml_tensor * ids, ggml_tensor * dst,
                             const ggml_cuda_mm_fusion_args_host * fusion) {
    if (ids || !plateau::compute(ctx, src0, src1, dst, fusion)) {
        up_ggml_cuda_mul_mat_vec_q(ctx, src0, src1, ids, dst, fusion);
    }
}

void ggml_cuda_mul_mat_q(ggml_backend_cuda_context & ctx, const ggml_tensor * src0, const ggml_tensor * src1, const ggml_tensor * ids, ggml_tensor * dst) {
    if (ids || !plateau::compute(ctx, src0, src1, dst, nullptr)) {
        up_ggml_cuda_mul_mat_q(ctx, src0, src1, ids, dst);
    }
}

void ggml_cuda_op_swiglu(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    if (!plateau::now.done.erase(dst)) {
        up_ggml_cuda_op_swiglu(ctx, dst);
    }
}

void ggml_cuda_op_add(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    if (!plateau::now.done.erase(dst)) {
        up_ggml_cuda_op_add(ctx, dst);
    }
}
