// The kernels of mmq_small.h.
//
// A block has 16 rows (or 32, or 16 of each of two matrices) and all columns; its warps take turns at pieces of 256 weights
// along k. Each warp brings its own pieces by cp.async into a ring of its own, so that nothing waits for other warps until
// their sums are added up, in a fixed order, at the end. Rows of weights are the M of `mma` on bytes and columns its N: 1 to
// 8 columns cost the same. Each weight is read once; columns come from the L1 cache. The first weights are on their way
// before the kernel that makes the columns has ended, where the card can do that.
#include "mmq_small.h"

#include "mmq_weights.cuh"

namespace plateau {

// To be chosen by measurement: places of a ring, warps and resident blocks, tiles of 16 rows a block.
#ifndef PLATEAU_SMALL_STAGES
#define PLATEAU_SMALL_STAGES 3
#endif
#ifndef PLATEAU_SMALL_WARPS
#define PLATEAU_SMALL_WARPS 4
#endif
#ifndef PLATEAU_SMALL_BLOCKS
#define PLATEAU_SMALL_BLOCKS (MT == 1 ? 4 : 3)
#endif
#ifndef PLATEAU_SMALL_TILES
#define PLATEAU_SMALL_TILES 1
#endif
constexpr int WARPS = PLATEAU_SMALL_WARPS;
constexpr int SHARED_BYTES = 99 * 1024;
// Places in a warp's ring.
template <WeightType type, int MT> __host__ __device__ constexpr int stages() {
    constexpr int place = WARPS * MT * 16 * Weights<type>::STRIDE;
    return place * PLATEAU_SMALL_STAGES <= SHARED_BYTES ? PLATEAU_SMALL_STAGES : SHARED_BYTES / place;
}

// Memory of 256 values of all columns: bytes [pair of blocks][column][t][block of the pair][half], scales
// [pair of blocks][pair of columns][column][block], sums [column][t][rounded, rest][block].
__host__ __device__ constexpr int quantized_bytes(int columns) { return columns * 256 + (columns + 1) / 2 * 64; }
__host__ __device__ constexpr int sums_bytes(int columns) { return columns * 32; }
__host__ __device__ constexpr int chunk_bytes(int columns) { return quantized_bytes(columns) + sums_bytes(columns); }

struct QuantizeParams {
    const float * x;
    int64_t column;
    char * to;
    int k, columns;
};

constexpr int QUANTIZE_THREADS = 128; // 4 values each

// The same numbers as upstream's blocks of 32: d = max / 127, bytes round(x / d).
static __global__ void __launch_bounds__(QUANTIZE_THREADS) small_quantize_columns(const QuantizeParams p) {
    let_later_launch_start();
    const int i = (blockIdx.x * QUANTIZE_THREADS + threadIdx.x) * 4, c = blockIdx.y;
    wait_for_earlier_launch();
    float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (i < p.k) {
        x = *reinterpret_cast<const float4 *>(p.x + c * p.column + i);
    }
    float largest = fmaxf(fmaxf(fabsf(x.x), fabsf(x.y)), fmaxf(fabsf(x.z), fabsf(x.w)));
#pragma unroll
    for (int lanes = 4; lanes > 0; lanes /= 2) {
        largest = fmaxf(largest, shuffle_xor(largest, lanes));
    }
    const float d = largest / 127.0f;
    const bool none = largest == 0.0f;
    const int q[4] = { none ? 0 : static_cast<int>(roundf(x.x / d)), none ? 0 : static_cast<int>(roundf(x.y / d)),
                       none ? 0 : static_cast<int>(roundf(x.z / d)), none ? 0 : static_cast<int>(roundf(x.w / d)) };
    float sum = static_cast<float>(q[0] + q[1] + q[2] + q[3]);
#pragma unroll
    for (int lanes = 4; lanes > 0; lanes /= 2) {
        sum += shuffle_xor(sum, lanes);
    }
    if (i >= p.k) {
        return;
    }
    char * chunk = p.to + static_cast<int64_t>(i / 256) * chunk_bytes(p.columns);
    const int block = i % 256 / 32, pair = block / 2, word = i % 32 / 4, t = word % 4;
    const uint32_t bytes = (q[0] & 255) | (q[1] & 255) << 8 | (q[2] & 255) << 16 | static_cast<uint32_t>(q[3] & 255) << 24;
    reinterpret_cast<uint32_t *>(chunk)[((pair * p.columns + c) * 4 + t) * 4 + 2 * (block & 1) + word / 4] = bytes;
    if (word == 0) {
        float * scales = reinterpret_cast<float *>(chunk + p.columns * 256) + (pair * ((p.columns + 1) / 2) + c / 2) * 4;
        scales[2 * (c & 1) + (block & 1)] = d;
        if (c == p.columns - 1 && c % 2 == 0) {
            scales[2 + (block & 1)] = 0.0f; // of a column that is not there
        }
        const float value = d * sum;
        const uint16_t rounded = to_bf16(value);
        uint16_t * sums = reinterpret_cast<uint16_t *>(chunk + quantized_bytes(p.columns)) + c * 16 + pair * 4 + (block & 1);
        sums[0] = rounded;
        sums[2] = to_bf16(value - as_float(static_cast<uint32_t>(rounded) << 16));
    }
}

struct ProductParams {
    const char * weights[2]; // of the first and the second 16 rows of a block
    float * out[2];
    const float * add;
    const char * quantized;
    int64_t row_bytes, out_column;
    int rows, pieces, columns; // pieces of 256 along k
    bool gated;                // out[0] = first * silu(second)
};

template <WeightType type, int MT, int NT, bool two> __device__ __forceinline__ void small_product_block(const ProductParams & p) {
    using W = Weights<type>;
    constexpr int TILE = 16 * W::STRIDE, STAGE = MT * TILE, STAGES = stages<type, MT>();
    constexpr int COPIES = (16 * W::PIECES + 31) / 32;
    PLATEAU_SHARED(shared);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    char * ring = shared + warp * STAGES * STAGE;

    // The last rows once more where the rows are not a multiple.
    int first_row[MT];
    const char * base[MT];
#pragma unroll
    for (int m = 0; m < MT; ++m) {
        first_row[m] = min(static_cast<int>(blockIdx.x) * 16 * (two ? 1 : MT) + (two ? 0 : 16 * m), p.rows - 16);
        base[m] = p.weights[two ? m : 0] + first_row[m] * p.row_bytes;
    }
    // Where this lane's pieces of 16 bytes are from 16 bytes on that hold the first weight of a tile; of formats that begin
    // anywhere, as many as hold a row's 256 weights wherever they begin, but none behind the matrix.
    uint32_t from[COPIES], most[MT];
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
        const int piece = lane + 32 * i;
        from[i] = static_cast<uint32_t>(piece / W::PIECES * p.row_bytes) + piece % W::PIECES * 16;
    }
#pragma unroll
    for (int m = 0; m < MT; ++m) {
        most[m] = static_cast<uint32_t>((p.rows - first_row[m]) * p.row_bytes) - 16; // enough bits: only the last 16 rows need them
    }
    auto bring = [&](int slot, int at) {
#pragma unroll
        for (int m = 0; m < MT; ++m) {
            char * to = ring + slot * STAGE + m * TILE;
            const uint32_t off = W::ALIGNED ? 0 : static_cast<uint32_t>(reinterpret_cast<uintptr_t>(base[m])) & 15;
            const char * source = base[m] - off + (W::ALIGNED ? static_cast<int64_t>(at) * W::BYTES : 0);
#pragma unroll
            for (int i = 0; i < COPIES; ++i) {
                const int piece = lane + 32 * i;
                if (16 * W::PIECES % 32 != 0 && i == COPIES - 1 && piece >= 16 * W::PIECES) {
                    continue;
                }
                if (W::ALIGNED) {
                    copy_later(to + 16 * piece, source + from[i]);
                } else {
                    const uint32_t place = (from[i] + off + at * W::BYTES) & ~15u;
                    copy_later(to + piece / W::PIECES * W::STRIDE + piece % W::PIECES * 16, source + min(place, most[m] + off));
                }
            }
        }
    };

#pragma unroll
    for (int s = 0; s < STAGES; ++s) {
        if (warp + s * WARPS < p.pieces) {
            bring(s, warp + s * WARPS);
        }
        close_copy_group();
    }
    wait_for_earlier_launch();

