// Flash attention over a quantized K/V cache, dequantized in registers on its way into the tensor cores.
//
// For: decode and verification (1 to 8 tokens a sequence), where converting the whole cache to f16 costs several times the
// attention itself, and prefill, where the f16 copy costs memory. Not for: ALiBi, soft caps, sinks, other head sizes.
//
// A block owns one KV head, up to 48 query rows (tokens x heads of the group) and a range of cells, in steps of 64 cells:
//   S^T = K Q^T   each of the 4 warps takes 16 cells: cells are the M of the matrix unit, so 6 query rows waste 2, not 10
//   P^T           goes through shared memory as f16
//   O^T = V^T P^T each warp takes a quarter of the head's width over all 64 cells
// Tiles of K and V alternate in a ring that cp.async fills. What several blocks make of one row is added up by `combine`.
#include "fattn_quant.h"

#include "kv_types.cuh"

namespace plateau {

constexpr int CELLS = 64;         // of a tile
constexpr int WARPS = 4;
constexpr int THREADS = WARPS * 32;
constexpr int P_STRIDE = CELLS + 8;    // halves; 144 bytes: 8 rows fall into different banks
constexpr int MASK_STRIDE = CELLS + 8; // halves
constexpr float LOG2E = 1.4426950408889634f;
// P may exceed 1 by this factor (as a power of two) before the running maximum is moved: f16 keeps its precision.
constexpr float SLACK = 8.0f;

struct Params {
    FattnArgs a;
    float * partial;   // [split][row of the output][head_dim], not yet divided
    float2 * meta;     // [split][row of the output]: maximum (base 2), sum
    int group;         // query heads per KV head
    int rows;          // tokens * group
    int splits;
    int cells_per_split;
    int ring;
    int slot_bytes;
    int mask_tokens;   // of a block
};

__device__ __forceinline__ uint32_t shared_address(const void * p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

template <int bytes> __device__ __forceinline__ void copy_async(void * to, const void * from) {
    if constexpr (bytes == 16) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(to)), "l"(from) : "memory");
    }
}

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the newest ring - 2 groups have arrived.
__device__ __forceinline__ void wait_copies(int ring) {
    if (ring == 2) {
        asm volatile("cp.async.wait_group 0;" ::: "memory");
    } else if (ring == 3) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    }
}

__device__ __forceinline__ void load_matrices_4(uint32_t (&r)[4], const void * p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(p)) : "memory");
}

