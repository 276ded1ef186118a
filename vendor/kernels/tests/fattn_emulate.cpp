// The attention kernel on the host: its own source, a fibre a lane (emulate/emulate.h), against
// float64 over the dequantized cache, a row at a time.
//
//   fattn_emulate          all cases; a line each with -v
//
// Needs a C++17 compiler and nothing else. A card's arithmetic differs in the last bits (order
// within a product of matrices, 2^x): fattn_check.cu repeats this there. How calls are planned is
// in fattn_planning.h.
#include "fattn_cases.h"

#include "../src/kv_types.cuh"
#include "fattn_planning.h"
#include "guarded.h"

#include <algorithm>
#include <cstring>
#include <thread>

using namespace plateau;

// Of one row of the output. K, Q, P and V are halves, each off by up to 2^-12 of itself; the larger
// the scores, the more of that is in their weights.
static double error_limit(const Case & c) { return c.query_size > 1.0f ? 6e-6 : 1.5e-6; }

static int failed = 0;
static bool verbose = false;

static void expect(bool holds, const std::string & where, const char * what) {
    if (!holds) {
        ++failed;
        printf("FAILED %s: %s\n", where.c_str(), what);
    }
}

struct Inputs {
    Guarded q, k, v, mask;
};

static uint16_t half_of(float x) { return emulate::to_half(x); }

// Rows of `heads` within cells within streams, each with its stride.
template <typename F> void each_row(int streams, int outer, int inner, int64_t stream_stride, int64_t outer_stride, int64_t inner_stride, F f) {
    for (int s = 0; s < streams; ++s) {
        for (int o = 0; o < outer; ++o) {
            for (int i = 0; i < inner; ++i) {
                f(s * stream_stride + o * outer_stride + i * inner_stride);
            }
        }
    }
}

static Inputs make(const Case & c, FattnArgs & a, int gap, uint64_t seed) {
    a = sizes_of(c, gap);
    Inputs in = { Guarded(a.q_stream * c.streams), Guarded(a.k_stream * c.streams), Guarded(a.v_stream * c.streams),
                  Guarded(a.mask_stream * c.mask_streams) };
    uint64_t n = seed;
    each_row(c.streams, c.tokens, c.heads, a.q_stream, a.q_token, a.q_head, [&](int64_t at) {
        for (int d = 0; d < c.head_dim; ++d) {
            reinterpret_cast<float *>(in.q.data() + at)[d] = c.query_size * normal(++n);
        }
    });
    for (const bool keys : { true, false }) {
        const int type = keys ? c.type_k : c.type_v, blocks = c.head_dim / 32;
        int64_t row = 0;
        each_row(c.streams, c.cells, c.kv_heads, keys ? a.k_stream : a.v_stream, keys ? a.k_cell : a.v_cell, keys ? a.k_head : a.v_head, [&](int64_t at) {
            uint8_t * to = reinterpret_cast<uint8_t *>((keys ? in.k : in.v).data() + at);
            for (int b = 0; b < blocks; ++b) {
                fill_block(type, to + b * BYTES[type], BYTES[type], seed + (keys ? 1000003 : 2000003), row * blocks + b, half_of);
            }
            ++row;
        });
    }
    for (int s = 0; s < c.mask_streams; ++s) {
        for (int t = 0; t < c.tokens; ++t) {
            uint16_t * to = reinterpret_cast<uint16_t *>(in.mask.data() + s * a.mask_stream + t * a.mask_token);
            for (int cell = 0; cell < c.cells; ++cell) {
                to[cell] = half_of(bias_of(c.mask, cell, t, c.cells, c.tokens, seed + 3000017, (static_cast<int64_t>(s) * c.tokens + t) * c.cells + cell));
            }
        }
    }
    a.q = in.q.floats();
    a.k = in.k.data();
    a.v = in.v.data();
    a.mask = in.mask.data();
    return in;
}

