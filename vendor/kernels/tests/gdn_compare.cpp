// Gated DeltaNet through ggml, as llama.cpp builds its graph: gather of the state, operator, copy of the planes into the
// cache. Ours against upstream's in one process.
//
//   gdn_compare PLUGIN check   in place: the same bits; in chunks: within the error of f32; the counts say what ran
//   gdn_compare PLUGIN bench   microseconds a layer, the gather included, operations and bytes; a table last, JSON to the file of PLATEAU_JSON
#include "plugin.h"

#include "ggml-alloc.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <utility>

constexpr int CELLS = 3; // sequences that the cache has room for

struct Shape {
    int size, heads, k_heads, tokens, seqs, planes;
    bool gates_a_channel = false; // KDA
};

struct Result {
    std::vector<float> out, cache;
    double microseconds;
};

static std::vector<float> normals(size_t count, float size, uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (float & y : x) {
        y = size * normal(generator);
    }
    return x;
}

static void fill(ggml_tensor * t, const std::vector<float> & x) { ggml_backend_tensor_set(t, x.data(), 0, ggml_nbytes(t)); }

// `layers` layers that read plane `plane` of cell 1 (and cell 2 for a second sequence) and write from cell 1 on.
static Result run(ggml_backend_t backend, const Shape & s, int layers, int plane, bool timed) {
    const int64_t state = static_cast<int64_t>(s.size) * s.size * s.heads;
    ggml_context * fixed = ggml_init({ ggml_tensor_overhead() * (layers + 8), nullptr, true });
    ggml_tensor * q = ggml_new_tensor_4d(fixed, GGML_TYPE_F32, s.size, s.k_heads, s.tokens, s.seqs);
    ggml_tensor * k = ggml_new_tensor_4d(fixed, GGML_TYPE_F32, s.size, s.k_heads, s.tokens, s.seqs);
    // v is a view of rows that begin with q and k, as after the convolution.
    const int64_t v_row = static_cast<int64_t>(s.size) * (s.heads + 2 * s.k_heads);
    ggml_tensor * rows = ggml_new_tensor_3d(fixed, GGML_TYPE_F32, v_row, s.tokens, s.seqs);
    ggml_tensor * g = ggml_new_tensor_4d(fixed, GGML_TYPE_F32, s.gates_a_channel ? s.size : 1, s.heads, s.tokens, s.seqs);
    ggml_tensor * beta = ggml_new_tensor_4d(fixed, GGML_TYPE_F32, 1, s.heads, s.tokens, s.seqs);
    ggml_tensor * row = ggml_new_tensor_1d(fixed, GGML_TYPE_I32, s.seqs);
    std::vector<ggml_tensor *> caches;
    for (int i = 0; i < layers; ++i) {
        caches.push_back(ggml_new_tensor_2d(fixed, GGML_TYPE_F32, state, static_cast<int64_t>(CELLS) * s.planes));
    }
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(fixed, backend);
    if (!buffer) {
        fprintf(stderr, "no memory for the inputs\n");
        exit(2);
    }
    for (ggml_tensor * t : { q, k }) {
        std::vector<float> x = normals(ggml_nelements(t), 1.0f, t == q ? 1 : 2);
        for (size_t at = 0; at < x.size(); at += s.size) {
            double length = 0.0;
            for (int i = 0; i < s.size; ++i) {
                length += x[at + i] * x[at + i];
            }
            for (int i = 0; i < s.size; ++i) {
                x[at + i] = static_cast<float>(x[at + i] / std::sqrt(length));
            }
        }
        fill(t, x);
    }
    fill(rows, normals(ggml_nelements(rows), 3.0f, 3));
    std::vector<float> gates = normals(ggml_nelements(g), 1.0f, 4), betas = normals(ggml_nelements(beta), 2.0f, 5);
    for (float & x : gates) {
        x = x > 2.0f ? -150.0f * (x - 2.0f) : -std::exp(2.0f * x - 3.0f);
    }
    for (float & x : betas) {
        x = 1.0f / (1.0f + std::exp(-x));
    }
    fill(g, gates);
    fill(beta, betas);
    const std::vector<float> states = normals(ggml_nelements(caches[0]), 1.0f, 6);
    for (ggml_tensor * cache : caches) {
        fill(cache, states);
    }
    std::vector<int32_t> numbers;
    for (int i = 0; i < s.seqs; ++i) {
        numbers.push_back(plane * CELLS + 1 + i);
    }
    ggml_backend_tensor_set(row, numbers.data(), 0, ggml_nbytes(row));

    // ggml keeps captured graphs by the address of their first node: another place for it every time.
    static size_t odd = 0;
    ++odd;
    ggml_context * ctx = ggml_init({ ggml_tensor_overhead() * (16 * layers + 64) + ggml_graph_overhead_custom(16 * layers + 64, false) + 64 * odd, nullptr, true });
    for (size_t i = 0; i < odd % 8; ++i) {
        ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
    }
    ggml_cgraph * graph = ggml_new_graph_custom(ctx, 16 * layers + 64, false);
    ggml_tensor * net = nullptr;
    const size_t f = sizeof(float);
    for (ggml_tensor * cache : caches) {
        ggml_tensor * gathered = ggml_get_rows(ctx, ggml_reshape_2d(ctx, cache, state, cache->ne[1]), row);
        ggml_tensor * view = ggml_view_2d(ctx, gathered, state, s.seqs, gathered->nb[1], 0);
        ggml_build_forward_expand(graph, view);
        ggml_tensor * v = ggml_view_4d(ctx, rows, s.size, s.heads, s.tokens, s.seqs, f * s.size, rows->nb[1], rows->nb[2], f * 2 * s.k_heads * s.size);
        net = ggml_gated_delta_net(ctx, q, k, v, g, beta, ggml_reshape_4d(ctx, view, s.size, s.size, s.heads, s.seqs), s.planes);
        const int64_t written = std::min(s.tokens, s.planes);
        ggml_tensor * from = ggml_view_3d(ctx, net, state, s.seqs, written, f * state, f * state * s.seqs, f * s.size * s.heads * s.tokens * s.seqs);
        ggml_tensor * to = ggml_view_3d(ctx, cache, state, s.seqs, written, cache->nb[1], CELLS * cache->nb[1], cache->nb[1]);
        ggml_build_forward_expand(graph, ggml_cpy(ctx, from, to));
    }
    // The scores of the last layer, and a reader of the row number after it.
    ggml_tensor * out = ggml_cont(ctx, ggml_view_1d(ctx, net, static_cast<int64_t>(s.size) * s.heads * s.tokens * s.seqs, 0));
    ggml_set_output(out);
    ggml_build_forward_expand(graph, out);
    ggml_tensor * table = ggml_view_2d(ctx, caches[0], 8, caches[0]->ne[1], caches[0]->nb[1], 0);
    ggml_build_forward_expand(graph, ggml_get_rows(ctx, table, ggml_view_1d(ctx, row, 1, 0)));
    ggml_gallocr_t allocator = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
    if (!ggml_gallocr_alloc_graph(allocator, graph)) {
        fprintf(stderr, "no memory for the graph\n");
        exit(2);
    }
    std::vector<double> times;
    for (int i = 0; i < (timed ? 12 : 1); ++i) {
        const auto begin = std::chrono::steady_clock::now();
        ggml_backend_graph_compute(backend, graph);
        ggml_backend_synchronize(backend);
        if (i >= 3) { // the first runs capture the graph
            times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / layers);
        }
    }
    std::sort(times.begin(), times.end());
    Result result = { std::vector<float>(ggml_nelements(out)), std::vector<float>(ggml_nelements(caches.back())), times.empty() ? 0.0 : times[times.size() / 2] };
    ggml_backend_tensor_get(out, result.out.data(), 0, ggml_nbytes(out));
    ggml_backend_tensor_get(caches.back(), result.cache.data(), 0, ggml_nbytes(caches.back()));
    ggml_gallocr_free(allocator);
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
    ggml_free(fixed);
    return result;
}

