// Inputs for the tests of Gated DeltaNet and what a token-by-token float64 computation makes of them.
//
// For: gdn_emulate.cpp (host) and gdn_check.cu (card); plain C++. Shares no code with the kernels.
#pragma once

#include "../src/gdn.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

namespace plateau {

// Gates as models have them, hardly any, strong, both mixed (down to -316, as seen in the wild), all 0, and one strong gate
// followed by weak ones, where sums of gates lose what matters.
enum Gates { USUAL, SLOW, STRONG, MIXED, NONE_AT_ALL, ONE_STRONG, GATE_KINDS };
static const char * const GATE_NAMES[GATE_KINDS] = { "usual", "slow", "strong", "mixed", "none", "one-strong" };

struct GdnCase {
    int size, heads, k_heads, tokens, seqs, share, planes;
    Gates gates = USUAL;
    float value = 1.0f;       // of v: its size, up to 25 in the wild
    float state = 1.0f;       // of the initial state; 0: none
    bool keys_alike = false;  // one key for all tokens: T has no small entries
    bool beta_small = false;  // beta around 1e-4, else in (0, 1)

    std::string text() const {
        char all[200];
        snprintf(all, sizeof all, "S=%d heads=%d/%d T=%d seqs=%d/%d K=%d gates=%s v=%g state=%g%s%s", size, heads, k_heads, tokens, seqs, share,
                 planes, GATE_NAMES[gates], value, state, keys_alike ? " same keys" : "", beta_small ? " small beta" : "");
        return all;
    }
    // Floats.
    size_t state_floats() const { return static_cast<size_t>(seqs) * heads * size * size; }
    size_t out_floats() const { return static_cast<size_t>(seqs) * tokens * heads * size; }
};

// How it is computed, and how far from float64 (normalised mean square error of output and state) it may be.
enum Way { STEP, CHUNKS, EXACT };
static const char * const WAY_NAMES[] = { "step", "chunks", "exact" };
struct Limits {
    double out, state;
};
inline Limits limits(Way way, const GdnCase & c) {
    if (way == STEP) {
        return { 1e-11, 1e-11 };
    }
    if (way == EXACT) {
        return { 1e-9, 1e-10 };
    }
    // One key for all tokens and values that have nothing to do with each other: what the tokens of the chunk add to the
    // output takes away what the state before gave, two products with the same q k, rounded to halves each for itself. Three
    // roundings of full size remain where usual keys have one.
    return { c.keys_alike ? 1e-6 : 5e-7, 1e-7 };
}

struct GdnInputs {
    std::vector<float> q, k, v, g, beta, states;
    int v_gap; // floats between heads' values of one token and the next token's: v is a view in a model
};

inline GdnInputs make_inputs(const GdnCase & c, uint32_t seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
    GdnInputs in;
    in.v_gap = 2 * c.k_heads * c.size;
    const int shared = c.seqs / c.share;
    auto unit_rows = [&](std::vector<float> & x, bool alike) {
        x.resize(static_cast<size_t>(shared) * c.tokens * c.k_heads * c.size);
        for (size_t row = 0; row < x.size(); row += c.size) {
            double length = 0.0;
            for (int i = 0; i < c.size; ++i) {
                x[row + i] = alike && row > 0 ? x[i] : normal(generator);
                length += static_cast<double>(x[row + i]) * x[row + i];
            }
            for (int i = 0; i < c.size && !(alike && row > 0); ++i) {
                x[row + i] = static_cast<float>(x[row + i] / std::sqrt(length));
            }
        }
    };
    unit_rows(in.q, false);
    unit_rows(in.k, c.keys_alike);
    in.v.resize(static_cast<size_t>(c.seqs) * c.tokens * (c.heads * c.size + in.v_gap));
    for (float & x : in.v) { // as SiLU leaves it: never below -0.28, sometimes large
        const float y = normal(generator) * 2.0f;
        x = c.value * y / (1.0f + std::exp(-y)) * (uniform(generator) < 0.02f ? 4.0f : 1.0f);
    }
    in.g.resize(static_cast<size_t>(c.seqs) * c.tokens * c.heads);
    in.beta.resize(in.g.size());
    for (size_t i = 0; i < in.g.size(); ++i) {
        const float u = uniform(generator);
        const bool first = i / c.heads % c.tokens % 64 == 5;
        switch (c.gates) {
            case USUAL: in.g[i] = -std::exp(-6.0f + 7.0f * u); break;
            case SLOW: in.g[i] = -1e-4f * u; break;
            case STRONG: in.g[i] = -20.0f * u; break;
            case MIXED: in.g[i] = u < 0.1f ? -316.0f * uniform(generator) : -0.05f * u; break;
            case ONE_STRONG: in.g[i] = first ? -90.0f - 226.0f * u : -0.01f * u; break;
            default: in.g[i] = 0.0f;
        }
        in.beta[i] = 1.0f / (1.0f + std::exp(-2.0f * normal(generator))) * (c.beta_small ? 1e-4f : 1.0f);
    }
    in.states.resize(c.state_floats());
    for (float & x : in.states) {
        x = c.state * normal(generator);
    }
    return in;
}

// Arguments for these inputs at the given addresses (of the host or of a card).
inline GdnArgs arguments(const GdnCase & c, const GdnInputs & in, const float * q, const float * k, const float * v, const float * g,
                         const float * beta, const float * states, float * out, float * planes) {
    GdnArgs a = {};
    a.q = q;
    a.k = k;
    a.v = v;
    a.g = g;
    a.beta = beta;
    a.states = states;
    a.out = out;
    a.planes = planes;
    a.plane_stride = c.state_floats();
    a.plane_count = c.planes;
    a.size = c.size;
    a.heads = c.heads;
    a.k_heads = c.k_heads;
    a.tokens = c.tokens;
    a.seqs = c.seqs;
    a.seq_share = c.share;
    a.k_head = c.size;
    a.k_token = static_cast<int64_t>(c.k_heads) * c.size;
    a.k_seq = a.k_token * c.tokens;
    a.v_head = c.size;
    a.v_token = static_cast<int64_t>(c.heads) * c.size + in.v_gap;
    a.v_seq = a.v_token * c.tokens;
    a.gate_token = c.heads;
    a.gate_seq = a.gate_token * c.tokens;
    a.out_seq = static_cast<int64_t>(c.tokens) * c.heads * c.size;
    a.scale = 1.0f / std::sqrt(static_cast<float>(c.size));
    return a;
}

// What the operator is defined to give, in type R and in the order of the CPU's operator; `out` and the planes in the layout
// of the kernels.
template <typename R> void serial(const GdnCase & c, const GdnInputs & in, std::vector<R> & out, std::vector<R> & planes) {
    out.assign(c.out_floats(), R(0));
    planes.assign(c.state_floats() * c.planes, R(0));
    const int n = c.size;
    std::vector<R> s(static_cast<size_t>(n) * n), d(n);
    for (int seq = 0; seq < c.seqs; ++seq) {
        for (int head = 0; head < c.heads; ++head) {
            const size_t at = (static_cast<size_t>(seq) * c.heads + head) * n * n;
            std::copy_n(in.states.begin() + at, n * n, s.begin());
            for (int token = 0; token < c.tokens; ++token) {
                const size_t row = (static_cast<size_t>(seq / c.share) * c.tokens + token) * c.k_heads + head % c.k_heads;
                const float * q = &in.q[row * n];
                const float * k = &in.k[row * n];
                const size_t step = static_cast<size_t>(seq) * c.tokens + token;
                const float * v = &in.v[step * (c.heads * n + in.v_gap) + head * n];
                const R decay = std::exp(static_cast<R>(in.g[step * c.heads + head])), beta = in.beta[step * c.heads + head];
                for (int j = 0; j < n; ++j) {
                    R * column = &s[static_cast<size_t>(j) * n];
                    R known = 0, result = 0;
                    for (int i = 0; i < n; ++i) {
                        column[i] *= decay;
                        known += column[i] * k[i];
                    }
                    const R delta = (v[j] - known) * beta;
                    for (int i = 0; i < n; ++i) {
                        column[i] += delta * k[i];
                        result += column[i] * q[i];
                    }
                    out[(step * c.heads + head) * n + j] = result / std::sqrt(static_cast<R>(n));
                }
                const int plane = c.tokens - 1 - token;
                if (plane < c.planes) {
                    std::copy(s.begin(), s.end(), planes.begin() + plane * c.state_floats() + at);
                }
            }
        }
    }
}

// Normalised mean square error; infinite where a value is not finite.
template <typename A, typename B> double nmse(const std::vector<A> & got, const std::vector<B> & want) {
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
        const double x = got[i], y = want[i];
        if (!std::isfinite(x)) {
            return INFINITY;
        }
        difference += (x - y) * (x - y);
        size += y * y;
    }
    return size > 0.0 ? difference / size : difference;
}

} // namespace plateau