__device__ __forceinline__ void mma(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ float power2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Starts the copy of one tile's rows.
template <KvType type, int HEAD> __device__ __forceinline__ void load_rows(char * slot, const char * from, int64_t stride) {
    constexpr int bytes = HEAD / 32 * block_bytes(type);
    constexpr int piece = bytes % 16 == 0 ? 16 : 8;
    constexpr int pieces = bytes / piece;
    constexpr int row = 4 * row_words(type, HEAD);
#pragma unroll 4
    for (int i = threadIdx.x; i < CELLS * pieces; i += THREADS) {
        const int r = i / pieces, c = i % pieces;
        copy_async<piece>(slot + r * row + c * piece, from + r * stride + c * piece);
    }
}

template <int HEAD> __device__ __forceinline__ void load_tile(int type, char * slot, const char * from, int64_t stride) {
    switch (static_cast<KvType>(type)) {
        case KvType::F16: load_rows<KvType::F16, HEAD>(slot, from, stride); break;
        case KvType::Q8_0: load_rows<KvType::Q8_0, HEAD>(slot, from, stride); break;
        case KvType::Q5_0: load_rows<KvType::Q5_0, HEAD>(slot, from, stride); break;
        case KvType::Q4_1: load_rows<KvType::Q4_1, HEAD>(slot, from, stride); break;
        case KvType::Q4_0: load_rows<KvType::Q4_0, HEAD>(slot, from, stride); break;
    }
}

// S^T of 16 cells: s[j] is the 16 x 8 tile of query rows 8 j.. .
template <KvType type, int HEAD, int NT>
__device__ __forceinline__ void scores_of(const char * slot, const half * q, float (&s)[NT][4]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    constexpr int words = row_words(type, HEAD);
    const uint32_t * low = reinterpret_cast<const uint32_t *>(slot) + (16 * warp + g) * words;
    const uint32_t * high = low + 8 * words;
    const half * q_lane = q + (lane & 7) * (HEAD + 8) + 8 * (lane >> 3);
#pragma unroll
    for (int block = 0; block < HEAD / 32; ++block) {
        uint32_t a[2][2], b[2][2];
        if (block & 1) {
            key_block<type, 1>(low, block >> 1, t, a);
            key_block<type, 1>(high, block >> 1, t, b);
        } else {
            key_block<type, 0>(low, block >> 1, t, a);
            key_block<type, 0>(high, block >> 1, t, b);
        }
#pragma unroll
        for (int j = 0; j < NT; ++j) {
            uint32_t r[4];
            load_matrices_4(r, q_lane + 8 * j * (HEAD + 8) + 32 * block);
            mma(s[j], a[0][0], b[0][0], a[0][1], b[0][1], r[0], r[1]);
            mma(s[j], a[1][0], b[1][0], a[1][1], b[1][1], r[2], r[3]);
        }
    }
}

template <int HEAD, int NT> __device__ __forceinline__ void scores(int type, const char * slot, const half * q, float (&s)[NT][4]) {
    switch (static_cast<KvType>(type)) {
        case KvType::F16: scores_of<KvType::F16, HEAD, NT>(slot, q, s); break;
        case KvType::Q8_0: scores_of<KvType::Q8_0, HEAD, NT>(slot, q, s); break;
        case KvType::Q5_0: scores_of<KvType::Q5_0, HEAD, NT>(slot, q, s); break;
        case KvType::Q4_1: scores_of<KvType::Q4_1, HEAD, NT>(slot, q, s); break;
        case KvType::Q4_0: scores_of<KvType::Q4_0, HEAD, NT>(slot, q, s); break;
    }
}

// O^T += V^T P^T for this warp's quarter of the head.
template <KvType type, int HEAD, int NT>
__device__ __forceinline__ void values_of(const char * slot, const half * p, float (&o)[HEAD / 64][NT][4]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    constexpr int words = row_words(type, HEAD);
    const uint32_t * rows = reinterpret_cast<const uint32_t *>(slot) + 2 * t * words;
    const half * p_lane = p + (lane & 7) * P_STRIDE + 8 * (lane >> 3);
#pragma unroll
    for (int half_tile = 0; half_tile < 2; ++half_tile) {
        uint32_t b[NT][4];
#pragma unroll
        for (int j = 0; j < NT; ++j) {
            load_matrices_4(b[j], p_lane + 8 * j * P_STRIDE + 32 * half_tile);
        }
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const uint32_t * row = rows + (32 * half_tile + 16 * step) * words;
            uint32_t near[HEAD / 32], far[HEAD / 32];
            value_pair<type, HEAD>(row, row + words, warp, g, near);
            value_pair<type, HEAD>(row + 8 * words, row + 9 * words, warp, g, far);
#pragma unroll
            for (int i = 0; i < HEAD / 64; ++i) {
#pragma unroll
                for (int j = 0; j < NT; ++j) {
                    mma(o[i][j], near[2 * i], near[2 * i + 1], far[2 * i], far[2 * i + 1], b[j][2 * step], b[j][2 * step + 1]);
                }
            }
        }
    }
}

