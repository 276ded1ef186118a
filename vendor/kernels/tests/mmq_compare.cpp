// Ours against upstream's in one process: products through ggml, kernels on and off.
//
//   mmq_compare PLUGIN check    outputs of every format and 1 to 16 columns: products that share their columns, a gate, a sum
//   mmq_compare PLUGIN bench    microseconds and GB/s of each product of a 27B model at 1 to 8 columns (quantizing its columns
//                               included); a table, JSON to the file of PLATEAU_JSON
#include "plugin.h"

#include "ggml-alloc.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>
#include <string>

struct Weights {
    ggml_context * ctx;
    ggml_backend_buffer_t buffer;
    std::vector<ggml_tensor *> all;
    Weights(ggml_backend_t backend, ggml_type type, int64_t k, int64_t rows, int count, uint32_t seed) {
        ctx = ggml_init({ ggml_tensor_overhead() * (count + 1), nullptr, true });
        for (int i = 0; i < count; ++i) {
            all.push_back(ggml_new_tensor_2d(ctx, type, k, rows));
        }
        buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
        if (!buffer) {
            fprintf(stderr, "no memory for the weights\n");
            exit(2);
        }
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        // Some rows over and over: 61 divides no tile.
        const int64_t some = std::min<int64_t>(61, rows);
        std::mt19937 generator(seed);
        std::normal_distribution<float> normal;
        std::vector<float> values(k * some);
        for (ggml_tensor * t : all) {
            for (float & x : values) {
                x = 0.02f * normal(generator);
            }
            std::vector<char> few(ggml_row_size(type, k) * some), many;
            ggml_quantize_chunk(type, values.data(), few.data(), 0, some, k, nullptr);
            for (int64_t at = 0; at < rows; at += some) {
                many.insert(many.end(), few.begin(), few.begin() + std::min(some, rows - at) * ggml_row_size(type, k));
            }
            ggml_backend_tensor_set(t, many.data(), 0, many.size());
            if (count > 4 && t == all[3]) {
                break; // time does not depend on what the others hold, and their memory is not read otherwise
            }
        }
    }
    Weights(const Weights &) = delete;
    ~Weights() {
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
    }
};

// A graph, computed once or timed.
struct Graph {
    ggml_backend_t backend;
    ggml_context * inputs, * ctx;
    ggml_cgraph * graph;
    ggml_backend_buffer_t buffer = nullptr;
    ggml_gallocr_t allocator = nullptr;

    explicit Graph(ggml_backend_t backend_) : backend(backend_) {
        // ggml keeps captured graphs by the address of their first node: another address each time.
        static size_t odd = 0;
        inputs = ggml_init({ ggml_tensor_overhead() * 512, nullptr, true });
        ctx = ggml_init({ ggml_tensor_overhead() * 4096 + ggml_graph_overhead_custom(4096, false) + 64 * ++odd, nullptr, true });
        for (size_t i = 0; i < odd % 4; ++i) {
            ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
        }
        graph = ggml_new_graph_custom(ctx, 4096, false);
    }
    Graph(const Graph &) = delete;
    ~Graph() {
        ggml_gallocr_free(allocator);
        ggml_backend_buffer_free(buffer);
        ggml_free(ctx);
        ggml_free(inputs);
    }
    void finish(const std::vector<ggml_tensor *> & outputs) {
        for (ggml_tensor * t : outputs) {
            ggml_set_output(t);
            ggml_build_forward_expand(graph, t);
        }
        buffer = ggml_backend_alloc_ctx_tensors(inputs, backend);
        std::mt19937 generator(11);
        std::normal_distribution<float> normal;
        for (ggml_tensor * t = ggml_get_first_tensor(inputs); t; t = ggml_get_next_tensor(inputs, t)) {
            std::vector<float> x(ggml_nelements(t));
            for (float & y : x) {
                y = normal(generator);
            }
            ggml_backend_tensor_set(t, x.data(), 0, ggml_nbytes(t));
        }
        allocator = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend));
        if (!ggml_gallocr_alloc_graph(allocator, graph)) {
            fprintf(stderr, "no memory for the graph\n");
            exit(2);
        }
    }
    double run() {
        const auto begin = std::chrono::steady_clock::now();
        ggml_backend_graph_compute(backend, graph);
        ggml_backend_synchronize(backend);
        return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
    }
};

