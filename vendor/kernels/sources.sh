# What the plug-in is made of. Sourced by build.sh.
#
# Upstream's files are compiled unmodified; those of RENAMED get some entry points under another name, so that ours, which
# have the old names, are called and can call upstream's.
UPSTREAM_GLOBS='*.cu template-instances/fattn-tile*.cu template-instances/fattn-mma*.cu template-instances/mmq*.cu template-instances/mmf*.cu'
# K-V pairs of upstream's vector kernel (one token at a time without our kernel).
FA_PAIRS='f16-f16 bf16-bf16 q8_0-q8_0 q5_0-q4_1 q8_0-q4_0 q4_0-q4_0'
FA_TYPES='q4_0 q4_1 q5_0 q5_1 q8_0 bf16 f16'
RENAMED=(
    'fattn.cu ggml_cuda_flash_attn_ext ggml_cuda_flash_attn_ext_get_alloc_size'
    'mmvq.cu ggml_cuda_should_use_mmvq ggml_cuda_mul_mat_vec_q'
    'mmq.cu ggml_cuda_mul_mat_q'
    'unary.cu ggml_cuda_op_swiglu'
    'binbcast.cu ggml_cuda_op_add'
    'gated_delta_net.cu ggml_cuda_op_gated_delta_net ggml_cuda_op_gated_delta_net_fused_cache'
    'getrows.cu ggml_cuda_op_get_rows'
    'ggml-cuda.cu ggml_backend_init'
)
# Kernels of ours, free of ggml; those of FAST_MATH are compiled as upstream's are, for the same bits.
KERNEL_SOURCES='src/fattn_quant.cu src/gdn_chunks.cu src/gdn_step.cu src/mmq_small.cu'
FAST_MATH='src/gdn_step.cu src/mmq_small.cu'
OURS="$KERNEL_SOURCES src/gdn_in_place.cu src/gdn_dispatch.cu src/mmq_graph.cu src/mmq_dispatch.cu src/dispatch.cu src/registry.cu"
