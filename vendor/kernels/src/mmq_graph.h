// What the products of a graph can share: columns quantized once, a gate's two products, and the node behind them.
//
// For: mmq_dispatch.cu and the test of the search (mmq_graph_test.cpp). Not for: computing. Needs ggml, no card.
#pragma once

#include "ggml.h"

#include <unordered_map>
#include <unordered_set>

struct ggml_cgraph;

namespace plateau {

// Two products of the same columns, one after the other in the graph, read only by the SwiGLU behind them.
struct Gate {
    const ggml_tensor * gate; // passed through silu
    const ggml_tensor * up;
    ggml_tensor * out;
};

// A product read only by the sum behind it, whose other part has the same shape.
struct Sum {
    const ggml_tensor * other;
    ggml_tensor * out;
};

class SharedProducts {
public:
    explicit SharedProducts(const ggml_cgraph * graph);
    // Nothing writes to the memory of these columns between the first and the last product that reads them.
    bool steady(const ggml_tensor * columns) const { return changed.count(columns) == 0; }
    // The gate whose first product this is, null if it is none.
    const Gate * gate(const ggml_tensor * product) const {
        const auto found = gates.find(product);
        return found == gates.end() ? nullptr : &found->second;
    }
    const Sum * sum(const ggml_tensor * product) const {
        const auto found = sums.find(product);
        return found == sums.end() ? nullptr : &found->second;
    }

private:
    std::unordered_set<const ggml_tensor *> changed;
    std::unordered_map<const ggml_tensor *, Gate> gates;
    std::unordered_map<const ggml_tensor *, Sum> sums;
};

} // namespace plateau
