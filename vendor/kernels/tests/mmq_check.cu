// The small-batch product on a card, without ggml.
//
//   mmq_check check [tiny]   against float64, outputs and quantized columns NaN before a call
//   mmq_check bench          microseconds and GB/s of each format and shape of a 27B model at 1 to 16 columns, beside the
//                            card's copy and read rates; JSON to the file of PLATEAU_JSON
#include "mmq_cases.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace plateau;

static void expect(cudaError_t error, const char * what) {
    if (error != cudaSuccess) {
        fprintf(stderr, "mmq_check: %s: %s\n", what, cudaGetErrorString(error));
        exit(2);
    }
}

template <typename T> struct Card {
    T * data = nullptr;
    size_t count;
    explicit Card(size_t count_) : count(count_) { expect(cudaMalloc(&data, count * sizeof(T)), "memory"); poison(); }
    Card(const Card &) = delete;
    ~Card() { cudaFree(data); }
    void poison() { expect(cudaMemset(data, 0xff, count * sizeof(T)), "memset"); }
    void put(const std::vector<T> & x) { expect(cudaMemcpy(data, x.data(), x.size() * sizeof(T), cudaMemcpyHostToDevice), "copy"); }
    std::vector<T> get() const {
        std::vector<T> x(count);
        expect(cudaMemcpy(x.data(), data, count * sizeof(T), cudaMemcpyDeviceToHost), "copy");
        return x;
    }
};

enum Way { PLAIN, ADD, TWO, GATED };

static int failed = 0, cases = 0;
static double worst = 0.0;

static void check_case(const Format & f, int rows, int k, int columns, Way way) {
    const uint32_t seed = rows * 131 + k * 7 + columns;
    const std::vector<uint8_t> weights = random_weights(f, rows, k, seed), second = random_weights(f, rows, k, seed + 1);
    const std::vector<float> x = random_columns(static_cast<size_t>(k) * columns, seed + 2);
    const std::vector<float> more = random_columns(static_cast<size_t>(rows) * columns, seed + 3);
    Card<uint8_t> w(weights.size()), o(second.size());
    Card<char> q(small_quantized_bytes(k, columns));
    Card<float> in(x.size()), out(static_cast<size_t>(rows) * columns), out2(static_cast<size_t>(rows) * columns), add(more.size());
    w.put(weights);
    o.put(second);
    in.put(x);
    add.put(more);
    SmallProduct p = {};
    p.type = f.type;
    p.weights = w.data;
    p.row_bytes = static_cast<int64_t>(k / 256) * f.bytes;
    p.rows = rows;
    p.k = k;
    p.columns = columns;
    p.quantized = q.data;
    p.out = out.data;
    p.out_column = rows;
    p.add = way == ADD ? add.data : nullptr;
    p.other = way >= TWO ? o.data : nullptr;
    p.other_out = way == TWO ? out2.data : nullptr;
    if (!small_in_domain(p)) {
        printf("outside the domain: %s rows %d k %d\n", f.name, rows, k);
        exit(1);
    }
    expect(small_quantize(in.data, k, k, columns, q.data, true, nullptr), "quantize");
    expect(small_product(p, true, nullptr), "product");
    expect(cudaDeviceSynchronize(), "run");
    std::vector<double> seen;
    for (int c = 0; c < columns; ++c) {
        const std::vector<double> one = rounded({ x.begin() + static_cast<size_t>(c) * k, x.begin() + static_cast<size_t>(c + 1) * k });
        seen.insert(seen.end(), one.begin(), one.end());
    }
    std::vector<double> right = reference(f, weights, rows, k, columns, seen);
    const std::vector<double> right2 = way >= TWO ? reference(f, second, rows, k, columns, seen) : std::vector<double>();
    for (size_t i = 0; i < right.size(); ++i) {
        right[i] = way == ADD ? right[i] + more[i] : way == GATED ? right[i] * right2[i] / (1.0 + exp(-right2[i])) : right[i];
    }
    double error = error_of(out.get().data(), right);
    if (way == TWO) {
        error = std::max(error, error_of(out2.get().data(), right2));
    }
    ++cases;
    worst = std::max(worst, error);
    // The card's approximate division rounds a value in a million the other way: a step of 1/127 of its block's largest.
    if (!(error < 1e-7)) {
        ++failed;
        printf("FAILED %s rows %d k %d columns %d way %d: NMSE %.2e\n", f.name, rows, k, columns, way, error);
    }
}

