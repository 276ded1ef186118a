// The Gated DeltaNet kernels on the host: their own source, a fibre a lane (emulate/emulate.h), against float64.
//
//   gdn_emulate          all cases; a line each with -v
//
// Needs a C++17 compiler and nothing else. A card's arithmetic differs in the last bits (fused sums, order within a product
// of matrices): gdn_check.cu repeats this there.
#include "gdn_cases.h"

#include "../src/warp.cuh"
#include "guarded.h"

#include <cstring>

using namespace plateau;

static int failed = 0;
static bool verbose = false;

struct Result {
    std::vector<float> out, planes;
    bool intact;
};

// One call as the plug-in makes it. `in_place`: the state is plane `in_place` of the memory that the planes are written to.
static Result compute(const GdnCase & c, const GdnInputs & in, Way way, emulate::Manner manner = {}, int in_place = -1) {
    emulate::machine().manner = manner;
    // 16-byte aligned copies: rows are read as float4.
    auto aligned = [](const std::vector<float> & x) {
        Guarded copy(x.size() * sizeof(float));
        memcpy(copy.data(), x.data(), x.size() * sizeof(float));
        return copy;
    };
    Guarded q = aligned(in.q), k = aligned(in.k), v = aligned(in.v), g = aligned(in.g), beta = aligned(in.beta), states = aligned(in.states);
    Guarded out(c.out_floats() * sizeof(float)), planes(c.planes * c.state_floats() * sizeof(float));
    GdnArgs a = arguments(c, in, q.floats(), k.floats(), v.floats(), g.floats(), beta.floats(), states.floats(), out.floats(), planes.floats());
    const int32_t row = in_place;
    if (in_place >= 0) {
        memcpy(planes.floats() + in_place * c.state_floats(), in.states.data(), in.states.size() * sizeof(float));
        a.states = planes.floats();
        a.row = &row;
    }
    if (!gdn_in_domain(a)) {
        printf("outside the domain: %s\n", c.text().c_str());
        exit(1);
    }
    Guarded scratch(way == STEP ? 0 : gdn_scratch_bytes(a, way == EXACT));
    if (way == STEP) {
        gdn_step(a, nullptr);
    } else {
        gdn_chunks(a, way == EXACT, scratch.data(), nullptr);
    }
    Result result = { { out.floats(), out.floats() + c.out_floats() }, { planes.floats(), planes.floats() + c.planes * c.state_floats() }, true };
    for (Guarded * x : { &q, &k, &v, &g, &beta, &states, &out, &planes, &scratch }) {
        result.intact = result.intact && x->intact();
    }
    return result;
}

static bool same(const std::vector<float> & x, const std::vector<float> & y) {
    return x.size() == y.size() && memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0;
}

static void expect(bool holds, const GdnCase & c, Way way, const char * what) {
    if (!holds) {
        ++failed;
        printf("FAILED %s, %s: %s\n", WAY_NAMES[way], c.text().c_str(), what);
    }
}

// The CPU's operator, f32 in another order, is printed beside ours.
static double cpu_worst[2] = {};

