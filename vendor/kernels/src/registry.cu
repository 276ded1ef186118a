// The switches and counters of our kernels, and the plug-in's entry points.
#include "registry.h"

#include "gdn_dispatch.h"

#include "ggml-backend-impl.h"
#include "ggml-cuda.h"
#include "ggml-impl.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>

#ifndef PLATEAU_CORE_VERSION
#error "PLATEAU_CORE_VERSION: the crate whose ggml this is built for"
#endif

namespace plateau {

static KernelState states[KERNELS] = {
    { "fattn_quant", "attention of 1 to 32 tokens, K and V read in their quantized form", { true }, { 0 }, { 0 } },
    { "fattn_quant_prefill", "attention of longer batches without an f16 copy of the cache", { true }, { 0 }, { 0 } },
    { "gdn_chunk", "Gated DeltaNet of 32 tokens and more in chunks on tensor cores", { true }, { 0 }, { 0 } },
    { "gdn_exact", "the same with every product in three terms", { false }, { 0 }, { 0 } },
    { "gdn_in_place", "Gated DeltaNet of one sequence without a copy of its state before it", { true }, { 0 }, { 0 } },
    { "mmvq_limit", "another limit between upstream's two small-batch products (mmvq_limit=N)", { false }, { 0 }, { 0 } },
    { "mmq_small", "products with 1 to 16 columns, columns quantized once, a gate in one launch", { false }, { 0 }, { 0 } },
};

static std::atomic<int> limit{ 0 };
static bool configured = false; // by the host, before the backend starts

KernelState & kernel(Kernel which) { return states[which]; }
bool enabled(Kernel which) { return states[which].on.load(std::memory_order_relaxed); }
int mmvq_limit() { return enabled(MMVQ_LIMIT) ? limit.load(std::memory_order_relaxed) : 0; }

static int refuse(char * error, int size, const std::string & reason) {
    snprintf(error, size > 0 ? size : 0, "%s", reason.c_str());
    return -1;
}

static int configure(const char * spec, char * error, int error_size) {
    bool on[KERNELS];
    int new_limit = limit;
    for (int i = 0; i < KERNELS; ++i) {
        on[i] = states[i].on;
    }
    const std::string text = spec ? spec : "";
    for (size_t at = 0; at < text.size();) {
        const size_t end = text.find(',', at) == std::string::npos ? text.size() : text.find(',', at);
        const std::string word = text.substr(at, end - at);
        at = end + 1;
        if (word.empty()) {
            continue;
        }
        if (word.rfind("mmvq_limit=", 0) == 0) {
            const std::string number = word.substr(11);
            if (number.size() != 1 || number[0] < '0' || number[0] > '8') {
                return refuse(error, error_size, "mmvq_limit takes 0 to 8, not \"" + number + "\"");
            }
            new_limit = number[0] - '0';
            on[MMVQ_LIMIT] = new_limit > 0;
            continue;
        }
        if (word[0] != '-' && word[0] != '+') {
            return refuse(error, error_size, "\"" + word + "\" does not begin with - or +");
        }
        const std::string name = word.substr(1);
        bool known = false;
        for (int i = 0; i < KERNELS; ++i) {
            // The limit is a number, not a switch, exactness a choice of its own, small products are not measured yet: +all makes none.
            const bool choice = i == MMVQ_LIMIT || i == GDN_EXACT || i == MMQ_SMALL;
            if (name == states[i].name || (name == "all" && (word[0] == '-' || !choice))) {
                on[i] = word[0] == '+';
                known = true;
            }
        }
        if (!known) {
            std::string names;
            for (const KernelState & state : states) {
                names += std::string(names.empty() ? "" : ", ") + state.name;
            }
            return refuse(error, error_size, "no kernel \"" + name + "\"; there are " + names);
        }
    }
    if (on[MMVQ_LIMIT] && new_limit == 0) {
        return refuse(error, error_size, "+mmvq_limit needs a number: mmvq_limit=N");
    }
    for (int i = 0; i < KERNELS; ++i) {
        states[i].on = on[i];
    }
    limit = new_limit;
    return 0;
}

static int report(char * text, int size) {
    std::string all;
    for (const KernelState & state : states) {
        all += std::string(state.name) + "\t" + (state.on ? "on" : "off") + "\t" + std::to_string(state.calls) + "\t"
            + std::to_string(state.fallbacks) + "\t" + state.purpose + "\n";
    }
    if (size > 0) {
        snprintf(text, size, "%s", all.c_str());
    }
    return static_cast<int>(all.size());
}

} // namespace plateau

const char * plateau_kernels_core() { return "llama-cpp-sys-2 " PLATEAU_CORE_VERSION; }

int plateau_kernels_configure(const char * spec, char * error, int error_size) {
    plateau::configured = true;
    return plateau::configure(spec, error, error_size);
}

int plateau_kernels_report(char * text, int size) { return plateau::report(text, size); }

// A refusal must not be found by whoever asks for the last error next.
static int host_call(cudaError_t code) {
    if (code == cudaSuccess) {
        return 0;
    }
    (void) cudaGetLastError();
    return -1;
}

int plateau_host_register(void * base, size_t size) {
    return host_call(cudaHostRegister(base, size, cudaHostRegisterPortable));
}

int plateau_host_unregister(void * base) { return host_call(cudaHostUnregister(base)); }

// Upstream's, under the name that its file got at compile time.
extern "C" ggml_backend_reg_t up_ggml_backend_init(void);

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init(void) {
    // For hosts other than plateau, such as llama-bench: they have no other way to switch a kernel.
    if (const char * spec = plateau::configured ? nullptr : getenv("PLATEAU_KERNELS")) {
        char error[256];
        if (plateau::configure(spec, error, sizeof error) != 0) {
            GGML_LOG_ERROR("plateau kernels: PLATEAU_KERNELS: %s\n", error);
            return nullptr;
        }
    }
    char text[2048];
    plateau::report(text, sizeof text);
    GGML_LOG_INFO("plateau kernels for sm_%d, %s:\n", PLATEAU_CUDA_ARCH, plateau_kernels_core());
    for (char * line = strtok(text, "\n"); line; line = strtok(nullptr, "\n")) {
        char * tab = strchr(line, '\t');
        char * next = tab ? strchr(tab + 1, '\t') : nullptr;
        if (next) {
            *tab = *next = '\0';
            GGML_LOG_INFO("plateau kernel %s: %s\n", line, tab + 1);
        }
    }
    ggml_backend_reg_t reg = up_ggml_backend_init();
    if (reg) {
        plateau::watch_graphs(reg);
    }
    return reg;
}

// How well this file fits the cards: machine code runs on its own major version from its minor version on.
extern "C" __attribute__((visibility("default"))) int ggml_backend_score(void) {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        return 0;
    }
    int worst = 1000;
    for (int i = 0; i < devices; ++i) {
        int major = 0, minor = 0;
        if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i) != cudaSuccess
            || cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i) != cudaSuccess) {
            return 0;
        }
        const bool runs = major == PLATEAU_CUDA_ARCH / 10 && minor >= PLATEAU_CUDA_ARCH % 10;
        const int score = runs ? 100 - (minor - PLATEAU_CUDA_ARCH % 10) : 0;
        worst = score < worst ? score : worst;
    }
    return worst;
}