// Softmax attention in float64, an output row after the other; a row that sees nothing is 0.
static std::vector<double> reference(const FattnArgs & a) {
    const int D = a.head_dim, group = a.heads / a.kv_heads;
    std::vector<double> out(static_cast<size_t>(a.streams) * a.tokens * a.heads * D);
    std::vector<double> k(static_cast<size_t>(a.cells) * D), v(k.size()), w(a.cells);
    for (int s = 0; s < a.streams; ++s) {
        for (int kv = 0; kv < a.kv_heads; ++kv) {
            for (int c = 0; c < a.cells; ++c) {
                const uint8_t * k_row = static_cast<const uint8_t *>(a.k) + s * a.k_stream + c * a.k_cell + kv * a.k_head;
                const uint8_t * v_row = static_cast<const uint8_t *>(a.v) + s * a.v_stream + c * a.v_cell + kv * a.v_head;
                for (int d = 0; d < D; ++d) {
                    k[static_cast<size_t>(c) * D + d] = value_at(a.type_k, k_row, d, BYTES[a.type_k]);
                    v[static_cast<size_t>(c) * D + d] = value_at(a.type_v, v_row, d, BYTES[a.type_v]);
                }
            }
            for (int row = 0; row < a.tokens * group; ++row) {
                const int token = row / group, head = kv * group + row % group;
                const float * q = reinterpret_cast<const float *>(reinterpret_cast<const char *>(a.q) + s * a.q_stream + token * a.q_token + head * a.q_head);
                const uint16_t * mask = reinterpret_cast<const uint16_t *>(static_cast<const char *>(a.mask) + s % a.mask_streams * a.mask_stream
                                                                           + token * a.mask_token);
                double top = -INFINITY, sum = 0.0;
                for (int c = 0; c < a.cells; ++c) {
                    const double bias = half_value(mask[c]);
                    w[c] = -INFINITY;
                    if (bias != -INFINITY) {
                        double x = 0.0;
                        for (int d = 0; d < D; ++d) {
                            x += q[d] * k[static_cast<size_t>(c) * D + d];
                        }
                        w[c] = x * a.scale + bias;
                        top = std::max(top, w[c]);
                    }
                }
                double * to = out.data() + ((static_cast<size_t>(s) * a.tokens + token) * a.heads + head) * D;
                for (int c = 0; c < a.cells; ++c) {
                    if (w[c] != -INFINITY) {
                        const double x = exp(w[c] - top);
                        sum += x;
                        for (int d = 0; d < D; ++d) {
                            to[d] += x * v[static_cast<size_t>(c) * D + d];
                        }
                    }
                }
                for (int d = 0; d < D && sum > 0.0; ++d) {
                    to[d] /= sum;
                }
            }
        }
    }
    return out;
}

struct Result {
    std::vector<float> out;
    FattnPlan plan;
    bool intact;
};

// One call as the plug-in makes it, on a device with as many multiprocessors.
static Result compute(FattnArgs a, Inputs & in, const std::string & where, emulate::Manner manner, int multiprocessors) {
    emulate::machine().manner = manner;
    emulate::machine().readable = { { in.k.data(), in.k.bytes }, { in.v.data(), in.v.bytes }, { in.mask.data(), in.mask.bytes } };
    const size_t n = static_cast<size_t>(a.streams) * a.tokens * a.heads * a.head_dim;
    const emulate::Device & device = emulate::device();
    Result r = { {}, fattn_plan(a, { multiprocessors, device.shared_per_multiprocessor, device.shared_per_block }), true };
    Guarded out(n * sizeof(float)), scratch(r.plan.scratch_bytes);
    a.out = out.floats();
    expect(fattn_in_domain(a), where, "outside the domain");
    expect(fattn_launch(a, r.plan, scratch.data(), nullptr) == cudaSuccess, where, "the launch failed");
    r.out.assign(out.floats(), out.floats() + n);
    for (Guarded * x : { &in.q, &in.k, &in.v, &in.mask, &out, &scratch }) {
        r.intact = r.intact && x->intact();
    }
    return r;
}

// The largest error of a row; infinite where a value is not finite or a row that sees nothing is
// not 0.
static double worst_row(const std::vector<float> & got, const std::vector<double> & want, int head_dim) {
    double worst = 0.0;
    for (size_t row = 0; row < got.size(); row += head_dim) {
        double difference = 0.0, size = 0.0;
        for (int d = 0; d < head_dim; ++d) {
            const double x = got[row + d], y = want[row + d];
            if (!std::isfinite(x) || (y == 0.0 && x != 0.0)) {
                return INFINITY;
            }
            difference += (x - y) * (x - y);
            size += y * y;
        }
        worst = std::max(worst, size > 0.0 ? difference / size : 0.0);
    }
    return worst;
}

