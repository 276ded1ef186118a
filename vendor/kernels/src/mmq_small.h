// Products of a quantized matrix with 1 to 16 columns.
//
// For: decode and verification. A step of few tokens reads every weight once, whatever the number of columns. Not for:
// longer batches, experts (MUL_MAT_ID), other formats. Free of ggml; mmq_dispatch.cu decides who computes what.
#pragma once

#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

namespace plateau {

enum class WeightType { Q4_K, Q5_K, Q6_K, IQ4_XS, Q8_0 };

// Columns at most.
constexpr int SMALL_COLUMNS = 16;

// out[c][r] = sum over k of weights[r][k] x[c][k].
struct SmallProduct {
    WeightType type;
    const void * weights;       // rows of `row_bytes`
    const void * other = nullptr; // a second matrix of the same type and shape: both products in one launch
    int64_t row_bytes;
    int rows, k, columns;
    const void * quantized;     // what small_quantize made of x
    float * out;
    float * other_out = nullptr; // of `other`; without it out = product * silu(product of other)
    int64_t out_column;         // floats from column to column of the outputs and of `add`
    const float * add = nullptr; // added to the product, laid out as `out` (may be `out`)
};

// Rows from 16 on without gaps, k a multiple of 256, matrices aligned to 16 bytes and a multiple of them long, 1 to 16 columns.
bool small_in_domain(const SmallProduct & p);

// Memory for x quantized to 8 bits in blocks of 32, as small_quantize writes it.
size_t small_quantized_bytes(int k, int columns);

// x: columns of k floats, `column` floats apart, aligned to 16 bytes.
// `early`: the launch may begin before the one before it in the stream is done (it waits itself).
cudaError_t small_quantize(const float * x, int64_t column, int k, int columns, void * quantized, bool early, cudaStream_t stream);

cudaError_t small_product(const SmallProduct & p, bool early, cudaStream_t stream);

} // namespace plateau
