// The driver of an emulated machine: devices with limits, what was asked of them, and errors on
// demand.
//
// For: emulate.h, and the tests of what a program asks a driver for. Not for: how a kernel runs.
#pragma once

#include "cuda_runtime.h"

#include <map>
#include <vector>

namespace plateau::emulate {

constexpr int DEVICES = 8;
constexpr size_t SHARED_WITHOUT_ASKING = 48 * 1024;

struct Device {
    int multiprocessors = 82, shared_per_multiprocessor = 100 * 1024, shared_per_block = 99 * 1024; // a 3090's
    cudaError_t failure = cudaSuccess;       // of every question from now on
    int questions = 0;                       // attributes of the device that were asked for
    std::map<const void *, int> requests;    // for more shared memory, of a kernel
    std::map<const void *, size_t> allowed;  // dynamic shared memory of a kernel
};

struct Driver {
    Device devices[DEVICES];
    int current = 0;
    cudaError_t last_error = cudaSuccess; // of a launch, until it is read
};

inline Driver & driver() {
    static Driver * d = new Driver;
    return *d;
}

inline Device & device() { return driver().devices[driver().current]; }

template <typename P> const void * address_of(void (*kernel)(P)) { return reinterpret_cast<const void *>(kernel); }

template <typename P> size_t allowed_shared_bytes(void (*kernel)(P)) {
    const auto found = device().allowed.find(address_of(kernel));
    return found == device().allowed.end() ? SHARED_WITHOUT_ASKING : found->second;
}

} // namespace plateau::emulate

inline cudaError_t cudaGetDevice(int * device) {
    *device = plateau::emulate::driver().current;
    return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int * value, cudaDeviceAttr attribute, int device) {
    if (device < 0 || device >= plateau::emulate::DEVICES) {
        return cudaErrorInvalidDevice;
    }
    plateau::emulate::Device & d = plateau::emulate::driver().devices[device];
    ++d.questions;
    if (d.failure != cudaSuccess) {
        return d.failure;
    }
    *value = attribute == cudaDevAttrMultiProcessorCount                ? d.multiprocessors
           : attribute == cudaDevAttrMaxSharedMemoryPerMultiprocessor ? d.shared_per_multiprocessor
                                                                      : d.shared_per_block;
    return cudaSuccess;
}

template <typename P> cudaError_t cudaFuncGetAttributes(cudaFuncAttributes * attributes, void (*)(P)) {
    attributes->sharedSizeBytes = 0;
    return plateau::emulate::device().failure;
}

template <typename P> cudaError_t cudaFuncSetAttribute(void (*kernel)(P), cudaFuncAttribute, int bytes) {
    plateau::emulate::Device & d = plateau::emulate::device();
    ++d.requests[plateau::emulate::address_of(kernel)];
    if (d.failure != cudaSuccess) {
        return d.failure;
    }
    if (bytes < 0 || bytes > d.shared_per_block) {
        return cudaErrorInvalidValue;
    }
    d.allowed[plateau::emulate::address_of(kernel)] = static_cast<size_t>(bytes);
    return cudaSuccess;
}

inline cudaError_t cudaGetLastError() {
    const cudaError_t error = plateau::emulate::driver().last_error;
    plateau::emulate::driver().last_error = cudaSuccess;
    return error;
}
