// A multiprocessor on the host: runs a kernel's source with one fibre a lane, so that what it
// computes and how its lanes work together can be tested without a card.
//
// Checked on the way, each ends the program with a message: lanes of a warp that meet in different
// functions, barriers that not all reach, addresses that are not aligned as the instruction needs,
// copies and writes past the shared memory. Shared memory begins as NaN, and so does the target of
// a copy in the background until it is waited for. Lanes run in an order that can be changed: a
// missing barrier shows as a difference. Products of matrices are summed exactly and cut towards
// zero, which is no better than what tensor cores do. Not for: time, and races within one order of
// lanes.
#pragma once

#include "cuda_runtime.h"
#include "device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <ucontext.h>
#endif

namespace plateau::emulate {

constexpr int LANES = 32;
constexpr int MOST_THREADS = 512;
constexpr size_t STACK = 128 * 1024;

enum Meeting { NONE, SHUFFLE, MATRICES, MATRICES_TURNED, PRODUCT, PRODUCT_OF_BYTES, PRODUCT_OF_16_BYTES, PRODUCT_OF_BF16, WARP, BLOCK };

struct Copy {
    char * to;
    const char * from;
    int bytes;
    int n_read; // of them, from the front; the rest is zero
    uint64_t group;
};

struct Fibre {
    dim3 thread;
    bool done = true;
    const uint64_t * gate = nullptr; // waits until this counter is no longer `seen`
    uint64_t seen = 0;
    std::vector<Copy> copies;
    uint64_t groups = 0; // of copies, closed so far
    std::vector<char> stack;
#if defined(__x86_64__)
    void * place = nullptr;
#else
    ucontext_t place;
#endif
};

struct Warp {
    int arrived = 0;
    Meeting meeting = NONE;
    uint64_t generation = 0;
    float x[LANES], result[LANES];
    int other[LANES];
    const uint16_t * row[LANES];
    uint32_t words[LANES][4];
    uint32_t a[LANES][4], b[LANES][2];
    float c[LANES][4];
    int whole[LANES][4];
};

// How a run goes: set before it.
struct Manner {
    bool backwards = false;   // the last warp first
    bool copies_late = true;  // when they are waited for, else at once
    bool fast_math = false;   // approximate e^x; denormals are zero (on x86)
};

struct Machine {
    Manner manner;
    Fibre fibres[MOST_THREADS];
    Warp warps[MOST_THREADS / LANES];
    Fibre outside;
    int threads = 0, current = 0, alive = 0;
    int arrived = 0;
    uint64_t generation = 0; // of the block's barrier
    bool asks = false;       // whether the barrier asks a question, as its first thread has it
    bool gathered = false, answer = false;
    dim3 block, grid;
    uint64_t blocks = 0;     // run so far
    std::map<void *, uint64_t> arrays; // static shared memory, and the block that it was made NaN for
    std::vector<std::pair<const char *, size_t>> readable; // what copies may read; empty: anything
    std::vector<char> memory;
    char * shared = nullptr;
    size_t shared_bytes = 0;
    std::function<void()> body;
    uint64_t products = 0, conflicts = 0, loads = 0; // matrix products; loads of 8 rows, and extra turns by bank conflicts
};

inline Machine & machine() {
    static Machine * m = new Machine;
    return *m;
}

[[noreturn]] inline void fail(const char * what) {
    const Machine & m = machine();
    fprintf(stderr, "emulation: %s (block %u %u %u, thread %d)\n", what, m.block.x, m.block.y, m.block.z, m.current);
    exit(3);
}

#if defined(__x86_64__)
extern "C" void plateau_switch(void ** from, void * to);
asm(R"(
.text
.weak plateau_switch
.type plateau_switch, @function
plateau_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size plateau_switch, .-plateau_switch
)");
inline void change(Fibre & from, Fibre & to) { plateau_switch(&from.place, to.place); }
inline void prepare(Fibre & fibre, void (*entry)()) {
    fibre.stack.resize(STACK);
    uintptr_t top = (reinterpret_cast<uintptr_t>(fibre.stack.data()) + STACK) & ~uintptr_t{ 15 };
    void ** at = reinterpret_cast<void **>(top) - 8; // six registers, the entry, and a place to keep the stack even
    for (int i = 0; i < 8; ++i) {
        at[i] = nullptr;
    }
    at[6] = reinterpret_cast<void *>(entry);
    fibre.place = at;
}
#else
inline void change(Fibre & from, Fibre & to) { swapcontext(&from.place, &to.place); }
inline void prepare(Fibre & fibre, void (*entry)()) {
    fibre.stack.resize(STACK);
    getcontext(&fibre.place);
    fibre.place.uc_stack.ss_sp = fibre.stack.data();
    fibre.place.uc_stack.ss_size = STACK;
    fibre.place.uc_link = nullptr;
    makecontext(&fibre.place, entry, 0);
}
#endif

inline bool can_run(const Fibre & fibre) { return !fibre.done && (!fibre.gate || *fibre.gate != fibre.seen); }

// To the next lane of this warp that can go on, else to another warp.
inline void give_way() {
    Machine & m = machine();
    Fibre & here = m.fibres[m.current];
    const int warp = m.current / LANES, warps = m.threads / LANES;
    auto go = [&](int next) {
        m.current = next;
        if (&m.fibres[next] != &here) {
            change(here, m.fibres[next]);
        }
    };
    for (int i = 1; i <= LANES; ++i) {
        const int next = warp * LANES + (m.current + i) % LANES;
        if (can_run(m.fibres[next])) {
            return go(next);
        }
    }
    for (int i = 1; i < warps; ++i) {
        const int other = (m.manner.backwards ? warp + warps - i : warp + i) % warps;
        for (int lane = 0; lane < LANES; ++lane) {
            if (can_run(m.fibres[other * LANES + lane])) {
                return go(other * LANES + lane);
            }
        }
    }
    if (m.alive == 0) {
        change(here, m.outside);
    }
    fail("lanes wait for lanes that have ended or wait elsewhere");
}

inline void wait_behind(const uint64_t & gate) {
    Fibre & here = machine().fibres[machine().current];
    here.gate = &gate;
    here.seen = gate;
    give_way();
    here.gate = nullptr;
}

inline void entry() {
    Machine & m = machine();
    m.body();
    if (!m.fibres[m.current].copies.empty()) {
        fail("a copy was not waited for");
    }
    m.fibres[m.current].done = true;
    --m.alive;
    give_way();
    abort();
}

inline int lane() { return machine().current % LANES; }
inline Warp & warp() { return machine().warps[machine().current / LANES]; }

// A barrier of the block; where it `asks`, for whether any thread says so.
inline bool meet_block(bool asks, bool x) {
    Machine & m = machine();
    if (m.arrived == 0) {
        m.asks = asks;
        m.gathered = false;
    } else if (m.asks != asks) {
        fail("the threads of a block are not at the same barrier");
    }
    m.gathered |= x;
    if (++m.arrived == m.threads) {
        m.arrived = 0;
        m.answer = m.gathered;
        ++m.generation;
    } else {
        wait_behind(m.generation);
    }
    return m.answer;
}

// An array of static shared memory, NaN where this block's first thread comes to it.
inline void begin_array(void * array, size_t bytes) {
    uint64_t & block = machine().arrays[array];
    if (block != machine().blocks) {
        block = machine().blocks;
        memset(array, 0xff, bytes);
    }
}

inline void in_shared(const void * p, int bytes, const char * what) {
    const Machine & m = machine();
    const char * at = static_cast<const char *>(p);
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0) {
        fail("a copy is not aligned to its size");
    }
    if (at < m.shared || at + bytes > m.shared + m.shared_bytes) {
        fail(what);
    }
}

