// The search for what products of a graph can share, over graphs built as llama.cpp builds them. Needs ggml, no card.
#include "../src/mmq_graph.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-impl.h"

#include <cstdio>
#include <functional>

using namespace plateau;

constexpr int K = 256, ROWS = 512, COLUMNS = 4;
static int failed = 0;

// A norm whose result several products read, the last two of them a gate; `between` may add nodes before the gate.
struct Graph {
    ggml_context * ctx = ggml_init({ 4 << 20, nullptr, true });
    ggml_cgraph * graph = ggml_new_graph(ctx);
    ggml_gallocr_t allocator = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_tensor *norm, *first, *gate, *up, *out;

    struct Choice {
        ggml_type up_type = GGML_TYPE_Q4_K;
        bool up_first = false, geglu = false, kept = false;
    };
    Graph() : Graph([](Graph &) {}, Choice()) {}
    Graph(const std::function<void(Graph &)> & between, const Choice & choice) {
        auto input = [&](ggml_type type, int64_t width, int64_t rows) {
            ggml_tensor * t = ggml_new_tensor_2d(ctx, type, width, rows);
            ggml_set_input(t);
            return t;
        };
        norm = ggml_rms_norm(ctx, input(GGML_TYPE_F32, K, COLUMNS), 1e-6f);
        first = ggml_mul_mat(ctx, input(GGML_TYPE_Q4_K, K, ROWS), norm);
        ggml_set_output(first);
        ggml_build_forward_expand(graph, first);
        between(*this);
        gate = ggml_mul_mat(ctx, input(GGML_TYPE_Q4_K, K, ROWS), norm);
        up = ggml_mul_mat(ctx, input(choice.up_type, K, ROWS), norm);
        if (choice.kept) {
            ggml_set_output(gate);
        }
        ggml_build_forward_expand(graph, choice.up_first ? up : gate);
        ggml_build_forward_expand(graph, choice.up_first ? gate : up);
        out = choice.geglu ? ggml_geglu_split(ctx, gate, up) : ggml_swiglu_split(ctx, gate, up);
        ggml_build_forward_expand(graph, out);
    }
    Graph(const Graph &) = delete;
    ~Graph() {
        ggml_gallocr_free(allocator);
        ggml_free(ctx);
    }
    SharedProducts search() {
        if (!ggml_gallocr_alloc_graph(allocator, graph)) {
            printf("no memory\n");
            exit(2);
        }
        return SharedProducts(graph);
    }
};

static void expect(bool holds, const char * what) {
    if (!holds) {
        ++failed;
        printf("FAILED %s\n", what);
    }
}

static void expect_gate(Graph & g, bool found, bool up_first, const char * what) {
    const SharedProducts shared = g.search();
    const Gate * gate = shared.gate(up_first ? g.up : g.gate);
    expect((gate != nullptr) == found, what);
    expect(!gate || (gate->gate == g.gate && gate->up == g.up && gate->out == g.out), what);
    expect(!shared.gate(up_first ? g.gate : g.up) && !shared.gate(g.first), "only the first product of a gate begins it");
}

int main() {
    {
        Graph g;
        expect(g.search().steady(g.norm), "nothing writes to the columns");
        expect_gate(g, true, false, "a gate");
    }
    {
        Graph g([](Graph & x) { ggml_build_forward_expand(x.graph, ggml_scale_inplace(x.ctx, x.norm, 2.0f)); }, {});
        expect(!g.search().steady(g.norm), "the columns are changed in place between two products");
    }
    {
        Graph g([](Graph & x) {
            ggml_tensor * part = ggml_view_2d(x.ctx, x.norm, K, 1, x.norm->nb[1], x.norm->nb[1]);
            ggml_build_forward_expand(x.graph, ggml_cpy(x.ctx, ggml_scale(x.ctx, part, 2.0f), part));
        }, {});
        expect(!g.search().steady(g.norm), "a part of the columns is overwritten through a view");
    }
    {
        Graph g([](Graph & x) { ggml_build_forward_expand(x.graph, ggml_scale(x.ctx, x.norm, 2.0f)); }, {});
        expect(g.search().steady(g.norm), "another reader of the columns changes nothing");
    }
    {
        Graph g;
        ggml_build_forward_expand(g.graph, ggml_scale_inplace(g.ctx, g.norm, 2.0f));
        expect(g.search().steady(g.norm), "a change after the last product");
    }
    {
        Graph g([](Graph &) {}, { GGML_TYPE_Q4_K, true });
        expect_gate(g, true, true, "the other product first");
    }
    {
        Graph g([](Graph &) {}, { GGML_TYPE_Q6_K });
        expect_gate(g, false, false, "two formats");
    }
    {
        Graph g([](Graph &) {}, { GGML_TYPE_Q4_K, false, true });
        expect_gate(g, false, false, "another function");
    }
    {
        Graph g([](Graph &) {}, { GGML_TYPE_Q4_K, false, false, true });
        expect_gate(g, false, false, "a product that is an output");
    }
    {
        Graph g;
        ggml_build_forward_expand(g.graph, ggml_scale(g.ctx, ggml_view_1d(g.ctx, g.up, ROWS, 0), 2.0f));
        expect_gate(g, false, false, "a product that another node reads through a view");
    }
    for (const bool chain : { false, true }) {
        for (const bool kept : { false, true }) {
            Graph g;
            ggml_tensor * rest = ggml_new_tensor_2d(g.ctx, GGML_TYPE_F32, ROWS, COLUMNS);
            ggml_set_input(rest);
            ggml_tensor * product = ggml_mul_mat(g.ctx, g.first->src[0], g.norm);
            ggml_tensor * sum = ggml_add(g.ctx, rest, product);
            ggml_build_forward_expand(g.graph, sum);
            ggml_build_forward_expand(g.graph, chain ? ggml_add(g.ctx, sum, rest) : ggml_rms_norm(g.ctx, sum, 1e-6f));
            if (kept) {
                ggml_build_forward_expand(g.graph, ggml_scale(g.ctx, product, 2.0f));
            }
            const SharedProducts shared = g.search();
            const Sum * found = shared.sum(product);
            expect((found != nullptr) == (!chain && !kept) && (!found || (found->other == rest && found->out == sum)), "a sum behind a product");
            expect(!shared.sum(g.first) && !shared.sum(g.gate), "no sum behind the others");
        }
    }
    printf("shared products: %d failed\n", failed);
    return failed ? 1 : 0;
}