static bool same(const std::vector<float> & x, const std::vector<float> & y) { return memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0; }

static int cases = 0, failed = 0;
static double worst = 0.0;

// `layers` are run with the switches on and compared with upstream's; `runs`: calls expected of the kernel.
static void compare(ggml_backend_t backend, const Shape & s, int plane, const char * switches, const char * name, uint64_t runs, bool bits) {
    constexpr int layers = 3;
    switch_kernels("-all");
    const Result theirs = run(backend, s, layers, plane, false);
    switch_kernels(switches);
    const uint64_t before = count(name, 0);
    const Result ours = run(backend, s, layers, plane, false);
    const uint64_t ran = count(name, 0) - before;
    const double out = difference(ours.out, theirs.out), cache = difference(ours.cache, theirs.cache);
    const bool close = bits ? same(ours.out, theirs.out) && same(ours.cache, theirs.cache) : out <= 5e-7 && cache <= 1e-7;
    ++cases;
    worst = std::max(worst, std::max(out, cache));
    if (!close || ran != runs) {
        ++failed;
        printf("FAILED %s S=%d heads=%d/%d T=%d seqs=%d K=%d plane=%d: output %g, cache %g, ran %llu times, not %llu\n", switches, s.size, s.heads,
               s.k_heads, s.tokens, s.seqs, s.planes, plane, out, cache, static_cast<unsigned long long>(ran), static_cast<unsigned long long>(runs));
    }
}