// Products of one model layer: three of the same columns, a gate, a sum with a residual, one of other columns.
static std::vector<float> layer(ggml_backend_t backend, const Weights & w, const Weights & back, int columns, int runs) {
    Graph g(backend);
    const int64_t k = w.all[0]->ne[0], rows = w.all[0]->ne[1];
    ggml_tensor * x = ggml_new_tensor_2d(g.inputs, GGML_TYPE_F32, k, columns);
    ggml_tensor * rest = ggml_new_tensor_2d(g.inputs, GGML_TYPE_F32, rows, columns);
    ggml_tensor * norm = ggml_rms_norm(g.ctx, x, 1e-6f);
    ggml_tensor * a = ggml_mul_mat(g.ctx, w.all[0], norm);
    ggml_tensor * b = ggml_mul_mat(g.ctx, w.all[1], norm);
    ggml_tensor * sum = ggml_add(g.ctx, ggml_mul_mat(g.ctx, w.all[2], norm), rest);
    ggml_tensor * up = ggml_mul_mat(g.ctx, w.all[3], norm);
    ggml_tensor * gate = ggml_mul_mat(g.ctx, w.all[1], norm);
    ggml_build_forward_expand(g.graph, a);
    ggml_build_forward_expand(g.graph, b);
    ggml_build_forward_expand(g.graph, sum);
    ggml_build_forward_expand(g.graph, gate);
    ggml_build_forward_expand(g.graph, up);
    ggml_tensor * joined = ggml_swiglu_split(g.ctx, gate, up);
    ggml_tensor * down = ggml_mul_mat(g.ctx, back.all[0], joined);
    ggml_tensor * again = ggml_mul_mat(g.ctx, w.all[0], ggml_rms_norm(g.ctx, ggml_add(g.ctx, down, x), 1e-6f));
    const std::vector<ggml_tensor *> outputs = { a, b, sum, down, again };
    g.finish(outputs);
    std::vector<float> all;
    for (int i = 0; i < runs; ++i) { // the second run captures a graph, the third replays it
        for (ggml_tensor * t : outputs) {
            const std::vector<float> poison(ggml_nelements(t), NAN);
            ggml_backend_tensor_set(t, poison.data(), 0, ggml_nbytes(t));
        }
        g.run();
        for (ggml_tensor * t : outputs) {
            std::vector<float> y(ggml_nelements(t));
            ggml_backend_tensor_get(t, y.data(), 0, ggml_nbytes(t));
            const double size = sqrt(std::inner_product(y.begin(), y.end(), y.begin(), 0.0) / y.size());
            for (float & v : y) {
                v /= size; // outputs of one weight each
            }
            all.insert(all.end(), y.begin(), y.end());
        }
    }
    return all;
}

static const ggml_type TYPES[] = { GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_XS, GGML_TYPE_Q8_0 };

static int check(ggml_backend_t backend) {
    int cases = 0, failed = 0;
    double worst = 0.0;
    for (const ggml_type type : TYPES) {
        const Weights w(backend, type, 1280, 1536, 4, 3), back(backend, type, 1536, 1280, 1, 4);
        for (int columns = 1; columns <= 18; ++columns) {
            switch_kernels("-all");
            const std::vector<float> theirs = layer(backend, w, back, columns, 4);
            switch_kernels("+mmq_small");
            const uint64_t before = count("mmq_small", 0);
            const std::vector<float> ours = layer(backend, w, back, columns, 4);
            const bool ran = count("mmq_small", 0) > before;
            const double d = difference(ours, theirs);
            ++cases;
            worst = std::isfinite(d) ? std::max(worst, d) : worst;
            // Upstream rounds scales to halves, and sums of columns too.
            if (!(d <= 2e-5) || ran != (columns <= 16)) {
                ++failed;
                printf("FAILED %s %d columns: NMSE %g, ours ran: %d\n", ggml_type_name(type), columns, d, ran);
            }
        }
    }
    // Outside the domain: upstream computes, and the count says so.
    const Weights odd(backend, GGML_TYPE_Q4_K, 256, 8, 4, 5), back(backend, GGML_TYPE_Q4_K, 256, 256, 1, 6);
    (void) back;
    const uint64_t before = count("mmq_small", 1);
    {
        Graph g(backend);
        ggml_tensor * x = ggml_new_tensor_2d(g.inputs, GGML_TYPE_F32, 256, 3);
        g.finish({ ggml_mul_mat(g.ctx, odd.all[0], x) });
        g.run();
    }
    if (count("mmq_small", 1) == before) {
        ++failed;
        printf("FAILED: 8 rows were not left to upstream\n");
    }
    printf("products against upstream: %d cases, %d failed, worst NMSE %.2e\n", cases + 1, failed, worst);
    return failed ? 1 : 0;
}

struct Shape {
    const char * name;
    ggml_type type;
    int64_t k, rows;
    int per_model;
    bool gate;
};

