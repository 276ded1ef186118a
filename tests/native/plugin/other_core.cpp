// A plug-in with kernels that was built for another core. Its backend must never be started.
#include <cstdlib>

extern "C" {
const char * plateau_kernels_core() { return "llama-cpp-sys-2 0.0.1"; }
int          ggml_backend_score() { return 1; }
void *       ggml_backend_init() { std::abort(); }
}