    float sum[MT][NT][4] = {};
    const int column_pairs = (p.columns + 1) / 2;
    int slot = 0;
    for (int at = warp; at < p.pieces; at += WARPS) {
        const char * chunk = p.quantized + static_cast<int64_t>(at) * chunk_bytes(p.columns);
        Columns x[NT];
#pragma unroll
        for (int j = 0; j < NT; ++j) {
            const int c = min(8 * j + g, p.columns - 1), pair = min(4 * j + t, column_pairs - 1);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                x[j].q[i] = load_constant(reinterpret_cast<const uint4 *>(chunk) + (i * p.columns + c) * 4 + t);
                x[j].d[i] = load_constant(reinterpret_cast<const float4 *>(chunk + p.columns * 256) + i * column_pairs + pair);
            }
            if (type == WeightType::Q4_K || type == WeightType::Q5_K) {
                x[j].sum = load_constant(reinterpret_cast<const uint2 *>(chunk + quantized_bytes(p.columns)) + c * 4 + t);
            }
        }
        wait_for_copy_groups<STAGES - 1>();
        sync_warp();
#pragma unroll
        for (int m = 0; m < MT; ++m) {
            const char * tile = ring + slot * STAGE + m * TILE;
            const char * low = tile + g * W::STRIDE;
            const char * high = low + 8 * W::STRIDE;
            if (!W::ALIGNED) {
                const uint32_t begin = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(base[m])) + at * W::BYTES + g * static_cast<uint32_t>(p.row_bytes);
                low += begin & 15;
                high += (begin + 8 * static_cast<uint32_t>(p.row_bytes)) & 15;
            }
            W::template add<NT>(sum[m], low, high, t, x);
        }
        sync_warp();
        if (at + STAGES * WARPS < p.pieces) {
            bring(slot, at + STAGES * WARPS);
        }
        close_copy_group();
        slot = slot + 1 == STAGES ? 0 : slot + 1;
    }
    wait_for_copies();
    let_later_launch_start();

    // Sums of the warps, in their order.
    sync_block();
    float * sums = reinterpret_cast<float *>(shared);
