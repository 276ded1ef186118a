// Checks and times the attention kernel by itself: no ggml, no Rust, one binary.
//
//   fattn_check check [quick|tiny] every format pair, token count, length and mask against a float64 reference on the
//                               dequantized bytes; NaN in every output and scratch byte before each call
//   fattn_check bench           microseconds and GB/s of quantized bytes; a table last, JSON to the file of PLATEAU_JSON
//
// The reference decodes blocks one value at a time and shares no code with the kernel.
#include "fattn_cases.h"

#include <cuda_fp16.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace plateau;

#define CHECK(call)                                                                                  \
    do {                                                                                             \
        cudaError_t error_ = (call);                                                                 \
        if (error_ != cudaSuccess) {                                                                 \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
            exit(2);                                                                                 \
        }                                                                                            \
    } while (0)

struct ToHalf {
    __device__ uint16_t operator()(float x) const { return __half_as_ushort(__float2half(x)); }
};

__global__ void fill_blocks(int type, uint8_t * to, int64_t blocks, int bytes, uint64_t seed) {
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < blocks; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
        fill_block(type, to + i * bytes, bytes, seed, i, ToHalf());
    }
}

__global__ void fill_query(float * to, int64_t n, float size, uint64_t seed) {
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < n; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
        to[i] = size * normal(seed + i);
    }
}

__global__ void fill_mask(int kind, half * to, int cells, int tokens, int mask_streams, uint64_t seed) {
    const int64_t all = static_cast<int64_t>(cells) * tokens * mask_streams;
    for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < all; i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
        to[i] = __float2half(bias_of(kind, i % cells, i / cells % tokens, cells, tokens, seed, i));
    }
}

// One block an output row; `weights` holds `cells` doubles a block.
__global__ void reference(FattnArgs a, int k_bytes, int v_bytes, double * weights, double * out) {
    const int64_t row = blockIdx.x;
    const int head = row % a.heads, token = row / a.heads % a.tokens, stream = row / a.heads / a.tokens;
    const int kv_head = head / (a.heads / a.kv_heads);
    const float * q = reinterpret_cast<const float *>(reinterpret_cast<const char *>(a.q) + token * a.q_token + head * a.q_head + stream * a.q_stream);
    const half * mask = reinterpret_cast<const half *>(static_cast<const char *>(a.mask) + token * a.mask_token + stream % a.mask_streams * a.mask_stream);
    double * w = weights + row * a.cells;
    __shared__ double shared[256];
    double top = -INFINITY;
    for (int c = threadIdx.x; c < a.cells; c += blockDim.x) {
        const uint8_t * k = static_cast<const uint8_t *>(a.k) + c * a.k_cell + kv_head * a.k_head + stream * a.k_stream;
        double s = 0.0;
        for (int d = 0; d < a.head_dim; ++d) {
            s += static_cast<double>(q[d]) * value_at(a.type_k, k, d, k_bytes);
        }
        w[c] = s * a.scale + __half2float(mask[c]);
        top = fmax(top, w[c]);
    }
    shared[threadIdx.x] = top;
    __syncthreads();
    for (int i = 0; i < static_cast<int>(blockDim.x); ++i) {
        top = fmax(top, shared[i]);
    }
    __syncthreads();
    double sum = 0.0;
    for (int c = threadIdx.x; c < a.cells; c += blockDim.x) {
        w[c] = top == -INFINITY ? 0.0 : exp(w[c] - top);
        sum += w[c];
    }
    shared[threadIdx.x] = sum;
    __syncthreads();
    sum = 0.0;
    for (int i = 0; i < static_cast<int>(blockDim.x); ++i) {
        sum += shared[i];
    }
    for (int d = threadIdx.x; d < a.head_dim; d += blockDim.x) {
        double o = 0.0;
        for (int c = 0; c < a.cells; ++c) {
            if (w[c] != 0.0) {
                o += w[c] * value_at(a.type_v, static_cast<const uint8_t *>(a.v) + c * a.v_cell + kv_head * a.v_head + stream * a.v_stream, d, v_bytes);
            }
        }
        out[row * a.head_dim + d] = sum > 0.0 ? o / sum : 0.0;
    }
}

struct Data {
    FattnArgs a;
    std::vector<void *> owned;
    size_t quant_bytes;

    void * take(size_t bytes) {
        void * p = nullptr;
        CHECK(cudaMalloc(&p, bytes));
        owned.push_back(p);
        return p;
    }
    void give_back() {
        for (void * p : owned) {
            CHECK(cudaFree(p));
        }
        owned.clear();
    }
};

