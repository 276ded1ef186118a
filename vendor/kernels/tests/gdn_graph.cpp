// The search for states that are read in place, over graphs built as llama.cpp builds them. Needs ggml, no card.
#include "../src/gdn_in_place.h"

#include "ggml-impl.h"

#include <cstdio>
#include <functional>

using namespace plateau;

constexpr int SIZE = 64, HEADS = 2, TOKENS = 3, PLANES = 3, CELLS = 4;
static int failed = 0;

// One or more layers: gather, net, copy of the planes into the cache.
struct Graph {
    ggml_context * ctx = ggml_init({ 4 << 20, nullptr, true });
    ggml_cgraph * graph = ggml_new_graph(ctx);
    int sequences;
    ggml_tensor * row;
    ggml_tensor *cache = nullptr, *gather = nullptr, *states = nullptr, *net = nullptr; // of the last layer

    explicit Graph(int sequences_ = 1) : sequences(sequences_), row(ggml_new_tensor_1d(ctx, GGML_TYPE_I32, sequences_)) {}
    ~Graph() { ggml_free(ctx); }
    Graph(const Graph &) = delete;

    // `between` may add nodes after the gather.
    void layer(const std::function<void()> & between = [] {}, bool gates_a_channel = false) {
        const int64_t state = SIZE * SIZE * HEADS;
        cache = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, state, CELLS * PLANES);
        gather = ggml_get_rows(ctx, ggml_reshape_2d(ctx, cache, state, CELLS * PLANES), row);
        states = ggml_view_2d(ctx, gather, state, sequences, gather->nb[1], 0);
        ggml_build_forward_expand(graph, states);
        between();
        auto input = [&](int64_t width, int64_t heads) { return ggml_new_tensor_4d(ctx, GGML_TYPE_F32, width, heads, TOKENS, sequences); };
        net = ggml_gated_delta_net(ctx, input(SIZE, 1), input(SIZE, 1), input(SIZE, HEADS), input(gates_a_channel ? SIZE : 1, HEADS), input(1, HEADS),
                                   ggml_reshape_4d(ctx, states, SIZE, SIZE, HEADS, sequences), PLANES);
        const size_t after = sizeof(float) * SIZE * HEADS * TOKENS * sequences;
        ggml_tensor * from = ggml_view_3d(ctx, net, state, sequences, PLANES, state * 4, state * sequences * 4, after);
        ggml_tensor * to = ggml_view_3d(ctx, cache, state, sequences, PLANES, cache->nb[1], CELLS * cache->nb[1], 0);
        ggml_build_forward_expand(graph, ggml_cpy(ctx, from, to));
    }
    void reads_row_later() { ggml_build_forward_expand(graph, ggml_get_rows(ctx, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 8, 8), row)); }
};

static bool no_channels(const ggml_tensor * net) { return net->src[3]->ne[0] == 1; }

static void expect(const char * what, const Graph & g, size_t count) {
    const InPlace found(g.graph, no_channels);
    if (found.count() != count) {
        ++failed;
        printf("FAILED %s: %zu states in place, not %zu\n", what, found.count(), count);
    }
}

int main() {
    {
        Graph g;
        g.layer();
        const ggml_tensor *gather = g.gather, *net = g.net;
        g.layer();
        g.layer();
        expect("three layers: all but the last, whose row number may be gone", g, 2);
        const InPlace found(g.graph, no_channels);
        if (!found.skips(gather) || !found.reads(net) || found.skips(g.gather) || found.reads(g.net)) {
            ++failed;
            printf("FAILED three layers: not the first and second\n");
        }
    }
    {
        Graph g;
        g.layer();
        g.reads_row_later();
        expect("the row number is read later", g, 1);
    }
    {
        Graph g(2);
        g.layer();
        g.reads_row_later();
        expect("two sequences may swap cells", g, 0);
    }
    {
        Graph g;
        g.layer([] {}, true);
        g.reads_row_later();
        expect("a net that is not ours", g, 0);
    }
    {
        Graph g;
        g.layer([&] {
            ggml_tensor * cell = ggml_view_1d(g.ctx, g.cache, SIZE, 0);
            ggml_build_forward_expand(g.graph, ggml_scale_inplace(g.ctx, cell, 0.0f));
        });
        g.reads_row_later();
        expect("the cache is written between gather and net", g, 0);
    }
    {
        Graph g;
        g.layer([&] { // as llama.cpp writes states that move, here none
            ggml_tensor * none = ggml_view_2d(g.ctx, g.gather, SIZE * SIZE * HEADS, 0, g.gather->nb[1], 0);
            ggml_tensor * to = ggml_view_2d(g.ctx, g.cache, SIZE * SIZE * HEADS, 0, g.cache->nb[1], 0);
            ggml_build_forward_expand(g.graph, ggml_cpy(g.ctx, none, to));
        });
        g.reads_row_later();
        expect("an empty copy between gather and net", g, 1);
    }
    {
        Graph g;
        g.layer([&] { ggml_build_forward_expand(g.graph, ggml_sqr(g.ctx, g.states)); });
        g.reads_row_later();
        expect("the gathered state has another reader", g, 0);
    }
    {
        Graph g;
        g.layer();
        ggml_build_forward_expand(g.graph, ggml_sqr(g.ctx, g.gather));
        g.reads_row_later();
        expect("the gathered state has a later reader", g, 0);
    }
    {
        Graph g;
        g.layer([&] { ggml_set_output(g.gather); });
        g.reads_row_later();
        expect("the gathered state is an output", g, 0);
    }
    {
        Graph g;
        g.layer([&] { ggml_set_output(g.states); });
        g.reads_row_later();
        expect("a view of the gathered state is an output", g, 0);
    }
    printf("gdn_graph: %d failed\n", failed);
    return failed ? 1 : 0;
}
