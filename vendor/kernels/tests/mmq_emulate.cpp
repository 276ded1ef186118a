// The small-batch product on the host: its own source, a fibre a lane (emulate/emulate.h), against float64.
//
//   mmq_emulate          all cases; a line each with -v
//
// Needs a C++17 compiler and nothing else. mmq_check.cu repeats this on a card.
#include "mmq_cases.h"

#include "../src/warp.cuh"

using namespace plateau;

static int failed = 0, cases = 0;
static double worst = 0.0;
static bool verbose = false;

// Aligned to 256 bytes, with NaN in front and behind.
struct Memory {
    static constexpr size_t MARGIN = 1024;
    std::vector<uint8_t> all;
    size_t bytes;
    explicit Memory(size_t bytes_) : all(bytes_ + 2 * MARGIN + 256, 0xff), bytes(bytes_) {}
    uint8_t * data() { return all.data() + MARGIN + (256 - reinterpret_cast<uintptr_t>(all.data() + MARGIN) % 256) % 256; }
    bool intact() {
        for (uint8_t * p = all.data(); p < all.data() + all.size(); ++p) {
            if ((p < data() || p >= data() + bytes) && *p != 0xff) {
                return false;
            }
        }
        return true;
    }
};

enum Way { PLAIN, ADD, TWO, GATED };

static void check(const Format & f, int rows, int k, int columns, Way way, emulate::Manner manner) {
    emulate::machine().manner = manner;
    const uint32_t seed = rows * 131 + k * 7 + columns;
    const std::vector<uint8_t> weights = random_weights(f, rows, k, seed), second = random_weights(f, rows, k, seed + 1);
    const int column = k + 64, out_column = rows + 3;
    std::vector<float> x = random_columns(static_cast<size_t>(k) * columns, seed + 2);
    Memory w(weights.size()), o(second.size()), in(static_cast<size_t>(column) * columns * 4), q(small_quantized_bytes(k, columns));
    Memory out(static_cast<size_t>(out_column) * columns * 4), out2(static_cast<size_t>(out_column) * columns * 4), add(static_cast<size_t>(out_column) * columns * 4);
    memcpy(w.data(), weights.data(), weights.size());
    memcpy(o.data(), second.data(), second.size());
    memset(out.data(), 0xff, out.bytes);
    memset(out2.data(), 0xff, out2.bytes);
    const std::vector<float> more = random_columns(static_cast<size_t>(out_column) * columns, seed + 3);
    memcpy(add.data(), more.data(), add.bytes);
    for (int c = 0; c < columns; ++c) {
        memcpy(in.data() + static_cast<size_t>(c) * column * 4, &x[static_cast<size_t>(c) * k], k * 4);
    }
    small_quantize(reinterpret_cast<float *>(in.data()), column, k, columns, q.data(), true, nullptr);
    SmallProduct p = {};
    p.type = f.type;
    p.weights = w.data();
    p.row_bytes = k / 256 * f.bytes;
    p.rows = rows;
    p.k = k;
    p.columns = columns;
    p.quantized = q.data();
    p.out = reinterpret_cast<float *>(out.data());
    p.out_column = out_column;
    if (way == ADD) {
        p.add = reinterpret_cast<float *>(add.data());
    }
    if (way == TWO || way == GATED) {
        p.other = o.data();
        p.other_out = way == TWO ? reinterpret_cast<float *>(out2.data()) : nullptr;
    }
    if (!small_in_domain(p)) {
        printf("outside the domain\n");
        exit(1);
    }
    small_product(p, true, nullptr);

    std::vector<double> columns_seen;
    for (int c = 0; c < columns; ++c) {
        const std::vector<double> one = rounded({ x.begin() + static_cast<size_t>(c) * k, x.begin() + static_cast<size_t>(c + 1) * k });
        columns_seen.insert(columns_seen.end(), one.begin(), one.end());
    }
    std::vector<double> right = reference(f, weights, rows, k, columns, columns_seen);
    const std::vector<double> right2 = reference(f, second, rows, k, columns, columns_seen);
    auto taken = [&](Memory & m) {
        std::vector<float> y(right.size());
        for (int c = 0; c < columns; ++c) {
            memcpy(&y[static_cast<size_t>(c) * rows], m.data() + static_cast<size_t>(c) * out_column * 4, rows * 4);
        }
        return y;
    };
    for (int c = 0; c < columns; ++c) {
        for (int r = 0; r < rows; ++r) {
            double & y = right[static_cast<size_t>(c) * rows + r];
            if (way == ADD) {
                y += more[static_cast<size_t>(c) * out_column + r];
            } else if (way == GATED) {
                const double gate = right2[static_cast<size_t>(c) * rows + r];
                y *= gate / (1.0 + exp(-gate));
            }
        }
    }
    double error = error_of(taken(out).data(), right);
    if (way == TWO) {
        error = std::fmax(error, error_of(taken(out2).data(), right2));
    }
    const bool intact = w.intact() && q.intact() && out.intact() && out2.intact();
    const bool ok = error < 1e-9 && intact;
    ++cases;
    failed += !ok;
    worst = std::fmax(worst, error);
    if (verbose || !ok) {
        printf("%s %-7s rows %4d k %5d columns %2d way %d: %.2e%s\n", ok ? "ok    " : "FAILED", f.name, rows, k, columns, way, error, intact ? "" : ", memory overwritten");
    }
}

int main(int argc, char ** argv) {
    verbose = argc > 1 && !strcmp(argv[1], "-v");
    for (const Format & f : FORMATS) {
        for (int columns = 1; columns <= SMALL_COLUMNS; ++columns) {
            emulate::Manner manner;
            manner.backwards = columns % 2;
            manner.copies_late = columns % 3 != 0;
            check(f, 48, columns % 2 ? 1280 : 256, columns, PLAIN, manner);
        }
        check(f, 16, 4352, 4, PLAIN, {});
        check(f, 24, 512, 3, PLAIN, {});
        check(f, 56, 768, 1, PLAIN, {});
        check(f, 40, 768, 2, ADD, {});
        check(f, 40, 1280, 1, GATED, {});
        check(f, 24, 2560, 8, GATED, {});
        if (f.bytes % 16 == 0) {
            check(f, 17, 512, 3, PLAIN, {});
            check(f, 37, 1024, 1, PLAIN, {});
            check(f, 37, 768, 5, TWO, {});
            check(f, 35, 2560, 8, GATED, {});
        }
        check(f, 32, 512, 12, GATED, {});
    }
    printf("small products: %d cases, %d failed, worst NMSE %.2e\n", cases, failed, worst);
    return failed ? 1 : 0;
}