template <int HEAD, int NT> __device__ __forceinline__ void values(int type, const char * slot, const half * p, float (&o)[HEAD / 64][NT][4]) {
    switch (static_cast<KvType>(type)) {
        case KvType::F16: values_of<KvType::F16, HEAD, NT>(slot, p, o); break;
        case KvType::Q8_0: values_of<KvType::Q8_0, HEAD, NT>(slot, p, o); break;
        case KvType::Q5_0: values_of<KvType::Q5_0, HEAD, NT>(slot, p, o); break;
        case KvType::Q4_1: values_of<KvType::Q4_1, HEAD, NT>(slot, p, o); break;
        case KvType::Q4_0: values_of<KvType::Q4_0, HEAD, NT>(slot, p, o); break;
    }
}

// exp2(s - m) as f16 into shared memory, [query row][cell]; adds what was stored to the sums.
template <int NT> __device__ __forceinline__ void store_weights(half * p, const float (&s)[NT][4], const float (&m)[NT][2], float (&sum)[NT][2]) {
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const float top = m[j][c] == -INFINITY ? 0.0f : m[j][c];
            const half low = __float2half_rn(power2(s[j][c] - top));
            const half high = __float2half_rn(power2(s[j][c + 2] - top));
            half * row = p + (8 * j + 2 * t + c) * P_STRIDE + 16 * warp + g;
            row[0] = low;
            row[8] = high;
            sum[j][c] = __half2float(low) + __half2float(high);
        }
    }
}

// The query rows of this block as f16, scaled to base 2, in the order in which keys arrive; rows past the end are zero.
template <int HEAD, int NT> __device__ __forceinline__ void load_query(const Params & p, half * q, int row0, int kv_head, int stream) {
    for (int i = threadIdx.x; i < 8 * NT * (HEAD / 4); i += THREADS) {
        const int r = i / (HEAD / 4), e = i % (HEAD / 4) * 4, row = row0 + r;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (row < p.rows) {
            const char * from = reinterpret_cast<const char *>(p.a.q) + row / p.group * p.a.q_token
                + (kv_head * p.group + row % p.group) * p.a.q_head + stream * p.a.q_stream;
            x = *reinterpret_cast<const float4 *>(from + 4 * e);
        }
        const float f = p.a.scale * LOG2E;
        const float y[4] = { x.x * f, x.y * f, x.z * f, x.w * f };
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            const int place = query_place(static_cast<KvType>(p.a.type_k), (e + n) & 15);
            q[r * (HEAD + 8) + ((e + n) & ~15) + place] = __float2half_rn(y[n]);
        }
    }
}

// Blocks a multiprocessor must be able to hold: 128, 168 or 255 registers a thread.
__host__ __device__ constexpr int resident_blocks(int row_tiles_of_8) {
    return row_tiles_of_8 <= 1 ? 4 : row_tiles_of_8 <= 3 ? 3 : 2;
}

