// Memory for a kernel on the host whose borders are watched.
//
// For: gdn_emulate.cpp and fattn_emulate.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plateau {

// Memory between two margins of NaN, which must still be there afterwards.
struct Guarded {
    static constexpr size_t MARGIN = 1024;
    std::vector<char> all;
    size_t bytes;

    explicit Guarded(size_t bytes_) : all(bytes_ + 2 * MARGIN + 256, '\xff'), bytes(bytes_) {}
    char * data() { return all.data() + MARGIN + (256 - reinterpret_cast<uintptr_t>(all.data() + MARGIN) % 256) % 256; }
    float * floats() { return reinterpret_cast<float *>(data()); }
    bool intact() {
        for (char * p = all.data(); p < data(); ++p) {
            if (*p != '\xff') {
                return false;
            }
        }
        for (char * p = data() + bytes; p < all.data() + all.size(); ++p) {
            if (*p != '\xff') {
                return false;
            }
        }
        return true;
    }
};

} // namespace plateau