#pragma unroll
    for (int m = 0; m < MT; ++m) {
#pragma unroll
        for (int j = 0; j < NT; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                // Row g + 8 (e / 2), column 8 j + 2 t + e % 2; a row more of room, so that lanes meet few in a bank.
                sums[((warp * MT + m) * NT * 8 + 8 * j + 2 * t + (e & 1)) * 17 + g + 8 * (e >> 1)] = sum[m][j][e];
            }
        }
    }
    sync_block();
    constexpr int OUTPUTS = (two ? 1 : MT) * NT * 8 * 16;
    for (int i = threadIdx.x; i < OUTPUTS; i += WARPS * 32) {
        const int row = i & 15, c = (i >> 4) % (8 * NT), m = (i >> 4) / (8 * NT);
        if (c >= p.columns) {
            continue;
        }
        auto total = [&](int tile) {
            float x = 0.0f;
            for (int w = 0; w < WARPS; ++w) {
                x += sums[((w * MT + tile) * NT * 8 + c) * 17 + row];
            }
            return x;
        };
        const int64_t place = c * p.out_column + first_row[two ? 0 : m] + row;
        float x = total(m);
        if (two) {
            const float y = total(1);
            if (p.gated) {
                x *= y / (1.0f + exponential(-y));
            } else {
                p.out[1][place] = y;
            }
        }
        if (p.add) {
            x += p.add[place];
        }
        p.out[0][place] = x;
    }
}

template <WeightType type, int MT, int NT, bool two> static __global__ void __launch_bounds__(WARPS * 32, NT == 1 ? PLATEAU_SMALL_BLOCKS : 1) small_product_rows(const ProductParams p) {
    small_product_block<type, MT, NT, two>(p);
}

