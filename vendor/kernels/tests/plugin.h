// Hosts the plug-in as plateau does: ggml-base is linked statically and its symbols are exported (-rdynamic).
//
// For: the tests that compare our kernels with upstream's in one process. Not for: graphs.
#pragma once

#include "ggml-backend.h"
#include "ggml.h"

#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

// Of the plug-in; without one they do nothing.
inline int (*configure)(const char *, char *, int) = [](const char *, char *, int) { return 0; };
inline int (*report)(char *, int) = [](char * text, int) {
    text[0] = '\0';
    return 0;
};

inline void switch_kernels(const char * spec) {
    char error[256] = "";
    if (configure(spec, error, sizeof error) != 0) {
        fprintf(stderr, "%s: %s\n", spec, error);
        exit(2);
    }
}

// Field 0: calls; 1: fall-backs.
inline uint64_t count(const char * name, int field) {
    char text[4096];
    report(text, sizeof text);
    for (char * line = strtok(text, "\n"); line; line = strtok(nullptr, "\n")) {
        char kernel[64] = "", on[8] = "";
        unsigned long long calls = 0, fallbacks = 0;
        if (sscanf(line, "%63s %7s %llu %llu", kernel, on, &calls, &fallbacks) == 4 && !strcmp(kernel, name)) {
            return field == 0 ? calls : fallbacks;
        }
    }
    return 0;
}

// Normalised mean square difference; infinite where either is not finite.
inline double difference(const std::vector<float> & a, const std::vector<float> & b) {
    double d = 0.0, size = 0.0;
    for (size_t i = 0; i < a.size(); ++i) {
        if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
            return INFINITY;
        }
        d += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return d / size;
}

// Loads the plug-in and finds its switches; ends the program where it has none or there is no card.
inline ggml_backend_reg_t find_kernels(const char * path) {
    ggml_backend_reg_t reg = ggml_backend_load(path);
    void * library = dlopen(path, RTLD_NOW);
    if (!reg || !library || ggml_backend_reg_dev_count(reg) == 0) {
        fprintf(stderr, "cannot load %s, or it has no device: %s\n", path, reg ? "" : dlerror());
        exit(2);
    }
    configure = reinterpret_cast<int (*)(const char *, char *, int)>(dlsym(library, "plateau_kernels_configure"));
    report = reinterpret_cast<int (*)(char *, int)>(dlsym(library, "plateau_kernels_report"));
    if (!configure || !report) {
        fprintf(stderr, "%s has no kernels of ours\n", path);
        exit(2);
    }
    return reg;
}

// The first card of the plug-in.
inline ggml_backend_t load_plugin(const char * path) {
    ggml_backend_dev_t device = ggml_backend_reg_dev_get(find_kernels(path), 0);
    printf("%s\n", ggml_backend_dev_description(device));
    return ggml_backend_dev_init(device, nullptr);
}