// Against float64, in two orders of the lanes that must not differ.
static void against_float64(const GdnCase & c, Way way, double (&worst)[2]) {
    static uint32_t seed = 1;
    const GdnInputs in = make_inputs(c, ++seed);
    std::vector<double> out, planes;
    serial(c, in, out, planes);
    std::vector<float> cpu_out, cpu_planes;
    serial(c, in, cpu_out, cpu_planes);
    cpu_worst[0] = std::max(cpu_worst[0], nmse(cpu_out, out));
    cpu_worst[1] = std::max(cpu_worst[1], nmse(cpu_planes, planes));
    const Result one = compute(c, in, way);
    const Result other = compute(c, in, way, { true, false, false });
    expect(one.intact && other.intact, c, way, "wrote where it should not");
    expect(same(one.out, other.out) && same(one.planes, other.planes), c, way, "depends on the order of the lanes");
    double error[2] = { nmse(one.out, out), 0.0 };
    for (int i = 0; i < std::min(c.planes, c.tokens); ++i) { // a plane each: the first would hide the last
        const auto at = static_cast<std::ptrdiff_t>(i * c.state_floats()), end = static_cast<std::ptrdiff_t>((i + 1) * c.state_floats());
        error[1] = std::max(error[1], nmse(std::vector<float>(one.planes.begin() + at, one.planes.begin() + end),
                                           std::vector<double>(planes.begin() + at, planes.begin() + end)));
    }
    if (verbose) {
        printf("%-6s %-90s out %.1e state %.1e\n", WAY_NAMES[way], c.text().c_str(), error[0], error[1]);
    }
    expect(error[0] <= limits(way, c).out, c, way, "the output is too far from float64");
    expect(error[1] <= limits(way, c).state, c, way, "the state is too far from float64");
    worst[0] = std::max(worst[0], error[0]);
    worst[1] = std::max(worst[1], error[1]);
}

// Upstream's kernel in its own words, one column at a time: 32 partial sums, added crosswise; every fused product as in its
// machine code.
static void upstream(const GdnCase & c, const GdnInputs & in, std::vector<float> & out, std::vector<float> & planes) {
    const int n = c.size;
    auto crosswise = [](float (&x)[32]) {
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            float y[32];
            for (int l = 0; l < 32; ++l) {
                y[l] = x[l] + x[l ^ lanes];
            }
            memcpy(x, y, sizeof x);
        }
        return x[0];
    };
    for (int seq = 0; seq < c.seqs; ++seq) {
        for (int head = 0; head < c.heads; ++head) {
            for (int j = 0; j < n; ++j) {
                const size_t at = ((static_cast<size_t>(seq) * c.heads + head) * n + j) * n;
                std::vector<float> s(in.states.begin() + at, in.states.begin() + at + n);
                for (int token = 0; token < c.tokens; ++token) {
                    const size_t row = ((static_cast<size_t>(seq / c.share) * c.tokens + token) * c.k_heads + head % c.k_heads) * n;
                    const size_t step = static_cast<size_t>(seq) * c.tokens + token;
                    float x[32] = {};
                    for (int i = 0; i < n; ++i) {
                        x[i % 32] = fmaf(s[i], in.k[row + i], x[i % 32]);
                    }
                    const float decay = exponential(in.g[step * c.heads + head]);
                    const float delta = fmaf(crosswise(x), -decay, in.v[step * (c.heads * n + in.v_gap) + head * n + j]) * in.beta[step * c.heads + head];
                    memset(x, 0, sizeof x);
                    for (int i = 0; i < n; ++i) {
                        const float kd = in.k[row + i] * delta;
                        s[i] = fmaf(decay, s[i], kd);
                        x[i % 32] = fmaf(s[i], in.q[row + i], x[i % 32]);
                    }
                    out[(step * c.heads + head) * n + j] = crosswise(x) * (1.0f / sqrtf(static_cast<float>(n)));
                    if (const int plane = c.tokens - 1 - token; plane < c.planes) {
                        std::copy(s.begin(), s.end(), planes.begin() + plane * c.state_floats() + at);
                    }
                }
            }
        }
    }
}

// The planes of every K up to 8: the bits and the order of upstream's; those past the tokens stay as they were.
static void planes_as_upstream() {
    for (const int size : { 64, 128 }) {
        for (int planes = 1; planes <= 8; ++planes) {
            for (const int tokens : { 1, 2, 4, 8, 11 }) {
                const GdnCase c = { size, 2, 1, tokens, 2, 1, planes, USUAL };
                const GdnInputs in = make_inputs(c, 100 * planes + tokens);
                Result want = { std::vector<float>(c.out_floats()), std::vector<float>(c.planes * c.state_floats()), true };
                memset(want.planes.data(), 0xff, want.planes.size() * sizeof(float));
                emulate::machine().manner = {};
                upstream(c, in, want.out, want.planes);
                const Result got = compute(c, in, STEP, { planes % 2 == 1, true, false });
                expect(same(got.out, want.out), c, STEP, "another output than upstream's");
                expect(same(got.planes, want.planes), c, STEP, "other planes than upstream's");
            }
        }
    }
}

