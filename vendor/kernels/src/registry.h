// Which of our kernels are on, and how often each ran or left the work to upstream.
//
// For: dispatch.cu, and the host through the C functions at the end. Not for: reading the environment of plateau, which
// hands its setting over by `plateau_kernels_configure`.
#pragma once

#include <atomic>
#include <stddef.h>
#include <stdint.h>

namespace plateau {

enum Kernel { FATTN_QUANT, FATTN_QUANT_PREFILL, GDN_CHUNK, GDN_EXACT, GDN_IN_PLACE, MMVQ_LIMIT, MMQ_SMALL, KERNELS };

struct KernelState {
    const char * name;
    const char * purpose;
    std::atomic<bool> on;
    std::atomic<uint64_t> calls;     // launches outside a graph plus captures: a replayed graph is not seen by the host
    std::atomic<uint64_t> fallbacks; // work that the kernel is for and that went to upstream while it was on
};

KernelState & kernel(Kernel which);

// Columns up to which k-quants take upstream's vector kernel; 0 leaves upstream's choice.
int mmvq_limit();

// Tokens of a batch from which a K/V pair without quants is left to upstream.
bool enabled(Kernel which);

} // namespace plateau

#define PLATEAU_EXPORT extern "C" __attribute__((visibility("default")))

// "llama-cpp-sys-2 0.1.161": what the plug-in was built for.
PLATEAU_EXPORT const char * plateau_kernels_core();

// `spec`: names after '-' (off) or '+' (on), separated by commas; "-all" and "+all" (which leaves choices such as gdn_exact
// as they are); "mmvq_limit=N". Returns 0, or -1 with
// a reason in `error` when a name is unknown: nothing is changed then. To be called before a context is made: memory is
// planned by it.
PLATEAU_EXPORT int plateau_kernels_configure(const char * spec, char * error, int error_size);

// One line a kernel: name, "on" or "off", calls, fall-backs, purpose, separated by tabs. Returns the length that the text
// needs without its NUL.
PLATEAU_EXPORT int plateau_kernels_report(char * text, int size);

// Makes memory of the host such that a card copies to and from it without a detour, and back to ordinary memory. 0, or -1:
// nothing is changed then. From any thread.
PLATEAU_EXPORT int plateau_host_register(void * base, size_t size);
PLATEAU_EXPORT int plateau_host_unregister(void * base);