static int check(ggml_backend_t backend) {
    for (const int size : { 64, 128 }) {
        for (int planes = 1; planes <= 8; ++planes) {
            for (const int tokens : { 1, 2, 3, 4, 5, 8, 20 }) {
                compare(backend, { size, 6, 2, tokens, 1, planes }, planes / 2, "-all,+gdn_in_place", "gdn_in_place", 3, true);
            }
            for (const int tokens : { 31, 32, 33, 39, 63, 64, 65, 127, 128, 129, 512, 600, 1100 }) {
                const uint64_t runs = tokens - (planes - 1) >= 32 ? 3 : 0;
                compare(backend, { size, 6, 2, tokens, 1, planes }, planes / 2, "-all,+gdn_chunk", "gdn_chunk", runs, runs == 0);
            }
        }
        compare(backend, { size, 6, 2, 200, 1, 4 }, 2, "-all,+gdn_chunk,+gdn_in_place", "gdn_in_place", 3, false);
        compare(backend, { size, 6, 2, 200, 1, 4 }, 2, "-all,+gdn_chunk,+gdn_exact", "gdn_exact", 3, false);
        compare(backend, { size, 6, 2, 130, 2, 3 }, 1, "-all,+gdn_chunk,+gdn_in_place", "gdn_chunk", 3, false);
        compare(backend, { size, 6, 2, 4, 2, 3 }, 1, "-all,+gdn_in_place", "gdn_in_place", 0, true); // two sequences: gathered
        compare(backend, { size, 6, 6, 130, 1, 3, true }, 1, "+all", "gdn_chunk", 0, true);          // gates a channel: upstream's
    }
    printf("Gated DeltaNet against upstream: %d cases, %d failed, largest NMSE %.2e\n", cases, failed, worst);
    return failed ? 1 : 0;
}

// Of a layer, in the chunks' form with one term a product: five products of tokens x tokens x size and three of tokens x
// size x size, a chunk of 64 and head.
static double operations(const Shape & s) {
    const double chunk = 64.0, size = s.size;
    return (10.0 * chunk * chunk * size + 6.0 * chunk * size * size) * s.heads * s.tokens / chunk;
}

// What must be read and written at least: queries, keys, values, gates, output, one state in and the planes out.
static double least_bytes(const Shape & s) {
    const double state = static_cast<double>(s.size) * s.size * s.heads;
    return 4.0 * (s.tokens * (2.0 * s.k_heads * s.size + 2.0 * s.heads * s.size + 2.0 * s.heads) + state * (1 + std::min(s.tokens, s.planes)));
}

// All lengths, or one.
static int bench(ggml_backend_t backend, int only) {
    FILE * json = fopen(getenv("PLATEAU_JSON") ? getenv("PLATEAU_JSON") : "gdn_compare.json", "w");
    if (!json) {
        perror("PLATEAU_JSON");
        return 2;
    }
    fprintf(json, "[");
    const char * comma = "";
    printf("%7s %6s %3s %9s %9s %9s %6s %9s %8s %8s\n", "heads", "tokens", "K", "ours us", "exact us", "theirs us", "ratio", "min bytes", "TFLOP/s", "GB/s");
    for (const auto & [heads, k_heads] : { std::pair(48, 16), std::pair(32, 32) }) {
        for (const int tokens : { 1, 2, 3, 4, 5, 8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192 }) {
            if (only != 0 && tokens != only) {
                continue;
            }
            const Shape s = { 128, heads, k_heads, tokens, 1, tokens <= 8 ? tokens : 4 };
            const int layers = tokens <= 8 ? 48 : 8;
            auto time = [&](const char * switches) {
                switch_kernels(switches);
                return run(backend, s, layers, 0, true).microseconds;
            };
            const double theirs = time("-all"), ours = time("+all,-gdn_exact"), exact = time("+all,+gdn_exact");
            const double bytes = least_bytes(s), teraflops = operations(s) / ours * 1e-6, gigabytes = bytes / ours * 1e-3;
            printf("%3d/%-3d %6d %3d %9.1f %9.1f %9.1f %6.2f %9.0f %8.1f %8.0f\n", heads, k_heads, tokens, s.planes, ours, exact, theirs, theirs / ours, bytes, teraflops, gigabytes);
            fflush(stdout);
            fprintf(json, "%s\n{\"heads\":%d,\"k_heads\":%d,\"tokens\":%d,\"planes\":%d,\"ours_us\":%.2f,\"exact_us\":%.2f,\"theirs_us\":%.2f,\"bytes\":%.0f,\"tflops\":%.2f}", comma,
                    heads, k_heads, tokens, s.planes, ours, exact, theirs, bytes, teraflops);
            comma = ",";
        }
    }
    fprintf(json, "\n]\n");
    fclose(json);
    return 0;
}

int main(int argc, char ** argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: gdn_compare PLUGIN check | bench [TOKENS]\n");
        return 64;
    }
    ggml_backend_t backend = load_plugin(argv[1]);
    const int code = std::string(argv[2]) == "bench" ? bench(backend, argc > 3 ? atoi(argv[3]) : 0) : check(backend);
    ggml_backend_free(backend);
    return code;
}