template <int HEAD, int NT>
__global__ void __launch_bounds__(THREADS, resident_blocks(NT)) attention(const Params p) {
    extern __shared__ __align__(16) char shared[];
    half * q = reinterpret_cast<half *>(shared);
    half * weights = q + 8 * NT * (HEAD + 8);
    float * warp_rows = reinterpret_cast<float *>(weights + 8 * NT * P_STRIDE); // [warp][query row]
    char * ring = reinterpret_cast<char *>(warp_rows + WARPS * 8 * NT);

    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
    const int row0 = blockIdx.x * 8 * NT, kv_head = blockIdx.y % p.a.kv_heads, stream = blockIdx.y / p.a.kv_heads;
    const int split = blockIdx.z;
    const int first = split * p.cells_per_split;
    const int tiles = (min(p.cells_per_split, p.a.cells - first)) / CELLS;
    const int token0 = row0 / p.group;

    const char * k = static_cast<const char *>(p.a.k) + kv_head * p.a.k_head + stream * p.a.k_stream + first * p.a.k_cell;
    const char * v = static_cast<const char *>(p.a.v) + kv_head * p.a.v_head + stream * p.a.v_stream + first * p.a.v_cell;
    const char * mask = reinterpret_cast<const char *>(p.a.mask) + stream % p.a.mask_streams * p.a.mask_stream
        + token0 * p.a.mask_token + static_cast<int64_t>(first) * sizeof(half);
    const int k_bytes = CELLS * 4 * row_words(static_cast<KvType>(p.a.type_k), HEAD);

    // Tile n is K of step n / 2 (with its piece of the mask) when n is even, V when it is odd.
    auto load = [&](int n) {
        if (n < 2 * tiles) {
            char * slot = ring + n % p.ring * p.slot_bytes;
            const int64_t cell = static_cast<int64_t>(n >> 1) * CELLS;
            if (n & 1) {
                load_tile<HEAD>(p.a.type_v, slot, v + cell * p.a.v_cell, p.a.v_cell);
            } else {
                load_tile<HEAD>(p.a.type_k, slot, k + cell * p.a.k_cell, p.a.k_cell);
                for (int i = threadIdx.x; i < p.mask_tokens * 8; i += THREADS) {
                    const int token = min(i >> 3, p.a.tokens - 1 - token0);
                    copy_async<16>(slot + k_bytes + (i >> 3) * MASK_STRIDE * 2 + (i & 7) * 16,
                                   mask + token * p.a.mask_token + cell * 2 + (i & 7) * 16);
                }
            }
        }
        commit_copies();
    };

    // Tiles 0 .. ring - 2 here, tile n + ring - 1 whenever tile n - 1 is done with.
    for (int n = 0; n < p.ring - 1; ++n) {
        load(n);
    }
    load_query<HEAD, NT>(p, q, row0, kv_head, stream);

    float o[HEAD / 64][NT][4], m[NT][2], l[NT][2];
    uint32_t mask_at[NT]; // where the two columns of this lane find their token's mask, in halves
#pragma unroll
    for (int j = 0; j < NT; ++j) {
        const int a = min((row0 + 8 * j + 2 * t) / p.group, p.a.tokens - 1) - token0;
        const int b = min((row0 + 8 * j + 2 * t + 1) / p.group, p.a.tokens - 1) - token0;
        mask_at[j] = a * MASK_STRIDE | b * MASK_STRIDE << 16;
        m[j][0] = m[j][1] = -INFINITY;
        l[j][0] = l[j][1] = 0.0f;
#pragma unroll
        for (int i = 0; i < HEAD / 64; ++i) {
            o[i][j][0] = o[i][j][1] = o[i][j][2] = o[i][j][3] = 0.0f;
        }
    }

    for (int step = 0; step < tiles; ++step) {
        wait_copies(p.ring);
        __syncthreads(); // K has arrived for all; all are done with the last V and P
        load(2 * step + p.ring - 1);
        const char * k_slot = ring + 2 * step % p.ring * p.slot_bytes;
        float s[NT][4] = {};
        scores<HEAD, NT>(p.a.type_k, k_slot, q, s);

        bool rises = false;
        const half * tile_mask = reinterpret_cast<const half *>(k_slot + k_bytes) + 16 * warp + g;
#pragma unroll
        for (int j = 0; j < NT; ++j) {
#pragma unroll
            for (int c = 0; c < 4; ++c) {
                const int at = (c & 1) ? mask_at[j] >> 16 : mask_at[j] & 0xffff;
                const float bias = __half2float(tile_mask[at + (c >> 1) * 8]);
                s[j][c] = bias == -INFINITY ? -INFINITY : fmaf(bias, LOG2E, s[j][c]);
                rises |= s[j][c] > m[j][c & 1] + SLACK;
            }
        }
        float sum[NT][2];
        store_weights<NT>(weights, s, m, sum);
        wait_copies(p.ring);
        if (__syncthreads_or(rises)) { // V and P are there for all; all are done with K
            // Rare after the first step: move the maximum and weigh this tile again.
#pragma unroll
            for (int j = 0; j < NT; ++j) {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    float top = fmaxf(s[j][c], s[j][c + 2]);
#pragma unroll
                    for (int lanes = 4; lanes < 32; lanes *= 2) {
                        top = fmaxf(top, __shfl_xor_sync(0xffffffff, top, lanes));
                    }
                    if (g == 0) {
                        warp_rows[warp * 8 * NT + 8 * j + 2 * t + c] = top;
                    }
                }
            }
            __syncthreads();
#pragma unroll
            for (int j = 0; j < NT; ++j) {
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                    float top = m[j][c];
#pragma unroll
                    for (int w = 0; w < WARPS; ++w) {
                        top = fmaxf(top, warp_rows[w * 8 * NT + 8 * j + 2 * t + c]);
                    }
                    const float shrink = top == -INFINITY ? 1.0f : power2(m[j][c] - top);
                    m[j][c] = top;
                    l[j][c] *= shrink;
#pragma unroll
                    for (int i = 0; i < HEAD / 64; ++i) {
                        o[i][j][c] *= shrink;
                        o[i][j][c + 2] *= shrink;
                    }
                }
            }
            store_weights<NT>(weights, s, m, sum);
            __syncthreads();
        }
        load(2 * step + p.ring);
