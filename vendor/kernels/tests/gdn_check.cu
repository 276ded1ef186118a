// Checks and times the Gated DeltaNet kernels by themselves on a card: no ggml, no Rust, one binary.
//
//   gdn_check check [tiny]   steps and chunks against float64, NaN in every output and scratch byte before each call
//   gdn_check long           the error of the state after 1,000 to 100,000 tokens, against float64
//   gdn_check bench          microseconds by tokens; a table last, JSON to the file of PLATEAU_JSON
#include "gdn_cases.h"

#include <cstdlib>
#include <cstring>
#include <memory>

using namespace plateau;

#define CHECK(call)                                                                                  \
    do {                                                                                             \
        cudaError_t error_ = (call);                                                                 \
        if (error_ != cudaSuccess) {                                                                 \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
            exit(2);                                                                                 \
        }                                                                                            \
    } while (0)

constexpr size_t GUARD = 4096;

// A case's memory on the card.
struct Data {
    GdnCase c;
    GdnArgs a;
    std::vector<void *> owned;
    void * scratch = nullptr;
    size_t scratch_bytes = 0;

    Data(const GdnCase & c_, const GdnInputs & in, Way way) : c(c_) {
        a = arguments(c, in, copy(in.q), copy(in.k), copy(in.v), copy(in.g), copy(in.beta), copy(in.states), static_cast<float *>(take(c.out_floats() * 4)),
                      static_cast<float *>(take(c.planes * c.state_floats() * 4)));
        scratch_bytes = way == STEP ? 0 : gdn_scratch_bytes(a, way == EXACT);
        scratch = take(scratch_bytes);
    }
    Data(const Data &) = delete;
    ~Data() {
        for (void * p : owned) {
            cudaFree(p);
        }
    }
    void * take(size_t bytes) {
        void * p = nullptr;
        CHECK(cudaMalloc(&p, bytes + GUARD));
        CHECK(cudaMemset(p, 0xff, bytes + GUARD));
        owned.push_back(p);
        return p;
    }
    float * copy(const std::vector<float> & x) {
        float * p = static_cast<float *>(take(x.size() * 4));
        CHECK(cudaMemcpy(p, x.data(), x.size() * 4, cudaMemcpyHostToDevice));
        return p;
    }
    cudaError_t run(Way way, cudaStream_t stream) const { return way == STEP ? gdn_step(a, stream) : gdn_chunks(a, way == EXACT, scratch, stream); }
};

static std::vector<float> fetch(const float * from, size_t count) {
    std::vector<float> x(count);
    CHECK(cudaMemcpy(x.data(), from, count * 4, cudaMemcpyDeviceToHost));
    return x;
}

static bool past_is_untouched(const void * p, size_t bytes) {
    std::vector<unsigned char> past(GUARD);
    CHECK(cudaMemcpy(past.data(), static_cast<const char *>(p) + bytes, GUARD, cudaMemcpyDeviceToHost));
    return std::all_of(past.begin(), past.end(), [](unsigned char x) { return x == 0xff; });
}

static bool fails(const GdnCase & c, Way way, uint32_t seed, double (&worst)[2]) {
    const GdnInputs in = make_inputs(c, seed);
    std::vector<double> out, planes;
    serial(c, in, out, planes);
    Data data(c, in, way);
    CHECK(data.run(way, nullptr));
    CHECK(cudaDeviceSynchronize());
    const std::vector<float> got = fetch(data.a.out, c.out_floats());
    double error[2] = { nmse(got, out), 0.0 };
    for (int i = 0; i < std::min(c.planes, c.tokens); ++i) {
        const size_t n = c.state_floats();
        error[1] = std::max(error[1], nmse(fetch(data.a.planes + i * n, n), std::vector<double>(planes.begin() + i * n, planes.begin() + (i + 1) * n)));
    }
    const bool whole = past_is_untouched(data.a.out, c.out_floats() * 4) && past_is_untouched(data.a.planes, c.planes * c.state_floats() * 4)
        && past_is_untouched(data.scratch, data.scratch_bytes);
    if (error[0] <= limits(way, c).out && error[1] <= limits(way, c).state && whole) {
        worst[0] = std::max(worst[0], error[0]);
        worst[1] = std::max(worst[1], error[1]);
        return false;
    }
    printf("FAILED %s, %s: output %g, state %g%s\n", WAY_NAMES[way], c.text().c_str(), error[0], error[1], whole ? "" : ", wrote past the end");
    return true;
}

static int check(bool tiny) {
    std::vector<GdnCase> cases;
    for (const int tokens : { 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 300, 512, 513, 1024, 1025, 1100 }) {
        for (const int size : { 64, 128 }) {
            cases.push_back({ size, 6, 2, tokens, 1, 1, 1, USUAL });
            cases.push_back({ size, 2, 2, tokens, 2, 1, tokens > 8 ? 3 : 1, MIXED });
        }
    }
    for (int gates = 0; gates < GATE_KINDS; ++gates) {
        cases.push_back({ 128, 3, 1, 200, 1, 1, 1, static_cast<Gates>(gates), 25.0f, 100.0f });
        cases.push_back({ 128, 3, 1, 200, 1, 1, 5, static_cast<Gates>(gates), 1e-3f, 0.0f });
    }
    cases.push_back({ 128, 2, 1, 200, 1, 1, 1, SLOW, 1.0f, 0.0f, true });
    cases.push_back({ 128, 2, 1, 200, 1, 1, 1, USUAL, 1.0f, 1.0f, false, true });
    cases.push_back({ 128, 2, 1, 150, 4, 2, 2, USUAL });
    for (int planes = 1; planes <= 8; ++planes) {
        cases.push_back({ 128, 3, 1, 64 + 5 * planes, 2, 1, planes, USUAL });
    }
    if (!tiny) {
        cases.push_back({ 128, 48, 16, 512, 1, 1, 4, MIXED, 8.0f });
    } else {
        cases.erase(std::remove_if(cases.begin(), cases.end(), [](const GdnCase & c) { return c.tokens > 130; }), cases.end());
    }
    int failed = 0, ran = 0;
    double worst[3][2] = {};
    for (const GdnCase & c : cases) {
        for (const Way way : { STEP, CHUNKS, EXACT }) {
            failed += fails(c, way, 1000 + ran, worst[way]);
            ++ran;
        }
    }
    for (const Way way : { STEP, CHUNKS, EXACT }) {
        printf("%-6s worst NMSE against float64: output %.1e, state %.1e\n", WAY_NAMES[way], worst[way][0], worst[way][1]);
    }
    printf("gdn_check: %d cases, %d failed\n", ran, failed);
    return failed ? 1 : 0;
}