// Starts a copy in the background.
inline void begin_copy(void * to, const void * from, int bytes, int n_read) {
    Machine & m = machine();
    Fibre & here = m.fibres[m.current];
    in_shared(to, bytes, "a copy goes past the shared memory");
    if (reinterpret_cast<uintptr_t>(from) % bytes != 0) {
        fail("a copy is not aligned to its size");
    }
    const char * source = static_cast<const char *>(from);
    bool known = m.readable.empty();
    for (const auto & [begin, size] : m.readable) {
        known = known || (source >= begin && source + n_read <= begin + size);
    }
    if (!known) {
        fail("a copy reads where there is nothing");
    }
    if (m.manner.copies_late) {
        memset(to, 0xff, bytes);
        here.copies.push_back({ static_cast<char *>(to), source, bytes, n_read, here.groups });
    } else {
        memset(to, 0, bytes);
        memcpy(to, from, n_read);
    }
}

// Ends this thread's copies of all groups before `end`.
inline void end_copies(uint64_t end) {
    std::vector<Copy> & copies = machine().fibres[machine().current].copies;
    size_t kept = 0;
    for (const Copy & copy : copies) {
        if (copy.group < end) {
            memset(copy.to, 0, copy.bytes);
            memcpy(copy.to, copy.from, copy.n_read);
        } else {
            copies[kept++] = copy;
        }
    }
    copies.resize(kept);
}