static int check(bool tiny) {
    for (const Format & f : FORMATS) {
        for (int columns = 1; columns <= SMALL_COLUMNS; ++columns) {
            check_case(f, 48, 1280, columns, PLAIN);
            check_case(f, 40, 512, columns, GATED);
            if (!tiny && (columns < 5 || columns == 8 || columns == 9 || columns == 16)) {
                check_case(f, 1024, 5120, columns, PLAIN);
                check_case(f, 520, 6144, columns, ADD);
                check_case(f, 152, 17408, columns, TWO);
            }
        }
        if (f.bytes % 16 == 0) {
            check_case(f, 37, 768, 3, PLAIN);
            check_case(f, 17, 256, 2, TWO);
        }
    }
    printf("small products against float64: %d cases, %d failed, worst NMSE %.2e\n", cases, failed, worst);
    return failed ? 1 : 0;
}

static __global__ void read_all(const uint4 * p, size_t count, uint32_t * out) {
    uint32_t sum = 0;
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count; i += static_cast<size_t>(gridDim.x) * blockDim.x) {
        const uint4 x = __ldg(p + i);
        sum += x.x ^ x.y ^ x.z ^ x.w;
    }
    if (sum == 0x12345678u) {
        *out = sum;
    }
}

// Microseconds a call of `work(i)`, in a graph of `calls`, the median of 7.
template <typename F> static double microseconds(int calls, F work) {
    cudaStream_t stream;
    expect(cudaStreamCreate(&stream), "stream");
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    expect(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < calls; ++i) {
        work(i, stream);
    }
    expect(cudaStreamEndCapture(stream, &graph), "capture");
    expect(cudaGraphInstantiate(&exec, graph, 0), "graph");
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    std::vector<float> times;
    for (int i = 0; i < 9; ++i) {
        cudaEventRecord(begin, stream);
        expect(cudaGraphLaunch(exec, stream), "launch");
        cudaEventRecord(end, stream);
        expect(cudaEventSynchronize(end), "run");
        float ms = 0.0f;
        cudaEventElapsedTime(&ms, begin, end);
        if (i >= 2) {
            times.push_back(ms);
        }
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(stream);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2] * 1e3 / calls;
}

