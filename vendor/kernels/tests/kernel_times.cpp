// Times of every kernel that a CUDA program runs, by name: a library for CUDA_INJECTION64_PATH, made with CUPTI.
//
//   g++ -O2 -shared -fPIC -I<CUPTI>/include kernel_times.cpp -o libkernel_times.so -L<CUPTI>/lib -lcupti
//   CUDA_INJECTION64_PATH=./libkernel_times.so KERNEL_TIMES=out.tsv PROGRAM
//
// At the end of the program: a line a kernel with launches, microseconds in all, the least and the median of one, and the
// mean time between the end of the launch before it and its begin (negative where they overlap); sorted by time. The last
// LAST records (environment, default all) are taken, so that a warm-up does not count. Kernels of CUDA graphs are included.
#include <cupti.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cxxabi.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

struct Record {
    uint64_t begin, end;
    std::string name;
    int blocks, threads;
};
static std::vector<Record> records;
static std::mutex lock;

static void CUPTIAPI give(uint8_t ** buffer, size_t * size, size_t * most) {
    *size = 8 << 20;
    *buffer = static_cast<uint8_t *>(aligned_alloc(8, *size));
    *most = 0;
}

static void CUPTIAPI take(CUcontext, uint32_t, uint8_t * buffer, size_t, size_t valid) {
    std::lock_guard<std::mutex> guard(lock);
    CUpti_Activity * record = nullptr;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
            const auto * k = reinterpret_cast<const CUpti_ActivityKernel9 *>(record);
            records.push_back({ k->start, k->end, k->name, k->gridX * k->gridY * k->gridZ, k->blockX * k->blockY * k->blockZ });
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
            const auto * m = reinterpret_cast<const CUpti_ActivityMemcpy5 *>(record);
            records.push_back({ m->start, m->end, "memcpy", 0, 0 });
        } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
            const auto * m = reinterpret_cast<const CUpti_ActivityMemset4 *>(record);
            records.push_back({ m->start, m->end, "memset", 0, 0 });
        }
    }
    free(buffer);
}

static void finish() {
    cuptiActivityFlushAll(1);
    std::lock_guard<std::mutex> guard(lock);
    std::sort(records.begin(), records.end(), [](const Record & x, const Record & y) { return x.begin < y.begin; });
    const size_t last = getenv("LAST") ? strtoull(getenv("LAST"), nullptr, 10) : records.size();
    const size_t from = records.size() > last ? records.size() - last : 0;
    struct Sum {
        std::vector<double> us;
        double gap = 0.0, all = 0.0;
    };
    std::map<std::string, Sum> sums;
    double busy = 0.0, idle = 0.0;
    uint64_t end = 0;
    for (size_t i = from; i < records.size(); ++i) {
        const Record & r = records[i];
        int status = 0;
        char * plain = abi::__cxa_demangle(r.name.c_str(), nullptr, nullptr, &status);
        std::string name = status == 0 && plain ? plain : r.name;
        free(plain);
        name = name.substr(0, name.find('(', name.find('>') == std::string::npos ? 0 : name.rfind('>')));
        Sum & sum = sums[name + " [" + std::to_string(r.blocks) + " x " + std::to_string(r.threads) + "]"];
        sum.us.push_back((r.end - r.begin) * 1e-3);
        sum.all += (r.end - r.begin) * 1e-3;
        if (end) {
            const double gap = (static_cast<double>(r.begin) - static_cast<double>(end)) * 1e-3;
            sum.gap += std::min(gap, 100.0); // more is the host between two steps
            idle += gap > 0.0 && gap < 100.0 ? gap : 0.0;
        }
        busy += r.begin >= end ? (r.end - r.begin) * 1e-3 : r.end > end ? (r.end - end) * 1e-3 : 0.0;
        end = std::max(end, r.end);
    }
    FILE * out = fopen(getenv("KERNEL_TIMES") ? getenv("KERNEL_TIMES") : "kernel_times.tsv", "w");
    if (!out) {
        return;
    }
    fprintf(out, "# %zu records, %.1f us with a kernel running, %.1f us between kernels (gaps under 100 us)\n", records.size() - from, busy, idle);
    fprintf(out, "launches\tus in all\tleast\tmedian\tgap before\tkernel [blocks x threads]\n");
    std::vector<std::pair<std::string, Sum>> sorted(sums.begin(), sums.end());
    std::sort(sorted.begin(), sorted.end(), [](const auto & x, const auto & y) { return x.second.all > y.second.all; });
    for (auto & [name, sum] : sorted) {
        std::sort(sum.us.begin(), sum.us.end());
        fprintf(out, "%zu\t%.1f\t%.2f\t%.2f\t%.2f\t%s\n", sum.us.size(), sum.all, sum.us[0], sum.us[sum.us.size() / 2], sum.gap / sum.us.size(), name.c_str());
    }
    fclose(out);
}

extern "C" __attribute__((visibility("default"))) int InitializeInjection(void) {
    cuptiActivityRegisterCallbacks(give, take);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
    atexit(finish);
    return 1;
}
