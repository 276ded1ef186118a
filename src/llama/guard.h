// What the files of the guard share: a call that catches every exception, and its codes.
//
// The codes are below llama.cpp's own, which end at -3.
#pragma once

#include <cstdint>
#include <new>

constexpr int32_t OUT_OF_MEMORY = -100;
constexpr int32_t EXCEPTION     = -101;

template <typename F> int32_t guarded(F && call) {
    try {
        return call();
    } catch (const std::bad_alloc &) {
        return OUT_OF_MEMORY;
    } catch (...) {
        return EXCEPTION;
    }
}
