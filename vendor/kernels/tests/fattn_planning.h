// What `fattn_plan` and `fattn_in_domain` must hold, for devices that are not here.
//
// For: fattn_emulate.cpp. Sizes are worked out anew, from the layout of shared memory as
// docs/kernels.md has it.
#pragma once

#include "fattn_cases.h"

#include <algorithm>

namespace plateau {

static const FattnLimits RTX_3090 = { 82, 100 * 1024, 99 * 1024 };
static const FattnLimits H200 = { 132, 228 * 1024, 227 * 1024 };

// Bytes of a block: query rows, weights, a float a warp and row, `ring` tiles of 64 cells with the
// mask beside K.
static size_t bytes_of(const FattnArgs & a, int rows, int ring) {
    const auto row = [&](int type) { // padded to 4 words modulo 8
        int words = a.head_dim / 32 * BYTES[type] / 4;
        while (words % 8 != 4) {
            ++words;
        }
        return 4 * words;
    };
    const int group = a.heads / a.kv_heads;
    int tokens = 1; // that `rows` rows can touch, wherever they begin
    for (int first = 0; first < group; ++first) {
        tokens = std::max(tokens, (first + rows - 1) / group + 1);
    }
    const int k = 64 * row(a.type_k) + std::min(tokens, a.tokens) * 144, v = 64 * row(a.type_v);
    return rows * (a.head_dim + 8) * 2 + rows * 144 + rows * 16 + static_cast<size_t>(ring) * ((std::max(k, v) + 15) / 16 * 16);
}

// What is wrong with the plan of a call; null: nothing.
static const char * fault_of(const FattnArgs & a, const FattnLimits & l) {
    const FattnPlan plan = fattn_plan(a, l);
    const int tiles = plan.row_tiles_of_8, rows = a.tokens * (a.heads / a.kv_heads);
    if (tiles != 1 && tiles != 2 && tiles != 3 && tiles != 4 && tiles != 6) {
        return "no kernel has as many row tiles";
    }
    if (8 * tiles > FATTN_MAX_ROWS || plan.row_tiles * 8 * tiles < rows || (plan.row_tiles - 1) * 8 * tiles >= rows) {
        return "blocks do not cover the rows, or one has none";
    }
    if (plan.ring < 2 || plan.ring > 4 || plan.shared_bytes != bytes_of(a, 8 * tiles, plan.ring)) {
        return "other shared memory than the layout needs";
    }
    if (plan.shared_bytes > static_cast<size_t>(l.shared_per_block)) {
        return "more shared memory than a block has";
    }
    const int64_t per_split = plan.cells_per_split;
    if (plan.splits < 1 || plan.splits > 65535 || per_split % 64 != 0 || per_split * plan.splits < a.cells || per_split * (plan.splits - 1) >= a.cells) {
        return "ranges do not cover the cells, or one is empty";
    }
    if (plan.splits > 1 && per_split < 4 * 64) {
        return "a range of fewer than four tiles";
    }
    const size_t parts = static_cast<size_t>(plan.splits) * a.streams * a.tokens * a.heads;
    if (plan.scratch_bytes != (plan.splits > 1 ? parts * (a.head_dim + 2) * 4 : 0)) {
        return "other scratch than the parts need";
    }
    return nullptr;
}

static int faults_of_plans() {
    int faults = 0;
    for (int pair = 0; pair < FORMATS * FORMATS; ++pair) {
        for (const int head : { 128, 256 }) {
            for (const int group : { 1, 2, 3, 4, 5, 6, 7, 8, 12, 16 }) {
                for (const int tokens : { 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33, 64, 512 }) {
                    for (const int cells : { 64, 128, 320, 4096, 262144 }) {
                        for (const FattnLimits & l : { RTX_3090, H200 }) {
                            const Case c = { head, 2 * group, 2, tokens, cells, pair / FORMATS, pair % FORMATS, CAUSAL, 1, 1, 1.0f };
                            if (const char * fault = fault_of(sizes_of(c), l); fault && ++faults <= 10) {
                                printf("FAILED plan for %d multiprocessors, %s: %s\n", l.multiprocessors, c.text().c_str(), fault);
                            }
                        }
                    }
                }
            }
        }
    }
    return faults;
}

// The plans that docs/kernels.md has for a 3090: shared bytes by tokens and K/V, 24 query heads, 4
// KV heads of 256.
static int faults_of_known_plans() {
    const struct {
        int tokens, tiles;
        size_t q4_0, q5_0_q4_1, q8_0;
    } known[] = { { 1, 1, 24224, 28320, 40608 }, { 2, 2, 30016, 45664, 46400 }, { 3, 3, 45456, 39904, 87872 },
                  { 4, 3, 45888, 40192, 88448 }, { 5, 4, 41888, 45984, 94528 }, { 8, 6, 74496, 82688, 88704 } };
    int faults = 0;
    for (const auto & row : known) {
        const auto matches = [&](int k, int v, size_t bytes) {
            const FattnPlan plan = fattn_plan(sizes_of({ 256, 24, 4, row.tokens, 4096, k, v, CAUSAL, 1, 1, 1.0f }), RTX_3090);
            if (plan.row_tiles_of_8 != row.tiles || plan.row_tiles != 1 || plan.shared_bytes != bytes) {
                printf("FAILED plan of %d tokens, %s/%s: %d row tiles, %zu bytes\n", row.tokens, NAMES[k], NAMES[v], plan.row_tiles_of_8, plan.shared_bytes);
                ++faults;
            }
        };
        matches(4, 4, row.q4_0);
        matches(2, 3, row.q5_0_q4_1);
        matches(1, 1, row.q8_0);
    }
    // One token at 131,072 cells: all 82 x 4 blocks that a 3090 holds, four heads at a time.
    const FattnPlan plan = fattn_plan(sizes_of({ 256, 24, 4, 1, 131072, 4, 4, CAUSAL, 1, 1, 1.0f }), RTX_3090);
    if (plan.splits * 4 > 82 * 4 || plan.splits * 4 < 82 * 4 * 9 / 10) {
        printf("FAILED plan of one token: %d ranges\n", plan.splits);
        ++faults;
    }
    return faults;
}

// Calls that the kernel does not take.
static int faults_of_domain() {
    const FattnArgs good = sizes_of({ 256, 24, 4, 3, 256, 4, 1, CAUSAL, 2, 2, 1.0f });
    int faults = !fattn_in_domain(good);
    const auto refused = [&](auto change) {
        FattnArgs a = good;
        change(a);
        if (fattn_in_domain(a)) {
            printf("FAILED domain: a call was taken that should not be (number %d)\n", faults);
            ++faults;
        }
    };
    refused([](FattnArgs & a) { a.head_dim = 64; });
    refused([](FattnArgs & a) { a.head_dim = 192; });
    refused([](FattnArgs & a) { a.type_k = -1; });
    refused([](FattnArgs & a) { a.type_k = FORMATS; });
    refused([](FattnArgs & a) { a.type_v = -1; });
    refused([](FattnArgs & a) { a.type_v = FORMATS; });
    refused([](FattnArgs & a) { a.tokens = 0; });
    refused([](FattnArgs & a) { a.streams = 0; });
    refused([](FattnArgs & a) { a.kv_heads = 0; });
    refused([](FattnArgs & a) { a.heads = 23; });
    refused([](FattnArgs & a) { a.heads = 0; });
    refused([](FattnArgs & a) { a.kv_heads = a.heads = 65536; });
    refused([](FattnArgs & a) { a.cells = 0; });
    refused([](FattnArgs & a) { a.cells = 255; });
    refused([](FattnArgs & a) { a.mask_streams = 0; });
    refused([](FattnArgs & a) { a.mask_streams = 3; });
    refused([](FattnArgs & a) { a.q_token += 4; });
    refused([](FattnArgs & a) { a.q_head += 8; });
    refused([](FattnArgs & a) { a.q_stream += 4; });
    refused([](FattnArgs & a) { a.mask_token += 2; });
    refused([](FattnArgs & a) { a.mask_stream += 8; });
    refused([](FattnArgs & a) { a.k_cell += 8; }); // q4_0 of 256: 144 bytes, copied 16 at a time
    refused([](FattnArgs & a) { a.k_head += 8; });
    refused([](FattnArgs & a) { a.k_stream += 8; });
    refused([](FattnArgs & a) { a.v_cell += 8; });
    refused([](FattnArgs & a) { a.v_head += 2; });
    refused([](FattnArgs & a) { a.v_stream += 4; });
    return faults;
}

static int planning_faults() { return faults_of_plans() + faults_of_known_plans() + faults_of_domain(); }

} // namespace plateau
