// How a call is cut into blocks: rows of a block, depth of the ring, ranges of cells. Host code
// without a device: what the device has comes as `FattnLimits`.
#pragma once

#include "fattn_params.cuh"

namespace plateau {

bool fattn_in_domain(const FattnArgs & a) {
    auto aligned = [&](int type, int64_t cell, int64_t head, int64_t stream) {
        const int bytes = a.head_dim / 32 * block_bytes(static_cast<KvType>(type));
        const int piece = bytes % 16 == 0 ? 16 : 8;
        return cell % piece == 0 && head % piece == 0 && stream % piece == 0;
    };
    return (a.head_dim == 128 || a.head_dim == 256) && a.type_k >= 0 && a.type_k < KV_TYPES && a.type_v >= 0 && a.type_v < KV_TYPES
        && a.tokens > 0 && a.streams > 0 && a.kv_heads > 0 && a.heads > 0 && a.heads % a.kv_heads == 0
        && static_cast<int64_t>(a.kv_heads) * a.streams <= 65535 && a.cells >= CELLS && a.cells % CELLS == 0
        && a.mask_streams > 0 && a.streams % a.mask_streams == 0
        && a.q_token % 16 == 0 && a.q_head % 16 == 0 && a.q_stream % 16 == 0 && a.mask_token % 16 == 0 && a.mask_stream % 16 == 0
        && aligned(a.type_k, a.k_cell, a.k_head, a.k_stream) && aligned(a.type_v, a.v_cell, a.v_head, a.v_stream);
}

// Tokens whose rows a block can touch.
static int mask_tokens_of(const FattnArgs & a, int row_tiles_of_8) {
    const int group = a.heads / a.kv_heads;
    const int spread = (8 * row_tiles_of_8 + group - 2) / group + 1;
    return spread < a.tokens ? spread : a.tokens;
}

static int slot_bytes_of(const FattnArgs & a, int mask_tokens) {
    const int k = tile_bytes(static_cast<KvType>(a.type_k), a.head_dim) + mask_tokens * MASK_STRIDE * 2;
    const int v = tile_bytes(static_cast<KvType>(a.type_v), a.head_dim);
    return ((k > v ? k : v) + 15) / 16 * 16;
}

static size_t shared_bytes_of(const FattnArgs & a, int row_tiles_of_8, int ring) {
    return static_cast<size_t>(ring_at(a.head_dim, 8 * row_tiles_of_8))
        + static_cast<size_t>(ring) * slot_bytes_of(a, mask_tokens_of(a, row_tiles_of_8));
}

// Blocks of one multiprocessor: what registers allow by the launch bounds, what shared memory
// allows.
static int residency(const FattnLimits & l, int row_tiles_of_8, size_t shared) {
    const int by_registers = resident_blocks(row_tiles_of_8);
    const int by_shared = l.shared_per_multiprocessor / static_cast<int>(shared + 1024);
    return by_shared < by_registers ? by_shared : by_registers;
}

// The most rows of a block, in tiles of 8, beside which two tiles of the cache fit into its shared
// memory: fewer than FATTN_MAX_ROWS where K is f16 and the device has 99 KiB a block.
static int most_row_tiles(const FattnArgs & a, const FattnLimits & l) {
    for (const int tiles : { FATTN_MAX_ROWS / 8, 4, 3, 2 }) {
        if (shared_bytes_of(a, tiles, 2) <= static_cast<size_t>(l.shared_per_block)) {
            return tiles;
        }
    }
    return 1;
}

static void plan_rows(const FattnArgs & a, const FattnLimits & l, FattnPlan & plan) {
    const int rows = a.tokens * (a.heads / a.kv_heads);
    const int tiles_of_8 = (rows + 7) / 8, most = most_row_tiles(a, l);
    plan.row_tiles = (tiles_of_8 + most - 1) / most;
    // The same share for every block: 64 rows are two blocks of 32, not 48 and 16.
    const int share = (tiles_of_8 + plan.row_tiles - 1) / plan.row_tiles;
    plan.row_tiles_of_8 = share <= 4 ? share : 6;
}

// The deepest ring that costs no resident block; returns the resident blocks of a multiprocessor.
static int plan_ring(const FattnArgs & a, const FattnLimits & l, FattnPlan & plan) {
    int blocks = 0;
    for (int ring = 2; ring <= 4; ++ring) {
        const size_t shared = shared_bytes_of(a, plan.row_tiles_of_8, ring);
        const int here = shared <= static_cast<size_t>(l.shared_per_block) ? residency(l, plan.row_tiles_of_8, shared) : 0;
        if (ring == 2 || here >= blocks) {
            plan.ring = ring;
            plan.shared_bytes = shared;
            blocks = here > 1 ? here : 1;
        }
    }
    return blocks;
}

// `slots`: blocks that the device holds at a time.
static void plan_splits(const FattnArgs & a, int slots, FattnPlan & plan) {
    const int base = plan.row_tiles * a.kv_heads * a.streams;
    const int tiles = a.cells / CELLS;
    int splits = slots / base;
    if (splits < 2) {
        // More than half a wave of blocks: cut the cells so that the last wave is as full as
        // possible.
        splits = 1;
        float best = 0.0f;
        for (int s = 1; s <= 6 && 4 * s <= tiles; ++s) {
            const int waves = (base * s + slots - 1) / slots;
            const float full = static_cast<float>(base * s) / (waves * slots);
            if (full > best + 0.05f) {
                best = full;
                splits = s;
            }
        }
    }
    const int least = tiles < 4 ? tiles : 4; // tiles that are worth a part of their own
    splits = splits < tiles / least ? splits : tiles / least;
    const int per_split = (tiles + splits - 1) / splits;
    plan.cells_per_split = per_split * CELLS;
    plan.splits = (tiles + per_split - 1) / per_split;
    if (plan.splits > 1) {
        plan.scratch_bytes = static_cast<size_t>(plan.splits) * a.streams * a.tokens * a.heads * (a.head_dim * sizeof(float) + sizeof(float2));
    }
}

FattnPlan fattn_plan(const FattnArgs & a, const FattnLimits & l) {
    FattnPlan plan = {};
    plan_rows(a, l, plan);
    plan_splits(a, l.multiprocessors * plan_ring(a, l, plan), plan);
    return plan;
}

} // namespace plateau