static std::vector<float> part(const std::vector<float> & x, size_t at, size_t count) { return { x.begin() + at, x.begin() + at + count }; }

// After chunks: the oldest plane is what the chunks alone give, the others are steps from it.
static void planes_after_chunks() {
    for (const Way way : { CHUNKS, EXACT }) {
        for (int planes = 1; planes <= 8; ++planes) {
            const GdnCase c = { 64, 2, 1, 64 + 9 * planes, 1, 1, planes, USUAL };
            const GdnInputs in = make_inputs(c, 7 * planes);
            const Result all = compute(c, in, way);
            GdnCase alone = c;
            alone.tokens = c.tokens - (planes - 1);
            alone.planes = 1;
            const Result chunks = compute(alone, in, way);
            const size_t state = c.state_floats(), done = alone.out_floats();
            expect(same(part(all.planes, (planes - 1) * state, state), chunks.planes), c, way, "the oldest plane is not the chunks'");
            expect(same(part(all.out, 0, done), chunks.out), c, way, "the output before the last tokens is not the chunks'");
            if (planes > 1) {
                GdnCase rest = c;
                rest.tokens = rest.planes = planes - 1;
                GdnInputs tail = in;
                tail.states = chunks.planes;
                tail.q.erase(tail.q.begin(), tail.q.begin() + alone.tokens * c.k_heads * c.size);
                tail.k.erase(tail.k.begin(), tail.k.begin() + alone.tokens * c.k_heads * c.size);
                tail.v.erase(tail.v.begin(), tail.v.begin() + alone.tokens * (c.heads * c.size + in.v_gap));
                tail.g.erase(tail.g.begin(), tail.g.begin() + alone.tokens * c.heads);
                tail.beta.erase(tail.beta.begin(), tail.beta.begin() + alone.tokens * c.heads);
                const Result steps = compute(rest, tail, STEP);
                expect(same(part(all.planes, 0, (planes - 1) * state), steps.planes), c, way, "the newer planes are not steps from the oldest");
                expect(same(part(all.out, done, all.out.size() - done), steps.out), c, way, "the last outputs are not the steps'");
            }
        }
    }
}

// The state read where it lies among the planes, also where a plane is written over it: no bit changes.
static void in_place() {
    for (const Way way : { STEP, CHUNKS }) {
        for (int row = 0; row < 3; ++row) {
            const GdnCase c = { 64, 3, 1, way == STEP ? 4 : 70, 1, 1, 3, USUAL };
            const GdnInputs in = make_inputs(c, 31 + row);
            const Result gathered = compute(c, in, way);
            const Result placed = compute(c, in, way, { row == 1, row != 2, false }, row);
            expect(same(gathered.out, placed.out) && same(gathered.planes, placed.planes), c, way, "reading the state in place changes it");
        }
    }
}

// Approximate e^x and no denormals, as compilers' fast math has them: still the same within the limits.
static void with_fast_math(double (&worst)[2]) {
    for (const Gates gates : { USUAL, MIXED }) {
        for (const Way way : { STEP, CHUNKS, EXACT }) {
            const GdnCase c = { 64, 2, 1, 130, 1, 1, 2, gates, 8.0f };
            const GdnInputs in = make_inputs(c, 900 + gates);
            std::vector<double> out, planes;
            serial(c, in, out, planes);
            const Result fast = compute(c, in, way, { false, true, true });
            const double error[2] = { nmse(fast.out, out), nmse(fast.planes, planes) };
            expect(error[0] <= limits(way, c).out && error[1] <= limits(way, c).state, c, way, "too far from float64 with fast math");
            if (verbose) {
                printf("%-6s %-90s out %.1e state %.1e (fast math)\n", WAY_NAMES[way], c.text().c_str(), error[0], error[1]);
            }
            worst[0] = std::max(worst[0], error[0]);
            worst[1] = std::max(worst[1], error[1]);
        }
    }
}