static Data make(const Case & c, uint64_t seed) {
    Data data = {};
    FattnArgs & a = data.a;
    a = sizes_of(c);
    data.quant_bytes = static_cast<size_t>(a.k_stream + a.v_stream) * c.streams;

    const int64_t query = static_cast<int64_t>(c.streams) * c.tokens * c.heads * c.head_dim;
    float * q = static_cast<float *>(data.take(query * 4));
    uint8_t * k = static_cast<uint8_t *>(data.take(a.k_stream * c.streams));
    uint8_t * v = static_cast<uint8_t *>(data.take(a.v_stream * c.streams));
    half * mask = static_cast<half *>(data.take(a.mask_stream * c.mask_streams));
    a.out = static_cast<float *>(data.take(query * 4));
    fill_query<<<512, 256>>>(q, query, c.query_size, seed);
    fill_blocks<<<1024, 256>>>(c.type_k, k, a.k_stream * c.streams / BYTES[c.type_k], BYTES[c.type_k], seed + 1000003);
    fill_blocks<<<1024, 256>>>(c.type_v, v, a.v_stream * c.streams / BYTES[c.type_v], BYTES[c.type_v], seed + 2000003);
    fill_mask<<<1024, 256>>>(c.mask, mask, c.cells, c.tokens, c.mask_streams, seed + 3000017);
    CHECK(cudaGetLastError());
    a.q = q;
    a.k = k;
    a.v = v;
    a.mask = mask;
    return data;
}

static FattnLimits limits_here() {
    FattnLimits limits = {};
    CHECK(fattn_limits(0, limits));
    return limits;
}