static double time_of(ggml_backend_t backend, const Shape & s, const Weights & w, int columns) {
    Graph g(backend);
    ggml_tensor * x = ggml_new_tensor_2d(g.inputs, GGML_TYPE_F32, s.k, columns);
    ggml_tensor * y = ggml_new_tensor_2d(g.inputs, GGML_TYPE_F32, s.k, columns);
    std::vector<ggml_tensor *> outputs;
    const int calls = static_cast<int>(w.all.size()) / (s.gate ? 2 : 1);
    for (int i = 0; i < calls; ++i) {
        ggml_tensor * in = i & 1 ? x : y; // so that no columns are shared, as in a chain of layers
        ggml_tensor * out = ggml_mul_mat(g.ctx, w.all[i], in);
        if (s.gate) {
            ggml_build_forward_expand(g.graph, out);
            ggml_tensor * up = ggml_mul_mat(g.ctx, w.all[calls + i], in);
            ggml_build_forward_expand(g.graph, up);
            out = ggml_swiglu_split(g.ctx, out, up);
        }
        ggml_build_forward_expand(g.graph, out);
        outputs.push_back(out);
    }
    g.finish({ outputs.back() });
    std::vector<double> times;
    for (int i = 0; i < 12; ++i) {
        const double us = g.run() / calls;
        if (i >= 4) {
            times.push_back(us);
        }
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

static int bench(ggml_backend_t backend, bool brief) {
    FILE * json = fopen(getenv("PLATEAU_JSON") ? getenv("PLATEAU_JSON") : "mmq_compare.json", "w");
    if (!json) {
        perror("PLATEAU_JSON");
        return 2;
    }
    const Shape shapes[] = {
        { "gate+up", GGML_TYPE_Q4_K, 5120, 17408, 64, true },   { "down", GGML_TYPE_Q4_K, 17408, 5120, 32, false }, { "down", GGML_TYPE_Q6_K, 17408, 5120, 32, false },
        { "qkv", GGML_TYPE_Q4_K, 5120, 10240, 48, false },      { "z", GGML_TYPE_Q4_K, 5120, 6144, 48, false },     { "ssm_out", GGML_TYPE_Q4_K, 6144, 5120, 64, false },
        { "beta", GGML_TYPE_Q4_K, 5120, 48, 96, false },        { "q", GGML_TYPE_Q4_K, 5120, 12288, 16, false },    { "k", GGML_TYPE_Q4_K, 5120, 1024, 16, false },
        { "v", GGML_TYPE_Q6_K, 5120, 1024, 16, false },         { "head", GGML_TYPE_Q6_K, 5120, 248320, 1, false }, { "qkv", GGML_TYPE_Q5_K, 5120, 10240, 0, false },
        { "qkv", GGML_TYPE_IQ4_XS, 5120, 10240, 0, false },     { "gate+up", GGML_TYPE_IQ4_XS, 5120, 17408, 0, true }, { "qkv", GGML_TYPE_Q8_0, 5120, 10240, 0, false },
    };
    const std::vector<int> widths = brief ? std::vector<int>{ 1, 4, 8 } : std::vector<int>{ 1, 2, 3, 4, 5, 6, 8, 12, 16 };
    std::vector<double> sums[2] = { std::vector<double>(widths.size()), std::vector<double>(widths.size()) };
    printf("us a product, its columns quantized; upstream's / ours (GB/s)\n%-8s %-7s %6s %7s", "product", "format", "k", "rows");
    for (const int c : widths) {
        printf("  %18d", c);
    }
    printf("\n");
    fprintf(json, "[");
    const char * comma = "";
    for (const Shape & s : shapes) {
        const double bytes = static_cast<double>(ggml_row_size(s.type, s.k)) * s.rows * (s.gate ? 2 : 1);
        const int calls = std::max(2, std::min(64, static_cast<int>(1.2e9 / bytes)));
        const Weights w(backend, s.type, s.k, s.rows, s.gate ? 2 * calls : calls, 7);
        printf("%-8s %-7s %6d %7d", s.name, ggml_type_name(s.type), static_cast<int>(s.k), static_cast<int>(s.rows));
        for (size_t i = 0; i < widths.size(); ++i) {
            double us[2];
            for (const int ours : { 0, 1 }) {
                switch_kernels(ours ? "+mmq_small" : "-all");
                us[ours] = time_of(backend, s, w, widths[i]);
                sums[ours][i] += us[ours] * s.per_model * 1e-3;
            }
            printf("  %7.1f/%6.1f(%4.0f)", us[0], us[1], bytes / us[1] * 1e-3);
            fflush(stdout);
            fprintf(json, "%s\n{\"product\":\"%s\",\"type\":\"%s\",\"k\":%d,\"rows\":%d,\"columns\":%d,\"bytes\":%.0f,\"theirs_us\":%.2f,\"ours_us\":%.2f}", comma, s.name,
                    ggml_type_name(s.type), static_cast<int>(s.k), static_cast<int>(s.rows), widths[i], bytes, us[0], us[1]);
            comma = ",";
        }
        printf("\n");
    }
    printf("%-31s", "all of a step, ms");
    for (size_t i = 0; i < widths.size(); ++i) {
        printf("  %7.2f/%6.2f      ", sums[0][i], sums[1][i]);
    }
    printf("\n");
    fprintf(json, "\n]\n");
    fclose(json);
    return 0;
}

int main(int argc, char ** argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: mmq_compare PLUGIN check | bench [brief]\n");
        return 64;
    }
    ggml_backend_t backend = load_plugin(argv[1]);
    const int code = std::string(argv[2]) == "bench" ? bench(backend, argc > 3) : check(backend);
    ggml_backend_free(backend);
    return code;
}