size_t small_quantized_bytes(int k, int columns) { return static_cast<size_t>(k / 256) * chunk_bytes(columns); }

cudaError_t small_quantize(const float * x, int64_t column, int k, int columns, void * quantized, bool early, cudaStream_t stream) {
    const QuantizeParams p = { x, column, static_cast<char *>(quantized), k, columns };
    const int values = QUANTIZE_THREADS * 4;
    return launch_early<small_quantize_columns>(dim3((k + values - 1) / values, columns), QUANTIZE_THREADS, 0, stream, p, early);
}

static int bytes_of_256(WeightType type) {
    switch (type) {
        case WeightType::Q4_K: return Weights<WeightType::Q4_K>::BYTES;
        case WeightType::Q5_K: return Weights<WeightType::Q5_K>::BYTES;
        case WeightType::Q6_K: return Weights<WeightType::Q6_K>::BYTES;
        case WeightType::IQ4_XS: return Weights<WeightType::IQ4_XS>::BYTES;
        case WeightType::Q8_0: return Weights<WeightType::Q8_0>::BYTES;
    }
    return 0;
}

bool small_in_domain(const SmallProduct & p) {
    return p.rows >= 16 && p.k >= 256 && p.k % 256 == 0 && p.columns >= 1 && p.columns <= SMALL_COLUMNS
        && reinterpret_cast<uintptr_t>(p.weights) % 16 == 0 && reinterpret_cast<uintptr_t>(p.other) % 16 == 0 
        && p.row_bytes == static_cast<int64_t>(p.k / 256) * bytes_of_256(p.type) && p.row_bytes * p.rows % 16 == 0 && p.row_bytes * p.rows < 0xffff0000LL
        && !(p.add && p.other);
}

template <WeightType type, int MT, int NT, bool two> static cudaError_t start(const SmallProduct & p, bool early, cudaStream_t stream) {
    using W = Weights<type>;
    ProductParams a = {};
    a.weights[0] = static_cast<const char *>(p.weights);
    a.weights[1] = static_cast<const char *>(p.other);
    a.out[0] = p.out;
    a.out[1] = p.other_out;
    a.gated = two && !p.other_out;
    a.add = p.add;
    a.quantized = static_cast<const char *>(p.quantized);
    a.row_bytes = p.row_bytes;
    a.out_column = p.out_column;
    a.rows = p.rows;
    a.pieces = p.k / 256;
    a.columns = p.columns;
    const int rows = 16 * (two ? 1 : MT);
    const int ring = WARPS * stages<type, MT>() * MT * 16 * W::STRIDE, sums = WARPS * MT * NT * 8 * 17 * static_cast<int>(sizeof(float));
    return launch_early<small_product_rows<type, MT, NT, two>>(dim3((p.rows + rows - 1) / rows), 32 * WARPS, ring > sums ? ring : sums, stream, a, early);
}

template <WeightType type> static cudaError_t start_type(const SmallProduct & p, bool early, cudaStream_t stream) {
    if (p.other) {
        return p.columns <= 8 ? start<type, 2, 1, true>(p, early, stream) : start<type, 2, 2, true>(p, early, stream);
    }
    return p.columns <= 8 ? start<type, PLATEAU_SMALL_TILES, 1, false>(p, early, stream) : start<type, 1, 2, false>(p, early, stream);
}

cudaError_t small_product(const SmallProduct & p, bool early, cudaStream_t stream) {
    switch (p.type) {
        case WeightType::Q4_K: return start_type<WeightType::Q4_K>(p, early, stream);
        case WeightType::Q5_K: return start_type<WeightType::Q5_K>(p, early, stream);
        case WeightType::Q6_K: return start_type<WeightType::Q6_K>(p, early, stream);
        case WeightType::IQ4_XS: return start_type<WeightType::IQ4_XS>(p, early, stream);
        case WeightType::Q8_0: return start_type<WeightType::Q8_0>(p, early, stream);
    }
    return cudaErrorInvalidValue;
}

} // namespace plateau