static bool same(const std::vector<float> & x, const std::vector<float> & y) {
    return x.size() == y.size() && memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

struct Tally {
    int cases = 0, most_splits = 0;
    double worst[FORMATS][FORMATS] = {};
    int classes[7] = {}, rings[5] = {};
};

// Against float64, in two orders of the lanes that must not differ.
static void against_float64(Tally & tally, const Case & c, int multiprocessors = 1, int gap = 0) {
    const uint64_t seed = 12345 + 7919 * static_cast<uint64_t>(++tally.cases);
    FattnArgs a;
    Inputs in = make(c, a, gap, seed);
    const std::vector<double> want = reference(a);
    const Result one = compute(a, in, c.text(), {}, multiprocessors);
    const Result other = compute(a, in, c.text(), { true, false, false }, multiprocessors);
    const double error = worst_row(one.out, want, c.head_dim);
    if (verbose) {
        printf("%-90s rows %d x %d splits %d ring %d error %.1e\n", c.text().c_str(), one.plan.row_tiles, one.plan.row_tiles_of_8, one.plan.splits,
               one.plan.ring, error);
    }
    expect(one.intact && other.intact, c.text(), "wrote where it should not");
    expect(same(one.out, other.out), c.text(), "depends on the order of the lanes");
    expect(error <= error_limit(c), c.text(), "a row is too far from float64");
    tally.worst[c.type_k][c.type_v] = std::max(tally.worst[c.type_k][c.type_v], error);
    tally.most_splits = std::max(tally.most_splits, one.plan.splits);
    ++tally.classes[one.plan.row_tiles_of_8];
    ++tally.rings[one.plan.ring];
}

static void all_cases(Tally & tally) {
    // Every pair and head in every class of row tiles; masks in turn.
    const int rows_of_class[] = { 5, 12, 24, 28, 44 };
    for (int k = 0; k < FORMATS; ++k) {
        for (int v = 0; v < FORMATS; ++v) {
            for (int i = 0; i < 5; ++i) {
                const int wide = (k + v + i) % 2;
                against_float64(tally, { wide ? 256 : 128, 4, 1, (rows_of_class[i] + 3) / 4, 128, k, v, (k + 2 * v + i) % MASKS, 1, 1, 1.0f });
                against_float64(tally, { wide ? 128 : 256, 2, 2, rows_of_class[i], 64, k, v, (2 * k + v + i) % MASKS, 1, 1, 1.0f });
            }
            against_float64(tally, { 256, 6, 1, 3, 192, k, v, CAUSAL, 1, 1, 1.0f }, 1, 16);
        }
    }
    // Every number of tokens, and every group.
    for (int tokens = 1; tokens <= 32; ++tokens) {
        against_float64(tally, { 128, 6, 1, tokens, 128, 4, 4, tokens % MASKS, 1, 1, 1.0f }, 82);
    }
    for (const int group : { 1, 2, 3, 4, 5, 6, 7, 8, 12, 16 }) {
        for (const int tokens : { 1, 3, 9, 32 }) {
            against_float64(tally, { 128, group, 1, tokens, 64, 2, 3, (group + tokens) % MASKS, 1, 1, 1.0f });
        }
    }
    // Many cells, cut into ranges for as many multiprocessors.
    for (int mask = 0; mask < MASKS; ++mask) {
        against_float64(tally, { 128, 6, 1, 2, 1024, 4, 4, mask, 1, 1, 1.0f });
        against_float64(tally, { 128, 6, 1, 2, 1088, 1, 2, mask, 1, 1, 1.0f }, 82);
        against_float64(tally, { 256, 6, 1, 1, 2560, 2, 3, mask, 1, 1, 1.0f }, 132);
    }
    against_float64(tally, { 256, 12, 2, 4, 4096, 4, 4, HOLES, 1, 1, 1.0f }, 82);
    against_float64(tally, { 256, 6, 1, 4, 512, 4, 4, CAUSAL, 1, 1, 4.0f }, 1);
    against_float64(tally, { 256, 6, 1, 4, 512, 1, 1, LONE, 1, 1, 16.0f }, 1);
    // Sequences of their own, with masks of their own and with one for all.
    for (const int mask_streams : { 1, 2 }) {
        against_float64(tally, { 128, 4, 2, 3, 320, 4, 1, HOLES, 2, mask_streams, 1.0f }, 4, 32);
        against_float64(tally, { 256, 12, 2, 5, 256, 3, 4, HIDDEN, 2, mask_streams, 1.0f }, 1);
    }
}

// Every value of every format as a lane takes it apart, for K in the order of the query, for V in
// the order of the output: the nearest half to what the block says.
template <KvType type, int HEAD> static void dequantized() {
    const std::string where = std::string(NAMES[static_cast<int>(type)]) + (HEAD == 256 ? " of 256" : " of 128");
    constexpr int number = static_cast<int>(type), words = row_words(type, HEAD);
    uint32_t rows[2][words] = {};
    for (int round = 0; round < 64; ++round) {
        for (int i = 0; i < 2 * HEAD / 32; ++i) {
            uint8_t * row = reinterpret_cast<uint8_t *>(rows[i & 1]);
            fill_block(number, row + i / 2 * BYTES[number], BYTES[number], 77 + round, i, half_of);
        }
        const auto want = [&](int row, int d) { return half_of(static_cast<float>(value_at(number, reinterpret_cast<const uint8_t *>(rows[row]), d, BYTES[number]))); };
        bool keys = true, values = true;
        for (int block = 0; block < HEAD / 32; ++block) {
            for (int t = 0; t < 4; ++t) {
                uint32_t got[2][2];
                block & 1 ? key_block<type, 1>(rows[0], block >> 1, t, got) : key_block<type, 0>(rows[0], block >> 1, t, got);
                for (int e = 0; e < 32; ++e) {
                    const int place = query_place(type, e & 15); // a fragment's columns: 2 t, 2 t + 1, and 8 further
                    if ((place & 7) >> 1 == t) {
                        const uint32_t word = got[e >> 4][place >> 3];
                        keys = keys && (place & 1 ? word >> 16 : word & 0xffff) == want(0, 32 * block + e);
                    }
                }
            }
        }
        for (int warp = 0; warp < 4; ++warp) {
            for (int g = 0; g < 8; ++g) {
                uint32_t got[HEAD / 32];
                value_pair<type, HEAD>(rows[0], rows[1], warp, g, got);
                for (int e = 0; e < HEAD / 32; ++e) {
                    const int d = warp * (HEAD / 4) + value_place<type, HEAD>(g, e / 4) + e % 4;
                    values = values && (got[e] & 0xffff) == want(0, d) && got[e] >> 16 == want(1, d);
                }
            }
        }
        expect(keys, where, "a key is not the nearest half to its block's value");
        expect(values, where, "a value is not the nearest half to its block's value");
    }
}

template <KvType type> static void dequantized_both() {
    dequantized<type, 128>();
    dequantized<type, 256>();
}

// What lies in cells that nobody sees changes no bit: keys that are no numbers, other values.
static void hidden_cells() {
    const auto hidden = [](int cell) { return cell / 64 % 4 == 1 || cell % 7 == 3 || cell < 256; }; // tiles, cells, a range
    for (int type = 0; type < FORMATS; ++type) {
        for (const int multiprocessors : { 1, 82 }) {
            const Case c = { 128, 3, 1, 5, 768, type, FORMATS - 1 - type, HOLES, 1, 1, 1.0f };
            FattnArgs a;
            Inputs in = make(c, a, 0, 4242 + type);
            auto * mask = reinterpret_cast<uint16_t *>(in.mask.data());
            for (int i = 0; i < c.tokens * c.cells; ++i) {
                mask[i] = hidden(i % c.cells) ? half_of(-INFINITY) : mask[i];
            }
            const Result before = compute(a, in, c.text(), {}, multiprocessors);
            for (int cell = 0; cell < c.cells; ++cell) {
                if (hidden(cell)) {
                    memset(in.k.data() + cell * a.k_cell, 0xff, c.head_dim / 32 * BYTES[c.type_k]);
                    for (int b = 0; b < c.head_dim / 32; ++b) {
                        uint8_t * to = reinterpret_cast<uint8_t *>(in.v.data() + cell * a.v_cell) + b * BYTES[c.type_v];
                        fill_block(c.type_v, to, BYTES[c.type_v], 37, cell * 8 + b, half_of);
                    }
                }
            }
            const Result after = compute(a, in, c.text(), {}, multiprocessors);
            expect(same(before.out, after.out), c.text(), "what lies in hidden cells matters");
        }
    }
}

// The driver is asked once a device for its limits and once a kernel and device for shared memory;
// its errors come back.
static void driver_asked_once() {
    const std::string where = "driver";
    const auto greedy = [](int device) { // a launch of 74 KB a block
        emulate::driver().current = device;
        const Case c = { 256, 6, 1, 8, 64, 4, 4, CAUSAL, 1, 1, 1.0f };
        FattnArgs a;
        Inputs in = make(c, a, 0, 1);
        FattnLimits l = {};
        const cudaError_t error = fattn_limits(device, l);
        Guarded out(static_cast<size_t>(a.tokens) * a.heads * a.head_dim * sizeof(float));
        a.out = out.floats();
        return error == cudaSuccess ? fattn_launch(a, fattn_plan(a, l), nullptr, nullptr) : error;
    };
    emulate::machine().manner = {};
    emulate::machine().readable.clear();
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([] {
            FattnLimits l = {};
            fattn_limits(1, l);
        });
    }
    for (std::thread & thread : threads) {
        thread.join();
    }
    emulate::Device * devices = emulate::driver().devices;
    expect(devices[1].questions == 3, where, "threads asked for the limits more than once");
    for (int i = 0; i < 3; ++i) {
        expect(greedy(1) == cudaSuccess && greedy(2) == cudaSuccess, where, "a launch failed");
    }
    for (const int device : { 0, 1, 2 }) {
        for (const auto & [kernel, requests] : devices[device].requests) {
            expect(kernel && requests == 1, where, "a kernel's shared memory was asked for more than once");
        }
        expect(!devices[device].requests.empty(), where, "no kernel asked for shared memory");
        expect(devices[device].questions <= 3 + static_cast<int>(devices[device].requests.size()), where, "a device was asked more than once");
    }
    FattnLimits l = {};
    devices[3].failure = cudaErrorInitializationError;
    expect(fattn_limits(3, l) == cudaErrorInitializationError && fattn_limits(3, l) == cudaErrorInitializationError, where, "an error of the driver was lost");
    expect(devices[3].questions == 1, where, "asked on after an error");
    expect(fattn_limits(4, l) == cudaSuccess && l.multiprocessors == 82 && l.shared_per_block == 99 * 1024 && l.shared_per_multiprocessor == 100 * 1024, where,
           "other limits than the driver's");
    devices[4].failure = cudaErrorInitializationError;
    expect(greedy(4) == cudaErrorInitializationError, where, "an error of the request for shared memory was lost");
    expect(fattn_limits(-1, l) == cudaErrorInvalidDevice && fattn_limits(64, l) == cudaErrorInvalidDevice, where, "a device that cannot be");
    emulate::driver().current = 0;
}