// Whether the error of the state grows with the tokens before it: gates that forget within some hundred tokens, and gates
// that hardly forget at all, where every error stays.
static int check_long() {
    int failed = 0;
    printf("%-6s %-6s %8s %12s %12s\n", "gates", "way", "tokens", "output NMSE", "state NMSE");
    for (const Gates gates : { USUAL, SLOW }) {
        for (const int tokens : { 1000, 10000, 100000 }) {
            const GdnCase c = { 128, 2, 1, tokens, 1, 1, 1, gates, 4.0f };
            const GdnInputs in = make_inputs(c, 77);
            std::vector<double> out, planes;
            serial(c, in, out, planes);
            for (const Way way : { STEP, CHUNKS, EXACT }) {
                Data data(c, in, way);
                CHECK(data.run(way, nullptr));
                CHECK(cudaDeviceSynchronize());
                const double output = nmse(fetch(data.a.out, c.out_floats()), out), state = nmse(fetch(data.a.planes, c.state_floats()), planes);
                printf("%-6s %-6s %8d %12.2e %12.2e\n", GATE_NAMES[gates], WAY_NAMES[way], tokens, output, state);
                fflush(stdout);
                failed += !(state <= 1e-6);
            }
        }
    }
    printf("gdn_check long: %d failed\n", failed);
    return failed ? 1 : 0;
}

// Of one call, over several layers' memory replayed as one graph, so that no layer's state is in the cache of the card.
static double microseconds(const GdnCase & c, Way way) {
    constexpr int layers = 12;
    const GdnInputs in = make_inputs(c, 5);
    std::vector<std::unique_ptr<Data>> data;
    for (int i = 0; i < layers; ++i) {
        data.push_back(std::make_unique<Data>(c, in, way));
    }
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    for (const auto & d : data) {
        CHECK(d->run(way, stream));
    }
    CHECK(cudaStreamSynchronize(stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    for (const auto & d : data) {
        CHECK(d->run(way, stream));
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<double> times;
    for (int i = 0; i < 12; ++i) {
        CHECK(cudaEventRecord(begin, stream));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(end, stream));
        CHECK(cudaEventSynchronize(end));
        float ms = 0.0f;
        CHECK(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 3) {
            times.push_back(ms * 1000.0 / layers);
        }
    }
    std::sort(times.begin(), times.end());
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaStreamDestroy(stream));
    return times[times.size() / 2];
}

// All lengths, or one: a profiler wants its kernels alone.
static int bench(int only) {
    FILE * json = fopen(getenv("PLATEAU_JSON") ? getenv("PLATEAU_JSON") : "gdn_bench.json", "w");
    if (!json) {
        perror("PLATEAU_JSON");
        return 2;
    }
    fprintf(json, "[");
    const char * comma = "";
    printf("%7s %-6s %6s %3s %10s %12s\n", "heads", "way", "tokens", "K", "us", "us a token");
    auto line = [&](Way way, int tokens, int planes, int heads = 48, int k_heads = 16) {
        const double us = microseconds({ 128, heads, k_heads, tokens, 1, 1, planes, USUAL }, way);
        printf("%4d/%-2d %-6s %6d %3d %10.1f %12.3f\n", heads, k_heads, WAY_NAMES[way], tokens, planes, us, us / tokens);
        fflush(stdout);
        fprintf(json, "%s\n{\"heads\":%d,\"way\":\"%s\",\"tokens\":%d,\"planes\":%d,\"us\":%.2f}", comma, heads, WAY_NAMES[way], tokens, planes, us);
        comma = ",";
    };
    for (int tokens = 1; tokens <= 8 && only == 0; ++tokens) {
        line(STEP, tokens, tokens);
    }
    for (const int tokens : { 16, 32, 48, 64, 96, 128, 256, 512, 1024, 2048 }) { // where chunks begin to win: CHUNKS_FROM
        if (only != 0 && tokens != only) {
            continue;
        }
        line(STEP, tokens, 1);
        line(CHUNKS, tokens, 1);
        line(EXACT, tokens, 1);
        line(CHUNKS, tokens, 4);
        line(STEP, tokens, 1, 32, 32);
        line(CHUNKS, tokens, 1, 32, 32);
    }
    fprintf(json, "\n]\n");
    fclose(json);
    return 0;
}

int main(int argc, char ** argv) {
    const std::string mode = argc > 1 ? argv[1] : "check";
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    printf("%s, compute capability %d.%d, %d multiprocessors\n", properties.name, properties.major, properties.minor, properties.multiProcessorCount);
    if (mode == "long") {
        return check_long();
    }
    return mode == "bench" ? bench(argc > 2 ? atoi(argv[2]) : 0) : check(argc > 2 && std::string(argv[2]) == "tiny");
}
