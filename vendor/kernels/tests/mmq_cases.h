// Matrices for the tests of the small-batch product: random blocks of each format, and what they mean in float64.
//
// For: mmq_emulate.cpp and mmq_check.cu. The formulas are written down here a second time, value by value, so that a mistake
// in how the kernels read a format shows. Not for: how good the formats are.
#pragma once

#include "../src/mmq_small.h"

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace plateau {

struct Format {
    WeightType type;
    const char * name;
    int bytes; // of 256 weights
};
inline constexpr Format FORMATS[] = {
    { WeightType::Q4_K, "q4_K", 144 }, { WeightType::Q5_K, "q5_K", 176 }, { WeightType::Q6_K, "q6_K", 210 },
    { WeightType::IQ4_XS, "iq4_xs", 136 }, { WeightType::Q8_0, "q8_0", 272 },
};

inline double half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31, rest = bits & 1023;
    const double size = exponent ? ldexp(1024 + rest, exponent - 25) : ldexp(rest, -24);
    return bits & 0x8000 ? -size : size;
}

// A half of about `size`, either sign where `both`.
inline uint16_t random_half(std::mt19937 & random, double size, bool both) {
    const double x = size * (0.5 + (random() >> 8) / 33554432.0);
    int exponent = 0;
    const double m = frexp(x, &exponent); // 0.5 to 1
    const bool small = exponent < -13; // a denormal, as real matrices have them
    const uint16_t bits = static_cast<uint16_t>(small ? ldexp(x, 24) : (exponent + 14) << 10 | static_cast<int>((m * 2 - 1) * 1024));
    return both && random() & 1 ? bits | 0x8000 : bits;
}

inline std::vector<uint8_t> random_weights(const Format & f, size_t rows, int k, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> all(rows * (k / 256) * f.bytes);
    for (size_t at = 0; at < all.size(); at += f.bytes) {
        uint8_t * block = &all[at];
        for (int i = 0; i < f.bytes; i += 2) {
            const uint32_t x = random();
            memcpy(block + i, &x, 2);
        }
        auto put = [&](int where, double size, bool both) {
            const uint16_t x = random_half(random, size, both);
            memcpy(block + where, &x, 2);
        };
        switch (f.type) {
            case WeightType::Q4_K:
            case WeightType::Q5_K: put(0, 2e-4, true); put(2, 1.5e-3, true); break;
            case WeightType::Q6_K: put(208, 2e-5, true); break;
            case WeightType::IQ4_XS: put(0, 2e-5, true); break;
            case WeightType::Q8_0:
                for (int i = 0; i < 8; ++i) {
                    put(34 * i, 2e-4, true);
                }
                break;
        }
    }
    return all;
}

inline void dequantize(WeightType type, const uint8_t * b, double * y) {
    auto half_at = [&](int i) {
        uint16_t x;
        memcpy(&x, b + i, 2);
        return half_value(x);
    };
    switch (type) {
        case WeightType::Q4_K:
        case WeightType::Q5_K: {
            const bool fifth = type == WeightType::Q5_K;
            const uint8_t * s = b + 4;
            const uint8_t * h = b + 16;
            const uint8_t * q = b + (fifth ? 48 : 16);
            for (int i = 0; i < 256; ++i) {
                const int block = i / 32, e = i % 32;
                const int scale = block < 4 ? s[block] & 63 : (s[block + 4] & 15) | (s[block - 4] >> 6) << 4;
                const int least = block < 4 ? s[block + 4] & 63 : s[block + 4] >> 4 | (s[block] >> 6) << 4;
                const int byte = q[block / 2 * 32 + e];
                const int value = (block % 2 ? byte >> 4 : byte & 15) + (fifth && h[e] >> block & 1 ? 16 : 0);
                y[i] = half_at(0) * scale * value - half_at(2) * least;
            }
            break;
        }
        case WeightType::Q6_K:
            for (int i = 0; i < 256; ++i) {
                const int half = i / 128, part = i % 128 / 32, e = i % 32;
                const int low = b[64 * half + 32 * (part % 2) + e] >> (part < 2 ? 0 : 4) & 15;
                const int high = b[128 + 32 * half + e] >> 2 * part & 3;
                y[i] = half_at(208) * static_cast<int8_t>(b[192 + i / 16]) * ((low | high << 4) - 32);
            }
            break;
        case WeightType::IQ4_XS: {
            static const int values[16] = { -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113 };
            const int high_bits = b[2] | b[3] << 8;
            for (int i = 0; i < 256; ++i) {
                const int block = i / 32, e = i % 32;
                const int scale = (b[4 + block / 2] >> 4 * (block % 2) & 15) | (high_bits >> 2 * block & 3) << 4;
                y[i] = half_at(0) * (scale - 32) * values[b[8 + 16 * block + e % 16] >> (e < 16 ? 0 : 4) & 15];
            }
            break;
        }
        case WeightType::Q8_0:
            for (int i = 0; i < 256; ++i) {
                y[i] = half_at(i / 32 * 34) * static_cast<int8_t>(b[i / 32 * 34 + 2 + i % 32]);
            }
            break;
    }
}

// As products see a column: rounded to 8 bits in blocks of 32.
inline std::vector<double> rounded(const std::vector<float> & x) {
    std::vector<double> y(x.size());
    for (size_t at = 0; at < x.size(); at += 32) {
        float largest = 0.0f;
        for (int i = 0; i < 32; ++i) {
            largest = std::fmax(largest, std::fabs(x[at + i]));
        }
        const float d = largest / 127.0f;
        for (int i = 0; i < 32; ++i) {
            y[at + i] = largest == 0.0f ? 0.0 : static_cast<double>(d) * std::round(x[at + i] / d);
        }
    }
    return y;
}

// out[c][r], in float64.
inline std::vector<double> reference(const Format & f, const std::vector<uint8_t> & weights, int rows, int k, int columns, const std::vector<double> & x) {
    std::vector<double> out(static_cast<size_t>(rows) * columns), row(k);
    for (int r = 0; r < rows; ++r) {
        for (int i = 0; i < k / 256; ++i) {
            dequantize(f.type, &weights[(static_cast<size_t>(r) * (k / 256) + i) * f.bytes], &row[256 * i]);
        }
        for (int c = 0; c < columns; ++c) {
            double sum = 0.0;
            for (int i = 0; i < k; ++i) {
                sum += row[i] * x[static_cast<size_t>(c) * k + i];
            }
            out[static_cast<size_t>(c) * rows + r] = sum;
        }
    }
    return out;
}

// Normalised mean square difference; infinite where a value is not finite.
inline double error_of(const float * out, const std::vector<double> & right) {
    double wrong = 0.0, size = 0.0;
    for (size_t i = 0; i < right.size(); ++i) {
        if (!std::isfinite(out[i])) {
            return INFINITY;
        }
        wrong += (out[i] - right[i]) * (out[i] - right[i]);
        size += right[i] * right[i];
    }
    return wrong / size;
}

// Values of usual size, one far larger now and then, some blocks all zero.
inline std::vector<float> random_columns(size_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(count);
    for (size_t i = 0; i < count; ++i) {
        x[i] = normal(random) * (random() % 500 == 0 ? 100.0f : 1.0f);
        if (i / 32 % 37 == 5) {
            x[i] = 0.0f;
        }
    }
    return x;
}

} // namespace plateau
