// Second kernel of the attention: adds up what the ranges of cells made of one output row.
#pragma once

#include "fattn_params.cuh"

namespace plateau {

constexpr int COMBINE_GROUPS = 8;
__host__ __device__ constexpr int combine_threads(int head) { return head / 4 * COMBINE_GROUPS; }

__device__ __forceinline__ float top_of_parts(const AttentionParams & p, int64_t row, int64_t all_rows) {
    float top = -INFINITY;
    for (int s = 0; s < p.splits; ++s) {
        top = fmaxf(top, p.meta[s * all_rows + row].x);
    }
    return top;
}

// Four columns of the parts share, share + 8, ..., each brought to the maximum `top`.
template <int HEAD>
__device__ __forceinline__ void add_parts(const AttentionParams & p, int64_t row, int64_t all_rows, int share, int column, float top,
                                          float4 & sum, float & total) {
#pragma unroll 4
    for (int s = share; s < p.splits; s += COMBINE_GROUPS) {
        const float2 meta = p.meta[s * all_rows + row];
        const float4 x = *reinterpret_cast<const float4 *>(p.partial + (s * all_rows + row) * HEAD + 4 * column);
        const float w = meta.x == -INFINITY ? 0.0f : power2(meta.x - top);
        total += w * meta.y;
        sum.x += w * x.x;
        sum.y += w * x.y;
        sum.z += w * x.z;
        sum.w += w * x.w;
    }
}

// A block a row, its threads HEAD / 4 columns by 8 shares of the splits.
template <int HEAD> __global__ void __launch_bounds__(combine_threads(HEAD)) combine(const AttentionParams p) {
    PLATEAU_SHARED_ARRAY(float4, sums, [COMBINE_GROUPS][HEAD / 4]);
    PLATEAU_SHARED_ARRAY(float, totals, [COMBINE_GROUPS]);
    const int64_t row = blockIdx.x, all_rows = gridDim.x;
    const int column = threadIdx.x % (HEAD / 4), share = threadIdx.x / (HEAD / 4);
    const float top = top_of_parts(p, row, all_rows);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float total = 0.0f;
    add_parts<HEAD>(p, row, all_rows, share, column, top, sum, total);
    sums[share][column] = sum;
    if (column == 0) {
        totals[share] = total;
    }
    sync_block();
    if (share == 0) {
        for (int i = 1; i < COMBINE_GROUPS; ++i) {
            const float4 x = sums[i][column];
            sum.x += x.x;
            sum.y += x.y;
            sum.z += x.z;
            sum.w += x.w;
            total += totals[i];
        }
        const float f = total > 0.0f ? 1.0f / total : 0.0f;
        reinterpret_cast<float4 *>(p.a.out + row * HEAD)[column] = make_float4(sum.x * f, sum.y * f, sum.z * f, sum.w * f);
    }
}

} // namespace plateau