// The normalised mean square error, -1 for an output that is not finite or a write past the end.
static double error_of(const Case & c, uint64_t seed) {
    Data data = make(c, seed);
    const FattnArgs & a = data.a;
    if (!fattn_in_domain(a)) {
        printf("outside the domain: %s\n", c.text().c_str());
        data.give_back();
        return -1.0;
    }
    const int64_t rows = static_cast<int64_t>(c.streams) * c.tokens * c.heads, n = rows * c.head_dim;
    const FattnPlan plan = fattn_plan(a, limits_here());
    const size_t guard = 4096;
    char * scratch = static_cast<char *>(data.take(plan.scratch_bytes + guard));
    double * weights = static_cast<double *>(data.take(rows * a.cells * 8));
    double * expected = static_cast<double *>(data.take(n * 8));
    CHECK(cudaMemset(a.out, 0xff, n * 4));
    CHECK(cudaMemset(scratch, 0xff, plan.scratch_bytes + guard));
    CHECK(fattn_launch(a, plan, scratch, nullptr));
    CHECK(cudaDeviceSynchronize());
    reference<<<static_cast<unsigned>(rows), 256>>>(a, BYTES[c.type_k], BYTES[c.type_v], weights, expected);
    CHECK(cudaGetLastError());
    std::vector<float> got(n);
    std::vector<double> want(n);
    std::vector<unsigned char> past(guard);
    CHECK(cudaMemcpy(got.data(), a.out, n * 4, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(want.data(), expected, n * 8, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(past.data(), scratch + plan.scratch_bytes, guard, cudaMemcpyDeviceToHost));
    data.give_back();
    double difference = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; ++i) {
        if (!std::isfinite(got[i])) {
            return -1.0;
        }
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    for (unsigned char x : past) {
        if (x != 0xff) {
            return -1.0;
        }
    }
    return difference / size;
}

static std::vector<Case> cases(bool quick) {
    std::vector<Case> all;
    auto add = [&](int d, int h, int kv, int t, int n, int k, int v, int mask, int s = 1, int ms = 1, float q = 1.0f) {
        all.push_back({ d, h, kv, t, n, k, v, mask, s, ms, q });
    };
    for (int k = 0; k < 5; ++k) {
        for (int v = 0; v < 5; ++v) {
            for (int t = 1; t <= 8; ++t) {
                add(256, 24, 4, t, t % 2 ? 1024 : 256, k, v, (k + v + t) % MASKS);
            }
            add(128, 32, 4, 1, 512, k, v, CAUSAL);
            add(128, 8, 2, 3, 1024, k, v, HOLES);
            add(256, 8, 2, 5, 4096, k, v, HOLES, 1, 1, 4.0f);
            if (!quick) {
                add(256, 24, 4, 4, 16384, k, v, SEQUENCES);
                add(128, 16, 2, 8, 8192, k, v, BIAS);
                add(256, 24, 4, 33, 1024, k, v, CAUSAL);
            }
        }
    }
    for (int group : { 1, 2, 3, 4, 5, 6, 7, 8, 12, 16 }) {
        for (int t : { 1, 2, 3, 4, 5, 8, 9, 17 }) {
            add(256, 2 * group, 2, t, 1024, 4, 4, HOLES);
            add(128, 2 * group, 2, t, 512, 2, 3, CAUSAL);
        }
    }
    for (int ms : { 1, 2 }) {
        add(256, 24, 4, 4, 1024, 4, 4, CAUSAL, 2, ms);
        add(256, 12, 2, 64, 1024, 1, 4, HOLES, 2, ms);
    }
    add(256, 24, 4, 512, 1024, 4, 4, CAUSAL);
    add(256, 24, 4, 512, 4096, 2, 3, SEQUENCES);
    add(256, 24, 4, 4, 4096, 4, 4, CAUSAL, 1, 1, 16.0f);
    add(256, 24, 4, 4, 4096, 1, 1, LONE, 1, 1, 16.0f);
    const int pairs[][2] = { { 4, 4 }, { 2, 3 }, { 1, 1 }, { 0, 0 }, { 1, 4 } };
    for (auto & pair : pairs) {
        for (int n : { 32768, 131072, 262144 }) {
            for (int t : { 1, 2, 4, 8 }) {
                if (!quick || (n == 32768 && t == 4)) {
                    add(256, 24, 4, t, n, pair[0], pair[1], t == 4 ? HOLES : CAUSAL);
                }
            }
        }
    }
    return all;
}

static int check(const std::string & size) {
    std::vector<Case> all = cases(size != "full");
    if (size == "tiny") { // for compute-sanitizer: one small case in seven
        std::vector<Case> some;
        for (size_t i = 0; i < all.size(); i += 7) {
            if (all[i].cells <= 1024 && all[i].tokens <= 9) {
                some.push_back(all[i]);
            }
        }
        all = some;
    }
    int failed = 0;
    double worst = 0.0;
    std::string worst_case;
    for (size_t i = 0; i < all.size(); ++i) {
        const double e = error_of(all[i], 12345 + 7919 * i);
        if (!(e >= 0.0 && e <= 1e-5)) {
            if (++failed <= 40) {
                printf("FAILED %s: %g\n", all[i].text().c_str(), e);
            }
        } else if (e > worst) {
            worst = e;
            worst_case = all[i].text();
        }
    }
    printf("check: %zu cases, %d failed, worst NMSE of the rest %.2e (%s)\n", all.size(), failed, worst, worst_case.c_str());
    fflush(stdout);
    return failed ? 1 : 0;
}

// Microseconds of one call, over as many caches as exceed the L2 cache, replayed as one graph.
static double microseconds(const Case & c, size_t * bytes, FattnPlan * plan_out) {
    const size_t one = static_cast<size_t>(c.cells) * c.kv_heads * (c.head_dim / 32) * (BYTES[c.type_k] + BYTES[c.type_v]);
    const int layers = std::max<int>(2, std::min<int>(16, (400u << 20) / one + 1));
    std::vector<Data> data;
    for (int i = 0; i < layers; ++i) {
        data.push_back(make(c, 99 + i));
    }
    const FattnPlan plan = fattn_plan(data[0].a, limits_here());
    *plan_out = plan;
    *bytes = data[0].quant_bytes;
    void * scratch = data[0].take(plan.scratch_bytes + 16);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (int i = 0; i < layers; ++i) {
        CHECK(fattn_launch(data[i].a, plan, scratch, stream));
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<double> times;
    for (int i = 0; i < 12; ++i) {
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        float ms = 0.0f;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 3) {
            times.push_back(ms * 1000.0 / layers);
        }
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(stream));
    for (Data & d : data) {
        d.give_back();
    }
    return times[times.size() / 2];
}

static void bench() {
    FILE * json = fopen(getenv("PLATEAU_JSON") ? getenv("PLATEAU_JSON") : "fattn_bench.json", "w");
    if (json) {
        fprintf(json, "[");
    }
    const char * comma = "";
    printf("%-10s %7s %4s %9s %8s %7s %6s %5s\n", "K/V", "cells", "T", "us", "GB/s", "TF/s", "splits", "ring");
    auto line = [&](int k, int v, int cells, int tokens) {
        const Case c = { 256, 24, 4, tokens, cells, k, v, CAUSAL, 1, 1, 1.0f };
        size_t bytes = 0;
        FattnPlan plan = {};
        const double us = microseconds(c, &bytes, &plan);
        const double gb = bytes / us * 1e-3, tf = 4.0 * 24 * tokens * cells * 256.0 / us * 1e-6;
        printf("%-4s/%-5s %7d %4d %9.1f %8.0f %7.1f %6d %5d\n", NAMES[k], NAMES[v], cells, tokens, us, gb, tf, plan.splits, plan.ring);
        fflush(stdout);
        if (json) {
            fprintf(json, "%s\n{\"k\":\"%s\",\"v\":\"%s\",\"cells\":%d,\"tokens\":%d,\"us\":%.2f,\"gb_s\":%.1f,\"tflops\":%.1f}", comma, NAMES[k], NAMES[v],
                    cells, tokens, us, gb, tf);
        }
        comma = ",";
    };
    const int pairs[][2] = { { 4, 4 }, { 2, 3 }, { 1, 1 }, { 0, 0 } };
    for (auto & pair : pairs) {
        for (int cells : { 4096, 32768, 131072, 262144 }) {
            for (int tokens : { 1, 2, 3, 4, 5, 8 }) {
                line(pair[0], pair[1], cells, tokens);
            }
        }
    }
    for (int cells : { 1024, 32768, 131072 }) {
        for (int tokens : { 16, 32, 64, 128, 512 }) {
            line(4, 4, cells, tokens);
        }
    }
    if (json) {
        fprintf(json, "\n]\n");
        fclose(json);
    }
}

int main(int argc, char ** argv) {
    const std::string mode = argc > 1 ? argv[1] : "check";
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    printf("%s, compute capability %d.%d, %d multiprocessors\n", properties.name, properties.major, properties.minor, properties.multiProcessorCount);
    if (mode == "bench") {
        bench();
        return 0;
    }
    return check(argc > 2 ? argv[2] : "full");
}