#pragma unroll
        for (int j = 0; j < NT; ++j) {
            l[j][0] += sum[j][0];
            l[j][1] += sum[j][1];
        }
        values<HEAD, NT>(p.a.type_v, ring + (2 * step + 1) % p.ring * p.slot_bytes, weights, o);
    }

    // Sums over the cells of all warps.
    __syncthreads();
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            float x = l[j][c];
#pragma unroll
            for (int lanes = 4; lanes < 32; lanes *= 2) {
                x += __shfl_xor_sync(0xffffffff, x, lanes);
            }
            if (g == 0) {
                warp_rows[warp * 8 * NT + 8 * j + 2 * t + c] = x;
            }
        }
    }
    __syncthreads();

    const bool nibbles = p.a.type_v == int(KvType::Q4_0) || p.a.type_v == int(KvType::Q4_1) || p.a.type_v == int(KvType::Q5_0);
    const int64_t all_rows = static_cast<int64_t>(p.a.streams) * p.a.tokens * p.a.heads;
#pragma unroll
    for (int j = 0; j < NT; ++j) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
            const int r = 8 * j + 2 * t + c, row = row0 + r;
            if (row >= p.rows) {
                continue;
            }
            float total = 0.0f;
#pragma unroll
            for (int w = 0; w < WARPS; ++w) {
                total += warp_rows[w * 8 * NT + r];
            }
            const int64_t out_row = (static_cast<int64_t>(stream) * p.a.tokens + row / p.group) * p.a.heads
                + kv_head * p.group + row % p.group;
            float * to = p.a.out + out_row * HEAD;
            float f = total > 0.0f ? 1.0f / total : 0.0f;
            if (p.splits > 1) {
                to = p.partial + (split * all_rows + out_row) * HEAD;
                f = 1.0f;
                if (warp == 0 && g == 0) {
                    p.meta[split * all_rows + out_row] = make_float2(m[j][c], total);
                }
            }
#pragma unroll
            for (int run = 0; run < HEAD / 128; ++run) {
                const int at = nibbles ? value_place<KvType::Q4_0, HEAD>(g, run) : value_place<KvType::F16, HEAD>(g, run);
                const float4 x = make_float4(o[2 * run][j][c] * f, o[2 * run][j][c + 2] * f, o[2 * run + 1][j][c] * f,
                                             o[2 * run + 1][j][c + 2] * f);
                *reinterpret_cast<float4 *>(to + warp * (HEAD / 4) + at) = x;
            }
        }
    }
}

constexpr int COMBINE_GROUPS = 8;

