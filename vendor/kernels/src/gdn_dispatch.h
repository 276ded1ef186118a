// The hook by which gdn_dispatch.cu learns which graph is computed.
#pragma once

#include "ggml-backend.h"

namespace plateau {

// Has every backend of these devices that is made from now on tell us the graph that it computes.
void watch_graphs(ggml_backend_reg_t reg);

} // namespace plateau
