// Takes upstream's entry points for attention and for the choice between small-batch products.
//
// For: deciding per tensor who computes it, and how much memory is planned for it; both from the same facts, so that a
// tensor never meets a kernel for which no memory was planned. Not for: the kernels.
#include "common.cuh"

#include "fattn_quant.h"
#include "kv_types.cuh"
#include "registry.h"

bool ggml_cuda_flash_attn_ext_supported(int device, const ggml_tensor * dst);
size_t up_ggml_cuda_flash_attn_ext_get_alloc_size(int device, const ggml_tensor * dst);
void up_ggml_cuda_flash_attn_ext(ggml_backend_cuda_context & ctx, ggml_tensor * dst);
bool up_ggml_cuda_should_use_mmvq(enum ggml_type type, int cc, int64_t ne11);

namespace plateau {

// Tokens up to which a batch counts as decode or verification.
constexpr int64_t FEW_TOKENS = 32;

static int kv_type(ggml_type type) {
    switch (type) {
        case GGML_TYPE_F16: return static_cast<int>(KvType::F16);
        case GGML_TYPE_Q8_0: return static_cast<int>(KvType::Q8_0);
        case GGML_TYPE_Q5_0: return static_cast<int>(KvType::Q5_0);
        case GGML_TYPE_Q4_1: return static_cast<int>(KvType::Q4_1);
        case GGML_TYPE_Q4_0: return static_cast<int>(KvType::Q4_0);
        default: return -1;
    }
}

// The call as our kernel takes it; head_dim 0 where it cannot.
static FattnArgs arguments(const ggml_tensor * dst) {
    const ggml_tensor * q = dst->src[0];
    const ggml_tensor * k = dst->src[1];
    const ggml_tensor * v = dst->src[2];
    const ggml_tensor * mask = dst->src[3];
    float scale = 1.0f, max_bias = 0.0f, softcap = 0.0f;
    memcpy(&scale, (const float *) dst->op_params + 0, sizeof scale);
    memcpy(&max_bias, (const float *) dst->op_params + 1, sizeof max_bias);
    memcpy(&softcap, (const float *) dst->op_params + 2, sizeof softcap);

    FattnArgs a = {};
    const bool fits = mask && !dst->src[4] && max_bias == 0.0f && softcap == 0.0f && q->type == GGML_TYPE_F32
        && dst->type == GGML_TYPE_F32 && mask->type == GGML_TYPE_F16 && mask->ne[2] == 1 && mask->ne[0] >= k->ne[1]
        && mask->ne[1] >= q->ne[1] && ggml_is_contiguous(dst) && k->ne[0] == q->ne[0] && v->ne[0] == q->ne[0]
        && k->ne[1] == v->ne[1] && k->ne[2] == v->ne[2] && k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3]
        && q->ne[2] % k->ne[2] == 0 && q->nb[0] == sizeof(float) && mask->nb[0] == sizeof(half)
        && k->nb[0] == ggml_type_size(k->type) && v->nb[0] == ggml_type_size(v->type) && k->view_offs % 16 == 0
        && v->view_offs % 16 == 0 && q->view_offs % 16 == 0 && mask->view_offs % 16 == 0 && k->ne[1] <= 1 << 24 && q->ne[1] <= 1 << 20;
    if (!fits) {
        return a;
    }
    a.q = (const float *) q->data;
    a.k = k->data;
    a.v = v->data;
    a.mask = mask->data;
    a.out = (float *) dst->data;
    a.head_dim = (int) q->ne[0];
    a.tokens = (int) q->ne[1];
    a.heads = (int) q->ne[2];
    a.kv_heads = (int) k->ne[2];
    a.cells = (int) k->ne[1];
    a.streams = (int) q->ne[3];
    a.mask_streams = (int) mask->ne[3];
    a.type_k = kv_type(k->type);
    a.type_v = kv_type(v->type);
    a.q_token = q->nb[1];
    a.q_head = q->nb[2];
    a.q_stream = q->nb[3];
    a.k_cell = k->nb[1];
    a.k_head = k->nb[2];
    a.k_stream = k->nb[3];
    a.v_cell = v->nb[1];
    a.v_head = v->nb[2];
    a.v_stream = v->nb[3];
    a.mask_token = mask->nb[1];
    a.mask_stream = mask->nb[3];
    a.scale = scale;
    if (!fattn_in_domain(a)) {
        a.head_dim = 0;
    }
    return a;
}

// Which of our kernels a tensor is work for: where K or V is quantized, upstream would convert the whole cache.
static Kernel kernel_for(const ggml_tensor * dst) {
    const bool quantized = ggml_is_quantized(dst->src[1]->type) || ggml_is_quantized(dst->src[2]->type);
    if (!quantized) {
        return KERNELS;
    }
    return dst->src[0]->ne[1] <= FEW_TOKENS ? FATTN_QUANT : FATTN_QUANT_PREFILL;
}

static bool is_ours(const ggml_tensor * dst, FattnArgs & a) {
    const Kernel which = kernel_for(dst);
    if (which == KERNELS || !enabled(which)) {
        return false;
    }
    a = arguments(dst);
    return a.head_dim != 0;
}

} // namespace plateau

using namespace plateau;

size_t ggml_cuda_flash_attn_ext_get_alloc_size(int device, const ggml_tensor * dst) {
    FattnArgs a;
    if (is_ours(dst, a)) {
        return ggml_nbytes(dst);
    }
    return up_ggml_cuda_flash_attn_ext_get_alloc_size(device, dst);
}

void ggml_cuda_flash_attn_ext(ggml_backend_cuda_context & ctx, ggml_tensor * dst) {
    FattnArgs a;
    const Kernel which = kernel_for(dst);
    if (!is_ours(dst, a)) {
        if (which != KERNELS && enabled(which)) {
            kernel(which).fallbacks.fetch_add(1, std::memory_order_relaxed);
        }
        up_ggml_cuda_flash_attn_ext(ctx, dst);
        return;
    }
    ggml_cuda_set_device(ctx.device);
    kernel(which).calls.fetch_add(1, std::memory_order_relaxed);
    FattnLimits limits = {};
    CUDA_CHECK(fattn_limits(ggml_cuda_info().devices[ctx.device].physical_device, limits));
    const FattnPlan plan = fattn_plan(a, limits);
    ggml_cuda_pool_alloc<char> scratch(ctx.pool());
    if (plan.scratch_bytes > 0) {
        scratch.alloc(plan.scratch_bytes);
    }
    CUDA_CHECK(fattn_launch(a, plan, scratch.ptr, ctx.stream()));
}

bool ggml_cuda_should_use_mmvq(enum ggml_type type, int cc, int64_t ne11) {
    const int limit = mmvq_limit();
    const bool k_quant = type == GGML_TYPE_Q4_K || type == GGML_TYPE_Q5_K || type == GGML_TYPE_Q6_K || type == GGML_TYPE_IQ4_XS;
    if (limit > 0 && k_quant) {
        kernel(MMVQ_LIMIT).calls.fetch_add(1, std::memory_order_relaxed);
        return ne11 <= limit;
    }
    return up_ggml_cuda_should_use_mmvq(type, cc, ne11);
}
