// The search of gdn_in_place.h: one pass over the nodes of a graph.
#include "gdn_in_place.h"

#include "ggml-impl.h"

#include <unordered_map>

namespace plateau {

static const ggml_tensor * root(const ggml_tensor * t) { return t->view_src ? t->view_src : t; }

static bool does_nothing(const ggml_tensor * t) {
    return ggml_is_empty(t) || t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE
        || t->op == GGML_OP_TRANSPOSE;
}

bool gathers_state(const ggml_tensor * t) {
    return t->op == GGML_OP_GET_ROWS && t->type == GGML_TYPE_F32 && t->src[0]->type == GGML_TYPE_F32 && ggml_is_contiguous(t->src[0])
        && ggml_nelements(t->src[1]) == 1 && ggml_nrows(t) == 1 && t->ne[0] >= 64 * 64 && !(t->flags & GGML_TENSOR_FLAG_OUTPUT);
}

InPlace::InPlace(const ggml_cgraph * graph, bool (*takes)(const ggml_tensor * net)) {
    struct Gather {
        int at;
        int readers = 0;
        const ggml_tensor * reader = nullptr;
    };
    std::unordered_map<const ggml_tensor *, Gather> gathers;
    std::unordered_map<const ggml_tensor *, int> written, read; // a cache, a row number: the last node that does
    std::unordered_map<const ggml_tensor *, int> reader_at;
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        if (node->view_src && (node->flags & GGML_TENSOR_FLAG_OUTPUT)) {
            gathers.erase(node->view_src);
        }
        if (does_nothing(node)) {
            continue;
        }
        for (int n = 0; n < GGML_MAX_SRC && node->src[n]; ++n) {
            const ggml_tensor * from = root(node->src[n]);
            const auto gather = gathers.find(from);
            if (gather != gathers.end()) {
                ++gather->second.readers;
                const auto cache = written.find(root(from->src[0]));
                const bool untouched = cache == written.end() || cache->second < gather->second.at;
                // One sequence, so that no lane writes a state before another has read it.
                const bool fits = node->op == GGML_OP_GATED_DELTA_NET && n == 5 && node->src[5]->view_offs == 0
                    && node->src[2]->ne[3] == 1 && ggml_nelements(node->src[5]) == from->ne[0] && takes(node);
                gather->second.reader = untouched && fits ? node : nullptr;
                reader_at[node] = i;
            }
            const auto number = read.find(from);
            if (number != read.end()) {
                number->second = i;
            }
        }
        if (gathers_state(node)) {
            Gather gather;
            gather.at = i;
            gathers[node] = gather;
            read.emplace(root(node->src[1]), i);
            written.emplace(root(node->src[0]), -1);
        }
        const auto cache = written.find(root(node));
        if (cache != written.end()) {
            cache->second = i;
        }
    }
    for (const auto & [gather, facts] : gathers) {
        // The row number must outlive the gather: its memory is free for others after its last reader.
        if (facts.readers == 1 && facts.reader && read[root(gather->src[1])] > reader_at[facts.reader]) {
            skipped.insert(gather);
            readers.insert(facts.reader);
        }
    }
}

} // namespace plateau