// All lanes of a warp come here; `work` is done once, for all, by the last.
template <typename F> void meet(Meeting meeting, F work) {
    Warp & w = warp();
    if (w.arrived == 0) {
        w.meeting = meeting;
    } else if (w.meeting != meeting) {
        fail("the lanes of a warp are not at the same place");
    }
    if (++w.arrived == LANES) {
        w.arrived = 0;
        work(w);
        ++w.generation;
    } else {
        wait_behind(w.generation);
    }
}

inline float from_half(uint16_t bits) {
    static const std::vector<float> table = [] {
        std::vector<float> all(65536);
        for (int i = 0; i < 65536; ++i) {
            const int exponent = i >> 10 & 31, rest = i & 1023;
            const float size = exponent == 31 ? (rest ? NAN : INFINITY) : exponent ? ldexpf(1024 + rest, exponent - 25) : ldexpf(rest, -24);
            all[i] = i & 0x8000 ? -size : size;
        }
        return all;
    }();
    return table[bits];
}

// To the nearest, ties to even, as cvt.rn does.
inline uint16_t to_half(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    const uint16_t sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) {
        return sign | 0x7fff;
    }
    if (bits >= 0x47800000) { // 65536
        return sign | 0x7c00;
    }
    if (bits < 0x38800000) { // below the least normal half: a multiple of 2^-24
        float size;
        memcpy(&size, &bits, 4);
        return sign | static_cast<uint16_t>(nearbyint(static_cast<double>(size) * 16777216.0));
    }
    bits += 0xfff + (bits >> 13 & 1);
    return sign | static_cast<uint16_t>((bits - 0x38000000) >> 13);
}

inline float cut(double x) {
    float y = static_cast<float>(x);
    return fabs(static_cast<double>(y)) > fabs(x) ? nextafterf(y, 0.0f) : y;
}

// Towards zero, with the last bit set where something was cut off: rounding that to fewer bits is
// rounding once.
inline float round_to_odd(double x) {
    const float y = cut(x);
    if (static_cast<double>(y) == x || x != x) {
        return y;
    }
    uint32_t bits;
    memcpy(&bits, &y, 4);
    bits |= 1;
    float odd;
    memcpy(&odd, &bits, 4);
    return odd;
}

inline void multiply(Warp & w) {
    double a[16][16], b[8][16];
    for (int l = 0; l < LANES; ++l) {
        const int g = l / 4, t = l % 4;
        for (int e = 0; e < 4; ++e) {
            const int row = g + 8 * (e & 1), k = 2 * t + 8 * (e >> 1);
            a[row][k] = from_half(w.a[l][e] & 0xffff);
            a[row][k + 1] = from_half(w.a[l][e] >> 16);
        }
        for (int e = 0; e < 2; ++e) {
            b[g][2 * t + 8 * e] = from_half(w.b[l][e] & 0xffff);
            b[g][2 * t + 8 * e + 1] = from_half(w.b[l][e] >> 16);
        }
    }
    for (int l = 0; l < LANES; ++l) {
        for (int e = 0; e < 4; ++e) {
            const double * x = a[l / 4 + 8 * (e >> 1)];
            const double * y = b[2 * (l % 4) + (e & 1)];
            double sum[4] = { w.c[l][e], 0.0, 0.0, 0.0 };
            for (int k = 0; k < 16; ++k) {
                sum[k & 3] += x[k] * y[k];
            }
            w.c[l][e] = cut((sum[0] + sum[1]) + (sum[2] + sum[3]));
        }
    }
    ++machine().products;
}