int main(int argc, char ** argv) {
    verbose = argc > 1 && !strcmp(argv[1], "-v");
    failed += planning_faults();
    dequantized_both<KvType::F16>();
    dequantized_both<KvType::Q8_0>();
    dequantized_both<KvType::Q5_0>();
    dequantized_both<KvType::Q4_1>();
    dequantized_both<KvType::Q4_0>();
    Tally tally;
    all_cases(tally);
    hidden_cells();
    driver_asked_once();
    for (const int tiles : { 1, 2, 3, 4, 6 }) {
        expect(tally.classes[tiles] > 0, "coverage", "a class of row tiles did not run");
    }
    for (const int ring : { 2, 3, 4 }) {
        expect(tally.rings[ring] > 0, "coverage", "a depth of the ring did not run");
    }
    double worst = 0.0;
    for (int k = 0; k < FORMATS; ++k) {
        for (int v = 0; v < FORMATS; ++v) {
            worst = std::max(worst, tally.worst[k][v]);
        }
    }
    const emulate::Machine & m = emulate::machine();
    printf("fattn_emulate: %d cases, at most %d ranges of cells, and 4 properties, %d failed; worst NMSE of a row against float64 %.1e; "
           "%.2f bank conflicts a load of 8 rows\n", tally.cases, tally.most_splits, failed, worst, m.loads ? static_cast<double>(m.conflicts) / m.loads : 0.0);
    return failed ? 1 : 0;
}
