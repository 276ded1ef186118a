// The search of mmq_graph.h: two passes over the nodes of a graph.
#include "mmq_graph.h"

#include "ggml-impl.h"

#include <vector>

namespace plateau {

static bool does_nothing(const ggml_tensor * t) {
    return ggml_is_empty(t) || t->op == GGML_OP_NONE || t->op == GGML_OP_VIEW || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_PERMUTE
        || t->op == GGML_OP_TRANSPOSE;
}

static bool overlap(const ggml_tensor * x, const ggml_tensor * y) {
    const char * a = static_cast<const char *>(x->data);
    const char * b = static_cast<const char *>(y->data);
    return a < b + ggml_nbytes(y) && b < a + ggml_nbytes(x);
}

SharedProducts::SharedProducts(const ggml_cgraph * graph) {
    struct Use {
        int first, last;
    };
    std::unordered_map<const ggml_tensor *, Use> uses;   // of columns by products
    std::unordered_map<const ggml_tensor *, int> readers; // of products, views of them included
    for (int i = 0; i < graph->n_nodes; ++i) {
        const ggml_tensor * node = graph->nodes[i];
        for (int n = 0; n < GGML_MAX_SRC && node->src[n]; ++n) {
            const ggml_tensor * from = node->src[n];
            if (from->op == GGML_OP_MUL_MAT) {
                ++readers[from];
            } else if (from->view_src && from->view_src->op == GGML_OP_MUL_MAT) {
                ++readers[from->view_src];
            }
        }
        if (node->op == GGML_OP_MUL_MAT) {
            const auto [use, fresh] = uses.try_emplace(node->src[1], Use{ i, i });
            use->second.last = i;
            (void) fresh;
        }
    }
    std::vector<const ggml_tensor *> open; // columns between their first and last product
    for (int i = 0; i < graph->n_nodes; ++i) {
        ggml_tensor * node = graph->nodes[i];
        if (!does_nothing(node)) {
            for (const ggml_tensor * columns : open) {
                if (overlap(node, columns)) {
                    changed.insert(columns);
                }
            }
        }
        if (node->op != GGML_OP_MUL_MAT) {
            continue;
        }
        const Use use = uses[node->src[1]];
        if (use.first == i && use.last > i) {
            open.push_back(node->src[1]);
        } else if (use.last == i && use.first < i) {
            for (size_t n = 0; n < open.size(); ++n) {
                if (open[n] == node->src[1]) {
                    open[n] = open.back();
                    open.pop_back();
                    break;
                }
            }
        }
        if (i + 2 >= graph->n_nodes) {
            continue;
        }
        ggml_tensor * add = graph->nodes[i + 1];
        // A sum that another sum follows is left alone: upstream adds chains of them up at once.
        if (add->op == GGML_OP_ADD && graph->nodes[i + 2]->op != GGML_OP_ADD && readers[node] == 1 && !(node->flags & GGML_TENSOR_FLAG_OUTPUT)
            && (add->src[0] == node) != (add->src[1] == node)) {
            const ggml_tensor * other = add->src[0] == node ? add->src[1] : add->src[0];
            if (other->type == GGML_TYPE_F32 && add->type == GGML_TYPE_F32 && ggml_are_same_shape(other, node) && ggml_are_same_shape(add, node)
                && ggml_is_contiguous(other) && ggml_is_contiguous(add)) {
                sums[node] = { other, add };
            }
        }
        const ggml_tensor * next = graph->nodes[i + 1];
        ggml_tensor * glu = graph->nodes[i + 2];
        const bool joined = next->op == GGML_OP_MUL_MAT && glu->op == GGML_OP_GLU && glu->src[1] && ggml_get_glu_op(glu) == GGML_GLU_OP_SWIGLU
            && ((glu->src[0] == node && glu->src[1] == next) || (glu->src[0] == next && glu->src[1] == node));
        if (joined && node->src[1] == next->src[1] && readers[node] == 1 && readers[next] == 1 && !((node->flags | next->flags) & GGML_TENSOR_FLAG_OUTPUT)
            && node->src[0]->type == next->src[0]->type && ggml_are_same_shape(node->src[0], next->src[0]) && ggml_are_same_stride(node->src[0], next->src[0])
            && ggml_is_contiguous(glu) && ggml_are_same_shape(glu, node)) {
            gates[node] = { glu->src[0], glu->src[1], glu };
        }
    }
}

} // namespace plateau