// Signed bytes, `width` of a row.
inline void multiply_whole(Warp & w, int width) {
    int8_t a[16][32], b[8][32];
    for (int l = 0; l < LANES; ++l) {
        const int g = l / 4, t = l % 4;
        for (int e = 0; e < width / 8; ++e) {
            memcpy(&a[g + 8 * (e & 1)][4 * t + 16 * (e >> 1)], &w.a[l][e], 4);
        }
        for (int e = 0; e < width / 16; ++e) {
            memcpy(&b[g][4 * t + 16 * e], &w.b[l][e], 4);
        }
    }
    for (int l = 0; l < LANES; ++l) {
        for (int e = 0; e < 4; ++e) {
            for (int k = 0; k < width; ++k) {
                w.whole[l][e] += a[l / 4 + 8 * (e >> 1)][k] * b[2 * (l % 4) + (e & 1)][k];
            }
        }
    }
    ++machine().products;
}

inline float from_bf16(uint32_t bits) {
    float x;
    bits <<= 16;
    memcpy(&x, &bits, 4);
    return x;
}

inline void multiply_bf16(Warp & w) {
    for (int l = 0; l < LANES; ++l) {
        for (int e = 0; e < 4; ++e) {
            const int row = l / 4 + 8 * (e >> 1), column = 2 * (l % 4) + (e & 1);
            double sum = 0.0;
            for (int k = 0; k < 16; ++k) {
                const uint32_t x = w.a[row % 8 * 4 + k % 8 / 2][row / 8 + 2 * (k / 8)], y = w.b[column * 4 + k % 8 / 2][k / 8];
                sum += static_cast<double>(from_bf16(x >> 16 * (k & 1) & 0xffff)) * from_bf16(y >> 16 * (k & 1) & 0xffff);
            }
            w.c[l][e] = cut(sum);
        }
    }
    ++machine().products;
}

inline void take_matrices(Warp & w, bool turned) {
    Machine & m = machine();
    for (int i = 0; i < 4; ++i) {
        int banks = 0;
        for (int r = 0; r < 8; ++r) {
            const char * row = reinterpret_cast<const char *>(w.row[8 * i + r]);
            if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
                fail("a row of a matrix is not aligned to 16 bytes");
            }
            if (row < m.shared || row + 16 > m.shared + m.shared_bytes) {
                fail("a row of a matrix is not in shared memory");
            }
            banks |= 1 << ((row - m.shared) / 16 % 8);
        }
        m.loads += 1;
        m.conflicts += 8 - __builtin_popcount(banks);
        for (int l = 0; l < LANES; ++l) {
            const int row = l / 4, column = 2 * (l % 4);
            const uint32_t low = turned ? w.row[8 * i + column][row] : w.row[8 * i + row][column];
            const uint32_t high = turned ? w.row[8 * i + column + 1][row] : w.row[8 * i + row][column + 1];
            w.words[l][i] = low | high << 16;
        }
    }
}

template <typename P> void run(void (*kernel)(P), dim3 grid, int threads, size_t shared_bytes, const P & params) {
    Machine & m = machine();
    if (threads % LANES != 0 || threads > MOST_THREADS || shared_bytes > allowed_shared_bytes(kernel)) {
        driver().last_error = cudaErrorInvalidValue;
        return;
    }
    constexpr size_t guard = 256;
    m.memory.resize(shared_bytes + 2 * guard + 128);
    m.shared = m.memory.data() + guard;
    m.shared += (128 - reinterpret_cast<uintptr_t>(m.shared) % 128) % 128;
    m.shared_bytes = shared_bytes;
    m.grid = grid;
    m.threads = threads;
    m.body = [&] { kernel(params); };
#if defined(__x86_64__)
    const unsigned csr = _mm_getcsr();
    _mm_setcsr(m.manner.fast_math ? csr | 0x8040 : csr);
#endif
    for (unsigned i = 0; i < grid.x * grid.y * grid.z; ++i) {
        const unsigned at = m.manner.backwards ? grid.x * grid.y * grid.z - 1 - i : i;
        m.block = dim3(at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y);
        memset(m.memory.data(), 0xff, m.memory.size());
        ++m.blocks;
        m.alive = threads;
        for (int n = 0; n < threads; ++n) {
            m.fibres[n].thread = dim3(n);
            m.fibres[n].done = false;
            m.fibres[n].gate = nullptr;
            m.fibres[n].groups = 0;
            prepare(m.fibres[n], entry);
        }
        m.current = m.manner.backwards ? threads - LANES : 0;
        change(m.outside, m.fibres[m.current]);
        for (const char * p = m.shared + shared_bytes; p < m.memory.data() + m.memory.size(); ++p) {
            if (*p != '\xff') {
                fail("a write past the shared memory");
            }
        }
    }
#if defined(__x86_64__)
    _mm_setcsr(csr);
#endif
}

} // namespace plateau::emulate