// Adds the parts of one output row: a block a row, its threads HEAD / 4 columns by 8 shares of the splits.
template <int HEAD> __global__ void __launch_bounds__(HEAD / 4 * COMBINE_GROUPS) combine(const Params p) {
    __shared__ float4 sums[COMBINE_GROUPS][HEAD / 4];
    __shared__ float totals[COMBINE_GROUPS];
    const int64_t row = blockIdx.x, all_rows = gridDim.x;
    const int column = threadIdx.x % (HEAD / 4), share = threadIdx.x / (HEAD / 4);
    float top = -INFINITY;
    for (int s = 0; s < p.splits; ++s) {
        top = fmaxf(top, p.meta[s * all_rows + row].x);
    }
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float total = 0.0f;
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
    sums[share][column] = sum;
    if (column == 0) {
        totals[share] = total;
    }
    __syncthreads();
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

using Kernel = void (*)(Params);

static Kernel kernel_of(int head_dim, int row_tiles_of_8) {
    const bool wide = head_dim == 256;
    switch (row_tiles_of_8) {
        case 1: return wide ? attention<256, 1> : attention<128, 1>;
        case 2: return wide ? attention<256, 2> : attention<128, 2>;
        case 3: return wide ? attention<256, 3> : attention<128, 3>;
        case 4: return wide ? attention<256, 4> : attention<128, 4>;
        default: return wide ? attention<256, 6> : attention<128, 6>;
    }
}

bool fattn_in_domain(const FattnArgs & a) {
    auto aligned = [&](int type, int64_t cell, int64_t head, int64_t stream) {
        const int bytes = a.head_dim / 32 * block_bytes(static_cast<KvType>(type));
        const int piece = bytes % 16 == 0 ? 16 : 8;
        return cell % piece == 0 && head % piece == 0 && stream % piece == 0;
    };
    return (a.head_dim == 128 || a.head_dim == 256) && a.type_k >= 0 && a.type_k < KV_TYPES && a.type_v >= 0 && a.type_v < KV_TYPES
        && a.tokens > 0 && a.streams > 0 && a.kv_heads > 0 && a.heads > 0 && a.heads % a.kv_heads == 0
        && static_cast<int64_t>(a.kv_heads) * a.streams <= 65535 && a.cells >= CELLS && a.cells % CELLS == 0
        && a.mask_streams > 0 && a.streams % a.mask_streams == 0
        && a.q_token % 16 == 0 && a.q_head % 16 == 0 && a.q_stream % 16 == 0 && a.mask_token % 16 == 0 && a.mask_stream % 16 == 0
        && aligned(a.type_k, a.k_cell, a.k_head, a.k_stream) && aligned(a.type_v, a.v_cell, a.v_head, a.v_stream);
}

// Tokens whose rows a block can touch.
static int mask_tokens_of(const FattnArgs & a, int row_tiles_of_8) {
    const int group = a.heads / a.kv_heads;
    const int spread = (8 * row_tiles_of_8 + group - 2) / group + 1;
    return spread < a.tokens ? spread : a.tokens;
}

static int slot_bytes_of(const FattnArgs & a, int mask_tokens) {
    const int k = CELLS * 4 * row_words(static_cast<KvType>(a.type_k), a.head_dim) + mask_tokens * MASK_STRIDE * 2;
    const int v = CELLS * 4 * row_words(static_cast<KvType>(a.type_v), a.head_dim);
    return ((k > v ? k : v) + 15) / 16 * 16;
}

static size_t shared_bytes_of(const FattnArgs & a, int row_tiles_of_8, int ring) {
    const int rows = 8 * row_tiles_of_8;
    return static_cast<size_t>(rows) * (a.head_dim + 8) * 2 + rows * P_STRIDE * 2 + WARPS * rows * 4
        + static_cast<size_t>(ring) * slot_bytes_of(a, mask_tokens_of(a, row_tiles_of_8));
}

struct DeviceLimits {
    int multiprocessors, shared_per_multiprocessor, shared_per_block;
};

static const DeviceLimits & limits_of(int device) {
    static DeviceLimits limits[64] = {};
    DeviceLimits & l = limits[device & 63];
    if (l.multiprocessors == 0) {
        cudaDeviceGetAttribute(&l.shared_per_multiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device);
        cudaDeviceGetAttribute(&l.shared_per_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        int multiprocessors = 0;
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
        l.multiprocessors = multiprocessors > 0 ? multiprocessors : 1;
    }
    return l;
}

// Blocks of one multiprocessor: what registers allow by the launch bounds, what shared memory allows.
static int residency(const DeviceLimits & l, int row_tiles_of_8, size_t shared) {
    const int by_registers = resident_blocks(row_tiles_of_8);
    const int by_shared = l.shared_per_multiprocessor / static_cast<int>(shared + 1024);
    return by_shared < by_registers ? by_shared : by_registers;
}

FattnPlan fattn_plan(const FattnArgs & a, int device) {
    const DeviceLimits & l = limits_of(device);
    FattnPlan plan = {};
    const int rows = a.tokens * (a.heads / a.kv_heads);
    const int tiles_of_8 = (rows + 7) / 8;
    plan.row_tiles = (rows + FATTN_MAX_ROWS - 1) / FATTN_MAX_ROWS;
    // The same share for every block: 64 rows are two blocks of 32, not 48 and 16.
    const int share = (tiles_of_8 + plan.row_tiles - 1) / plan.row_tiles;
    plan.row_tiles_of_8 = share <= 4 ? share : 6;

    int blocks = 0;
    for (int ring = 2; ring <= 4; ++ring) {
        const size_t shared = shared_bytes_of(a, plan.row_tiles_of_8, ring);
        const int here = shared <= static_cast<size_t>(l.shared_per_block) ? residency(l, plan.row_tiles_of_8, shared) : 0;
        if (ring == 2 || here >= blocks) {
            plan.ring = ring;
            plan.shared_bytes = shared;
            blocks = here > 1 ? here : 1;
        }
    }

    const int slots = l.multiprocessors * blocks;
    const int base = plan.row_tiles * a.kv_heads * a.streams;
    const int tiles = a.cells / CELLS;
    int splits = slots / base;
    if (splits < 2) {
        // More than half a wave of blocks: cut the cells so that the last wave is as full as possible.
        splits = 1;
        float best = 0.0f;
        for (int s = 1; s <= 6 && 4 * s <= tiles; ++s) {
            const int waves = (base * s + slots - 1) / slots;
            const float full = static_cast<float>(base * s) / (waves * slots);
            if (full > best + 0.05f) {
                best = full;
                splits = s;
            }
        }
    }
    const int least = tiles < 4 ? tiles : 4; // tiles that are worth a part of their own
    splits = splits < tiles / least ? splits : tiles / least;
    const int per_split = (tiles + splits - 1) / splits;
    plan.cells_per_split = per_split * CELLS;
    plan.splits = (tiles + per_split - 1) / per_split;
    if (plan.splits > 1) {
        plan.scratch_bytes = static_cast<size_t>(plan.splits) * a.streams * a.tokens * a.heads * (a.head_dim * sizeof(float) + sizeof(float2));
    }
    return plan;
}

cudaError_t fattn_launch(const FattnArgs & a, const FattnPlan & plan, void * scratch, cudaStream_t stream) {
    Params p = {};
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

    const Kernel kernel = kernel_of(a.head_dim, plan.row_tiles_of_8);
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(plan.shared_bytes));
    if (error != cudaSuccess) {
        return error;
    }
    const dim3 grid(plan.row_tiles, a.kv_heads * a.streams, plan.splits);
    kernel<<<grid, THREADS, plan.shared_bytes, stream>>>(p);
    if (plan.splits > 1) {
        if (a.head_dim == 256) {
            combine<256><<<static_cast<unsigned>(all_rows), 64 * COMBINE_GROUPS, 0, stream>>>(p);
        } else {
            combine<128><<<static_cast<unsigned>(all_rows), 32 * COMBINE_GROUPS, 0, stream>>>(p);
        }
    }
    return cudaGetLastError();
}

} // namespace plateau