// A NaN in one head's inputs reaches that head's state and no other's.
static void not_a_number() {
    for (const Way way : { STEP, CHUNKS, EXACT }) {
        for (int which = 0; which < 3; ++which) {
            const GdnCase c = { 64, 2, 2, 80, 1, 1, 1, USUAL };
            GdnInputs in = make_inputs(c, 55);
            std::vector<float> & x = which == 0 ? in.g : which == 1 ? in.beta : in.v;
            x[which == 2 ? 20 * (c.heads * c.size + in.v_gap) : 20 * c.heads] = NAN;
            const Result r = compute(c, in, way);
            const size_t half = r.planes.size() / 2;
            const auto is_nan = [](float y) { return std::isnan(y); };
            expect(std::any_of(r.planes.begin(), r.planes.begin() + half, is_nan), c, way, "a NaN was lost");
            expect(std::none_of(r.planes.begin() + half, r.planes.end(), is_nan), c, way, "a NaN came to another head");
        }
    }
}

int main(int argc, char ** argv) {
    verbose = argc > 1 && !strcmp(argv[1], "-v");
    double worst[3][2] = {};
    int cases = 0;
    auto add = [&](Way way, const GdnCase & c) {
        ++cases;
        against_float64(c, way, worst[way]);
    };
    for (const int tokens : { 1, 2, 63, 64, 65, 127, 128, 129, 200 }) {
        add(CHUNKS, { 64, 2, 1, tokens, 1, 1, 1, USUAL });
        add(EXACT, { 64, 2, 2, tokens, 1, 1, 1, MIXED });
        add(STEP, { 64, 2, 1, tokens, 1, 1, 1, USUAL });
    }
    for (int gates = 0; gates < GATE_KINDS; ++gates) {
        for (const Way way : { STEP, CHUNKS, EXACT }) {
            add(way, { 64, 2, 1, 130, 1, 1, 1, static_cast<Gates>(gates), 8.0f });
        }
    }
    for (const Way way : { STEP, CHUNKS, EXACT }) {
        add(way, { 128, 3, 1, 129, 1, 1, 3, USUAL, 4.0f });
        add(way, { 128, 2, 2, 70, 2, 2, 1, MIXED });         // two sequences, one set of keys
        add(way, { 64, 6, 2, 66, 2, 1, 4, USUAL });
        add(way, { 64, 2, 1, 100, 1, 1, 1, USUAL, 25.0f, 100.0f });
        add(way, { 64, 2, 1, 100, 1, 1, 1, USUAL, 1e-4f, 0.0f });
        add(way, { 64, 2, 1, 100, 1, 1, 1, SLOW, 1.0f, 0.0f, true });
        add(way, { 64, 2, 1, 100, 1, 1, 1, USUAL, 1.0f, 1.0f, false, true });
        add(way, { 64, 1, 1, 577, 1, 1, 2, USUAL });         // over two segments
    }
    planes_as_upstream();
    planes_after_chunks();
    in_place();
    with_fast_math(worst[CHUNKS]);
    not_a_number();
    for (const Way way : { STEP, CHUNKS, EXACT }) {
        printf("%-6s worst NMSE against float64: output %.1e, state %.1e\n", WAY_NAMES[way], worst[way][0], worst[way][1]);
    }
    printf("%-6s worst NMSE against float64: output %.1e, state %.1e\n", "CPU", cpu_worst[0], cpu_worst[1]);
    const emulate::Machine & m = emulate::machine();
    printf("gdn_emulate: %d cases and 5 properties, %d failed; %.2f bank conflicts a load of 8 rows\n", cases, failed,
           m.loads ? static_cast<double>(m.conflicts) / m.loads : 0.0);
    return failed ? 1 : 0;
}