#define threadIdx (plateau::emulate::machine().fibres[plateau::emulate::machine().current].thread)
#define blockIdx (plateau::emulate::machine().block)
#define gridDim (plateau::emulate::machine().grid)
#define blockDim (dim3(plateau::emulate::machine().threads))
#define PLATEAU_SHARED(name) char * name = plateau::emulate::machine().shared
#define PLATEAU_SHARED_ARRAY(type, name, sizes) \
    static type name sizes;                     \
    plateau::emulate::begin_array(name, sizeof name)

namespace plateau {

inline float product(float x, float y) { return x * y; }
inline float exponential(float x) {
    return emulate::machine().manner.fast_math ? exp2f(x * 1.4426950216293335f) : expf(x);
}

// As ex2.approx.ftz.
inline float power2(float x) {
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

template <typename F> float shuffle(float x, F source) {
    using namespace emulate;
    const int l = lane();
    warp().x[l] = x;
    warp().other[l] = source(l);
    meet(SHUFFLE, [](Warp & w) {
        for (int i = 0; i < LANES; ++i) {
            w.result[i] = w.x[w.other[i]];
        }
    });
    return warp().result[l];
}
inline float shuffle_xor(float x, int lanes) { return shuffle(x, [=](int l) { return l ^ lanes; }); }
inline float shuffle_up(float x, int lanes) { return shuffle(x, [=](int l) { return l < lanes ? l : l - lanes; }); }
inline float shuffle_from(float x, int from) { return shuffle(x, [=](int) { return from; }); }
inline void sync_warp() { emulate::meet(emulate::WARP, [](emulate::Warp &) {}); }

inline void sync_block() { emulate::meet_block(false, false); }
inline bool any_in_block(bool x) { return emulate::meet_block(true, x); }

inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t all = static_cast<uint64_t>(high) << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        result |= static_cast<uint32_t>(all >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    }
    return result;
}

inline half_bits to_half(float x) { return emulate::to_half(x); }
inline float from_half(half_bits x) { return emulate::from_half(x); }

// In f64, which holds products of halves and sums of what is of like size exactly; then rounded to
// a half once.
template <typename F> uint32_t on_halves(F f) {
    return emulate::to_half(emulate::round_to_odd(f(0))) | static_cast<uint32_t>(emulate::to_half(emulate::round_to_odd(f(16)))) << 16;
}
inline double half_at(uint32_t x, int shift) { return emulate::from_half(x >> shift & 0xffff); }
inline uint32_t both_halves(float x) { return emulate::to_half(x) * 0x10001u; }
inline uint32_t subtract_halves(uint32_t x, uint32_t y) {
    return on_halves([=](int i) { return half_at(x, i) - half_at(y, i); });
}
inline uint32_t multiply_halves(uint32_t x, uint32_t y) {
    return on_halves([=](int i) { return half_at(x, i) * half_at(y, i); });
}
inline uint32_t multiply_add_halves(uint32_t x, uint32_t y, uint32_t z) {
    return on_halves([=](int i) { return half_at(x, i) * half_at(y, i) + half_at(z, i); });
}

inline uint32_t pack(float low, float high) { return emulate::to_half(low) | static_cast<uint32_t>(emulate::to_half(high)) << 16; }
inline float low_half(uint32_t x) { return emulate::from_half(x & 0xffff); }
inline float high_half(uint32_t x) { return emulate::from_half(x >> 16); }
inline float power_of_two(int exponent) { return ldexpf(1.0f, exponent); }
inline int exponent_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return static_cast<int>(bits >> 23 & 255) - 127;
}

inline void load_matrices_as(uint32_t (&r)[4], const half_bits * row, bool turned) {
    using namespace emulate;
    const int l = lane();
    warp().row[l] = row;
    meet(turned ? MATRICES_TURNED : MATRICES, [=](Warp & w) { take_matrices(w, turned); });
    memcpy(r, warp().words[l], sizeof r);
}
inline void load_matrices(uint32_t (&r)[4], const half_bits * row) { load_matrices_as(r, row, false); }
inline void load_matrices_turned(uint32_t (&r)[4], const half_bits * row) { load_matrices_as(r, row, true); }

inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    using namespace emulate;
    Warp & w = warp();
    const int l = lane();
    memcpy(w.a[l], a, sizeof a);
    w.b[l][0] = b0;
    w.b[l][1] = b1;
    memcpy(w.c[l], c, sizeof c);
    meet(PRODUCT, multiply);
    memcpy(c, w.c[l], sizeof c);
}

inline void copy_later(void * to, const void * from, int n_read = 16) { emulate::begin_copy(to, from, 16, n_read); }
inline void copy_8_later(void * to, const void * from) { emulate::begin_copy(to, from, 8, 8); }
inline void wait_for_copies() { emulate::end_copies(UINT64_MAX); }
inline void close_copy_group() { ++emulate::machine().fibres[emulate::machine().current].groups; }
template <int NEWEST> void wait_for_copy_groups() {
    const uint64_t closed = emulate::machine().fibres[emulate::machine().current].groups;
    emulate::end_copies(closed > NEWEST ? closed - NEWEST : 0);
}

inline void multiply_whole(int (&d)[4], const uint32_t * a, const uint32_t * b, int width, int c) {
    using namespace emulate;
    Warp & w = warp();
    const int l = lane();
    memcpy(w.a[l], a, width / 8 * 4);
    memcpy(w.b[l], b, width / 16 * 4);
    for (int & x : w.whole[l]) {
        x = c;
    }
    meet(width == 32 ? PRODUCT_OF_BYTES : PRODUCT_OF_16_BYTES, [=](Warp & all) { emulate::multiply_whole(all, width); });
    memcpy(d, w.whole[l], sizeof d);
}
inline void multiply_bytes(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, int c) {
    const uint32_t b[2] = { b0, b1 };
    multiply_whole(d, a, b, 32, c);
}
inline void multiply_bytes_16(int (&d)[4], uint32_t a0, uint32_t a1, uint32_t b, int c) {
    const uint32_t a[2] = { a0, a1 };
    multiply_whole(d, a, &b, 16, c);
}
inline void multiply_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    using namespace emulate;
    Warp & w = warp();
    const int l = lane();
    memcpy(w.a[l], a, sizeof a);
    w.b[l][0] = b0;
    w.b[l][1] = b1;
    meet(PRODUCT_OF_BF16, emulate::multiply_bf16);
    memcpy(d, w.c[l], sizeof d);
}

inline float as_float(uint32_t x) {
    float y;
    memcpy(&y, &x, 4);
    return y;
}
inline uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline uint32_t less_128_bf16(uint32_t x) {
    return to_bf16(emulate::from_bf16(x & 0xffff) - 128.0f) | static_cast<uint32_t>(to_bf16(emulate::from_bf16(x >> 16) - 128.0f)) << 16;
}
inline uint32_t bytes_of(uint32_t x, uint32_t y, uint32_t which) {
    const uint64_t both = x | static_cast<uint64_t>(y) << 32;
    uint32_t all = 0;
    for (int i = 0; i < 4; ++i) {
        if (which >> (4 * i) & 8) {
            emulate::fail("a selector of bytes asks for signs");
        }
        all |= static_cast<uint32_t>(both >> 8 * (which >> (4 * i) & 7) & 255) << (8 * i);
    }
    return all;
}
inline uint32_t shift_pair(uint32_t low, uint32_t high, int bits) { return static_cast<uint32_t>((low | static_cast<uint64_t>(high) << 32) >> bits); }
template <typename T> T load_constant(const T * p) {
    if (reinterpret_cast<uintptr_t>(p) % sizeof(T) != 0) {
        emulate::fail("a load is not aligned");
    }
    return *p;
}
inline void wait_for_earlier_launch() {}
inline void let_later_launch_start() {}

template <typename P>
void start(void (*kernel)(P), dim3 grid, int threads, size_t shared_bytes, cudaStream_t, const P & params) {
    emulate::run(kernel, grid, threads, shared_bytes, params);
}
template <typename P>
cudaError_t start_early(void (*kernel)(P), dim3 grid, int threads, size_t shared_bytes, cudaStream_t, const P & params, bool) {
    emulate::run(kernel, grid, threads, shared_bytes, params);
    return cudaSuccess;
}

} // namespace plateau