static int bench() {
    FILE * json = fopen(getenv("PLATEAU_JSON") ? getenv("PLATEAU_JSON") : "mmq_bench.json", "w");
    if (!json) {
        perror("PLATEAU_JSON");
        return 2;
    }
    const size_t room = size_t(3) << 30;
    Card<uint8_t> all(room);
    {
        // Any bytes do for time; halves must be numbers. One piece over and over.
        std::vector<uint8_t> some = random_weights(FORMATS[0], 16384, 5120, 1);
        for (size_t at = 0; at < room; at += some.size()) {
            expect(cudaMemcpy(all.data + at, some.data(), std::min(some.size(), room - at), cudaMemcpyHostToDevice), "copy");
        }
    }
    const double copy = microseconds(4, [&](int i, cudaStream_t s) {
        cudaMemcpyAsync(all.data + (i & 1) * (room / 2), all.data + (1 - (i & 1)) * (room / 2), room / 4, cudaMemcpyDeviceToDevice, s);
    });
    Card<uint32_t> sink(1);
    int processors = 0;
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    const double reading = microseconds(2, [&](int, cudaStream_t s) {
        read_all<<<processors * 8, 256, 0, s>>>(reinterpret_cast<const uint4 *>(all.data), room / 16, sink.data);
    });
    printf("copy %.0f GB/s (read and written), read %.0f GB/s\n", room / 2 / copy * 1e-3, room / reading * 1e-3);
    fprintf(json, "[\n{\"what\":\"card\",\"copy_gb_s\":%.0f,\"read_gb_s\":%.0f}", room / 2 / copy * 1e-3, room / reading * 1e-3);

    struct Shape {
        int format, rows, k;
        bool two;
    };
    std::vector<Shape> shapes = { { 0, 17408, 5120, true }, { 0, 5120, 17408, false }, { 0, 10240, 5120, false }, { 0, 12288, 5120, false }, { 0, 6144, 5120, false },
                                  { 0, 5120, 6144, false }, { 0, 1024, 5120, false }, { 0, 48, 5120, false }, { 2, 5120, 17408, false }, { 2, 1024, 5120, false },
                                  { 2, 248320, 5120, false }, { 2, 65536, 5120, false }, { 1, 5120, 17408, false }, { 1, 10240, 5120, false }, { 3, 5120, 17408, false },
                                  { 3, 10240, 5120, false }, { 3, 17408, 5120, true }, { 4, 5120, 17408, false }, { 4, 10240, 5120, false } };
    const int widths[] = { 1, 2, 4, 8, 16 };
    printf("%-7s %7s %6s %4s", "format", "rows", "k", "two");
    for (const int c : widths) {
        printf("   us, GB/s at %2d", c);
    }
    printf("   quantize 1, 4\n");
    Card<float> x(17408 * 16), out(size_t(248320) * 16);
    const std::vector<float> values = random_columns(x.count, 3);
    x.put(values);
    Card<char> q(small_quantized_bytes(17408, 16));
    for (const Shape & s : shapes) {
        const Format & f = FORMATS[s.format];
        const size_t bytes = static_cast<size_t>(s.rows) * (s.k / 256) * f.bytes, step = (bytes + 255) / 256 * 256 * (s.two ? 2 : 1);
        const int copies = static_cast<int>(std::max<size_t>(1, std::min<size_t>(room / step, 64))), calls = std::max(8, copies);
        printf("%-7s %7d %6d %4d", f.name, s.rows, s.k, s.two);
        for (const int columns : widths) {
            SmallProduct p = {};
            p.type = f.type;
            p.row_bytes = static_cast<int64_t>(s.k / 256) * f.bytes;
            p.rows = s.rows;
            p.k = s.k;
            p.columns = columns;
            p.quantized = q.data;
            p.out = out.data;
            p.out_column = s.rows;
            expect(small_quantize(x.data, s.k, s.k, columns, q.data, false, nullptr), "quantize");
            const double us = microseconds(calls, [&](int i, cudaStream_t stream) {
                SmallProduct one = p;
                one.weights = all.data + (i % copies) * step;
                one.other = s.two ? all.data + (i % copies) * step + step / 2 : nullptr;
                expect(small_product(one, true, stream), "product");
            });
            const double rate = bytes * (s.two ? 2 : 1) / us * 1e-3;
            printf(" %8.1f %6.0f ", us, rate);
            fflush(stdout);
            fprintf(json, ",\n{\"what\":\"product\",\"format\":\"%s\",\"rows\":%d,\"k\":%d,\"two\":%d,\"columns\":%d,\"us\":%.2f,\"gb_s\":%.0f}", f.name, s.rows, s.k, s.two,
                    columns, us, rate);
        }
        for (const int columns : { 1, 4 }) {
            printf(" %5.2f", microseconds(32, [&](int, cudaStream_t stream) { small_quantize(x.data, s.k, s.k, columns, q.data, true, stream); }));
        }
        printf("\n");
    }
    fprintf(json, "\n]\n");
    fclose(json);
    return 0;
}

int main(int argc, char ** argv) {
    const std::string what = argc > 1 ? argv[1] : "";
    if (what == "bench") {
        return bench();
    }
    if (what == "check") {
        return check(argc > 2 && std::string(argv[2]) == "tiny");
    }
    fprintf(stderr, "usage: mmq_check check [tiny] | bench\n");
    return 64;
}
