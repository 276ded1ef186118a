// What mmq_dispatch.cu is told about the graph that is computed; by gdn_dispatch.cu, which sees graphs come and go.
#pragma once

struct ggml_cgraph;

namespace plateau {

// This thread begins and has ended a graph.
void begin_products(const ggml_cgraph * graph);
void end_products();

} // namespace plateau
