// Which states of a graph are read where they lie in the cache.
//
// For: gdn_dispatch.cu and the test of the search (gdn_graph.cpp). Not for: computing. Needs ggml, no card.
#pragma once

#include "ggml.h"

#include <unordered_set>

struct ggml_cgraph;

namespace plateau {

// A gather of one row of f32, as a recurrent state of one sequence is fetched.
bool gathers_state(const ggml_tensor * tensor);

// Gathers whose only reader is a Gated DeltaNet, which can read that row of the cache itself: nothing writes to the cache
// between the two, and the row's number is still read by a later node, so that its memory is not given to another tensor
// before the reader runs. In a model that leaves out the last such layer.
class InPlace {
public:
    // `takes`: whether our kernels compute a Gated DeltaNet; asked with tensors that may have no data yet.
    InPlace(const ggml_cgraph * graph, bool (*takes)(const ggml_tensor * net));
    bool skips(const ggml_tensor * gather) const { return skipped.count(gather) > 0; }
    bool reads(const ggml_tensor * net) const { return readers.count(net) > 0; }
    size_t count() const { return skipped.size(); }

private:
    std::unordered_set<const ggml_tensor *> skipped, readers;
};

} // namespace plateau
