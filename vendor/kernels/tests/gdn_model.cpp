// A whole model with the Gated DeltaNet kernels on and off, in one process, through libllama as plateau uses it.
//
//   gdn_model PLUGIN MODEL prefill [DEPTH]         tokens a second at micro-batches of 512 and 2048, depth 0 and DEPTH (32768)
//   gdn_model PLUGIN MODEL step [DEPTH]            a step of 1 to 5 tokens, all but one taken back: milliseconds, memory
//   gdn_model PLUGIN MODEL bits TEXT               in place: the same logits, whatever is taken back, saved, copied
//   gdn_model PLUGIN MODEL parity TEXT [PROMPTS]   in chunks: greedy answers to long prompts (200), and the gap of logits
//                                                  where they part
//
// PLUGIN `cpu` takes none: all switches do nothing then, which tests this program. Figures as JSON lines to the file of
// PLATEAU_JSON. Not for: quality of answers; a model of random weights does for `prefill` and `step`.
#include "plugin.h"

#include "llama.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <random>
#include <string>

static llama_model * model = nullptr;
static FILE * json = nullptr;

static void expect(bool holds, const char * what) {
    if (!holds) {
        fprintf(stderr, "gdn_model: %s\n", what);
        exit(2);
    }
}

// Lines of llama.cpp's log on memory, and its errors.
static void log_line(ggml_log_level level, const char * text, void *) {
    static bool memory_of_context = getenv("PLATEAU_LOG") != nullptr;
    if (level == GGML_LOG_LEVEL_ERROR || (memory_of_context && strstr(text, "buffer size"))) {
        fputs(text, stderr);
    }
}

static double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

static double median(std::vector<double> x) {
    std::sort(x.begin(), x.end());
    return x[x.size() / 2];
}

static size_t free_memory() {
    size_t free = 0, total = 0;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_GPU) {
            ggml_backend_dev_memory(device, &free, &total);
        }
    }
    return free;
}

struct Setup {
    uint32_t ctx, ubatch, rollback;
    ggml_type cache = GGML_TYPE_Q4_0;
    uint32_t outputs = 8;
    uint32_t sequences = 1;
};

// A context, and where its first sequence ends.
struct Context {
    llama_context * raw = nullptr;
    llama_batch batch;
    llama_pos end = 0;

    Context(const char * switches, const Setup & setup) : batch(llama_batch_init(2048, 0, 1)) {
        switch_kernels(switches);
        llama_context_params p = llama_context_default_params();
        p.n_ctx = setup.ctx;
        p.n_batch = 2048;
        p.n_ubatch = setup.ubatch;
        p.n_seq_max = setup.sequences;
        p.n_rs_seq = setup.rollback;
        p.n_outputs_max = p.n_outputs_max_per_seq = setup.outputs;
        p.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
        p.type_k = p.type_v = setup.cache;
        p.kv_unified = true;
        p.no_perf = true;
        p.n_threads = p.n_threads_batch = getenv("THREADS") ? atoi(getenv("THREADS")) : 2;
        raw = llama_init_from_model(model, p);
        expect(raw, "no context: not enough memory?");
    }
    Context(const Context &) = delete;
    ~Context() {
        llama_batch_free(batch);
        llama_free(raw);
    }

    void clear_batch() { batch.n_tokens = 0; }
    void add(llama_token token, llama_pos pos, llama_seq_id seq, bool output) {
        const int i = batch.n_tokens++;
        batch.token[i] = token;
        batch.pos[i] = pos;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = seq;
        batch.logits[i] = output;
    }
    void run() {
        expect(llama_decode(raw, batch) == 0, "llama_decode failed");
        llama_synchronize(raw);
    }
    // Appends tokens to the first sequence; the last `outputs` of them give logits.
    void append(const llama_token * tokens, int count, int outputs = 1) {
        for (int first = 0; first < count; first += 2048) {
            const int n = std::min(2048, count - first);
            clear_batch();
            for (int i = 0; i < n; ++i) {
                add(tokens[first + i], end + i, 0, first + i >= count - outputs);
            }
            run();
            end += n;
        }
    }
    void take_back_to(llama_pos pos) {
        expect(llama_memory_seq_rm(llama_get_memory(raw), 0, pos, -1), "tokens cannot be taken back");
        end = pos;
    }
    void clear() {
        llama_memory_clear(llama_get_memory(raw), true);
        end = 0;
    }
    std::vector<uint8_t> save() {
        std::vector<uint8_t> data(llama_state_seq_get_size(raw, 0));
        expect(llama_state_seq_get_data(raw, data.data(), data.size(), 0) == data.size(), "the state cannot be saved");
        return data;
    }
    void load(const std::vector<uint8_t> & data, llama_pos at) {
        clear();
        expect(llama_state_seq_set_data(raw, data.data(), data.size(), 0) > 0, "the state cannot be restored");
        end = at;
    }
};

static std::vector<llama_token> random_tokens(int count) {
    std::mt19937 generator(1);
    std::vector<llama_token> tokens(count);
    const int known = llama_vocab_n_tokens(llama_model_get_vocab(model)) - 64; // not the special ones at the end
    for (llama_token & token : tokens) {
        token = generator() % known;
    }
    return tokens;
}

static std::vector<llama_token> tokens_of(const char * path, size_t most_bytes) {
    FILE * file = fopen(path, "rb");
    expect(file, "the text cannot be read");
    std::string text(most_bytes, '\0');
    text.resize(fread(&text[0], 1, most_bytes, file));
    fclose(file);
    std::vector<llama_token> tokens(text.size() + 16);
    const int n = llama_tokenize(llama_model_get_vocab(model), text.data(), static_cast<int32_t>(text.size()), tokens.data(), static_cast<int32_t>(tokens.size()), false, false);
    expect(n > 0, "the text has no tokens");
    tokens.resize(n);
    return tokens;
}

// Kernel switches to compare: upstream's all through; ours but for Gated DeltaNet; all of ours.
struct Config {
    const char * name;
    const char * switches;
};
static const Config UPSTREAM = { "llama.cpp", "-all" }, WITHOUT = { "without gdn", "+all,-gdn_chunk,-gdn_in_place,-gdn_exact" },
                    WITH = { "with gdn", "+all,-gdn_exact" }, EXACTLY = { "gdn exact", "+all,+gdn_exact" };

static std::string counts() {
    char text[200];
    snprintf(text, sizeof text, "chunk %llu/%llu, in place %llu/%llu", (unsigned long long) count("gdn_chunk", 0), (unsigned long long) count("gdn_chunk", 1),
             (unsigned long long) count("gdn_in_place", 0), (unsigned long long) count("gdn_in_place", 1));
    return text;
}

static void prefill(int depth) {
    constexpr int tokens = 2048;
    const std::vector<llama_token> text = random_tokens(depth + tokens);
    std::vector<uint8_t> deep;
    printf("%-12s %6s %14s %14s   calls/fall-backs\n", "kernels", "ubatch", "tok/s at 0", "tok/s at depth");
    for (const uint32_t ubatch : { 512u, 2048u }) {
        for (const Config & config : { UPSTREAM, WITHOUT, WITH, EXACTLY }) {
            Context c(config.switches, { static_cast<uint32_t>(depth + tokens + 256), ubatch, 3 });
            auto rate = [&](const std::function<void()> & start, int at) {
                std::vector<double> times;
                for (int i = 0; i < 4; ++i) {
                    start();
                    const double begin = seconds();
                    c.append(&text[at], tokens);
                    if (i > 0) { // the first warms up
                        times.push_back(seconds() - begin);
                    }
                }
                return tokens / median(times);
            };
            const double shallow = rate([&] { c.clear(); }, 0);
            if (depth > 0 && deep.empty()) {
                c.clear();
                c.append(text.data(), depth);
                deep = c.save();
            }
            const double far = depth > 0 ? rate([&] { c.load(deep, depth); }, depth) : 0.0;
            printf("%-12s %6u %14.1f %14.1f   %s\n", config.name, ubatch, shallow, far, counts().c_str());
            fflush(stdout);
            fprintf(json, "{\"what\":\"prefill\",\"kernels\":\"%s\",\"ubatch\":%u,\"depth\":%d,\"at_0\":%.2f,\"at_depth\":%.2f}\n", config.name, ubatch, depth, shallow, far);
        }
    }
}

// Steps of `tokens` tokens, of which one stays, as when a model takes none of its drafts.
static double step_milliseconds(Context & c, const std::vector<llama_token> & text, int tokens) {
    std::vector<double> times;
    for (int i = 0; i < 40; ++i) {
        const llama_pos at = c.end;
        const double begin = seconds();
        c.append(&text[i], tokens, tokens);
        if (i >= 8) { // the first capture a graph
            times.push_back((seconds() - begin) * 1e3);
        }
        if (tokens > 1) {
            c.take_back_to(at + 1);
        }
    }
    return median(times);
}

static void step(int depth) {
    const std::vector<llama_token> text = random_tokens(depth + 256);
    std::vector<uint8_t> deep;
    printf("%-12s %3s %12s %14s %12s   calls/fall-backs\n", "kernels", "T", "ms at 0", "ms at depth", "context MiB");
    for (int tokens = 1; tokens <= 5; ++tokens) {
        for (const Config & config : { UPSTREAM, WITHOUT, WITH }) {
            const size_t before = free_memory();
            Context c(config.switches, { static_cast<uint32_t>(depth + 512), 512, static_cast<uint32_t>(tokens - 1) });
            c.append(text.data(), 16);
            const double shallow = step_milliseconds(c, text, tokens);
            const double mib = (static_cast<double>(before) - static_cast<double>(free_memory())) / 1048576.0;
            if (depth > 0 && deep.empty()) {
                c.clear();
                c.append(text.data(), depth);
                deep = c.save();
            }
            double far = 0.0;
            if (depth > 0) {
                c.load(deep, depth);
                far = step_milliseconds(c, text, tokens);
            }
            printf("%-12s %3d %12.3f %14.3f %12.0f   %s\n", config.name, tokens, shallow, far, mib, counts().c_str());
            fflush(stdout);
            fprintf(json, "{\"what\":\"step\",\"kernels\":\"%s\",\"tokens\":%d,\"depth\":%d,\"ms_at_0\":%.4f,\"ms_at_depth\":%.4f,\"context_mib\":%.0f}\n", config.name,
                    tokens, depth, shallow, far, mib);
        }
    }
}

static void keep_logits(Context & c, std::vector<float> & all) {
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i < c.batch.n_tokens; ++i) {
        if (c.batch.logits[i]) {
            const float * row = llama_get_logits_ith(c.raw, i);
            all.insert(all.end(), row, row + vocab);
        }
    }
}

// Every number of tokens taken and kept, a state saved and restored, a sequence copied and continued beside its original.
static std::vector<float> steps_of_all_kinds(const char * switches, const std::vector<llama_token> & text) {
    Context c(switches, { 4096, 512, 4, GGML_TYPE_F16, 16, 2 });
    std::vector<float> all;
    c.append(text.data(), 300);
    keep_logits(c, all);
    size_t next = 300;
    int taken = 0;
    for (int round = 0; round < 3; ++round) {
        for (int tokens = 1; tokens <= 5; ++tokens) {
            for (int kept = 1; kept <= tokens; ++kept) {
                const llama_pos at = c.end;
                c.append(&text[next], tokens, tokens);
                keep_logits(c, all);
                if (kept < tokens) {
                    c.take_back_to(at + kept);
                }
                next += tokens;
                if (++taken % 11 == 0) {
                    const llama_pos end = c.end;
                    c.load(c.save(), end);
                }
            }
        }
        llama_memory_seq_cp(llama_get_memory(c.raw), 0, 1, -1, -1);
        for (int i = 0; i < 3; ++i) { // both sequences in one batch, with tokens of their own
            c.clear_batch();
            for (llama_seq_id seq = 0; seq < 2; ++seq) {
                c.add(text[next++], c.end, seq, true);
                c.add(text[next++], c.end + 1, seq, true);
            }
            c.run();
            keep_logits(c, all);
            c.end += 2;
        }
        expect(llama_memory_seq_rm(llama_get_memory(c.raw), 1, -1, -1), "a sequence cannot be removed");
    }
    return all;
}

static int bits(const char * path) {
    const std::vector<llama_token> text = tokens_of(path, 20000);
    expect(text.size() > 1000, "the text is too short");
    const std::vector<float> theirs = steps_of_all_kinds("-all", text), again = steps_of_all_kinds("-all", text);
    const uint64_t before = count("gdn_in_place", 0);
    const std::vector<float> ours = steps_of_all_kinds("-all,+gdn_in_place", text);
    auto differ = [&](const std::vector<float> & x) {
        size_t n = 0;
        for (size_t i = 0; i < x.size(); ++i) {
            n += memcmp(&x[i], &theirs[i], sizeof(float)) != 0;
        }
        return n;
    };
    expect(theirs.size() == ours.size() && theirs.size() == again.size(), "not as many logits");
    const size_t noise = differ(again), changed = differ(ours);
    printf("bits: %zu logits; llama.cpp twice: %zu differ; in place: %zu differ, states read in place %llu times, NMSE %g\n", theirs.size(), noise, changed,
           (unsigned long long) (count("gdn_in_place", 0) - before), difference(ours, theirs));
    fprintf(json, "{\"what\":\"bits\",\"logits\":%zu,\"noise\":%zu,\"changed\":%zu}\n", theirs.size(), noise, changed);
    return changed ? 1 : 0;
}

// A greedy answer and how far its choice was ahead of the next best, token by token.
struct Answer {
    std::vector<llama_token> tokens;
    std::vector<float> gaps;
};

static Answer answer(Context & c, const llama_token * prompt, int length, int most) {
    const int vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    Answer a;
    c.clear();
    c.append(prompt, length);
    while (true) {
        const float * logits = llama_get_logits_ith(c.raw, -1);
        const int best = static_cast<int>(std::max_element(logits, logits + vocab) - logits);
        float second = -INFINITY;
        for (int i = 0; i < vocab; ++i) {
            second = i != best ? std::max(second, logits[i]) : second;
        }
        a.tokens.push_back(best);
        a.gaps.push_back(logits[best] - second);
        if (static_cast<int>(a.tokens.size()) == most) {
            return a;
        }
        c.append(&a.tokens.back(), 1);
    }
}

static int parity(const char * path, int prompts) {
    constexpr int most = 32;
    const std::vector<llama_token> text = tokens_of(path, 16u << 20);
    const int longest = std::min<int>(30000, static_cast<int>(text.size()) / 2), shortest = std::min(4000, longest / 2);
    std::mt19937 generator(7);
    std::vector<std::pair<size_t, int>> slices; // where prompts begin, and their lengths
    for (int i = 0; i < prompts; ++i) {
        const int length = shortest + static_cast<int>(generator() % (longest - shortest + 1));
        slices.emplace_back(generator() % (text.size() - length), length);
    }
    auto answers = [&](const char * switches) {
        Context c(switches, { static_cast<uint32_t>(longest + most + 256), 512, 0, GGML_TYPE_F16 });
        std::vector<Answer> all;
        for (const auto & [at, length] : slices) {
            all.push_back(answer(c, &text[at], length, most));
        }
        return all;
    };
    const std::vector<Answer> theirs = answers("+all,-gdn_chunk,-gdn_exact");
    int failed = 0;
    for (const Config & config : { Config{ "the same again", "+all,-gdn_chunk,-gdn_exact" }, Config{ "in chunks", "+all,-gdn_exact" }, Config{ "exact", "+all,+gdn_exact" } }) {
        const std::vector<Answer> ours = answers(config.switches);
        int equal = 0;
        float widest = 0.0f;
        for (int i = 0; i < prompts; ++i) {
            const auto parted = std::mismatch(theirs[i].tokens.begin(), theirs[i].tokens.end(), ours[i].tokens.begin()).first - theirs[i].tokens.begin();
            if (parted == most) {
                ++equal;
                continue;
            }
            const float gap = theirs[i].gaps[parted];
            widest = std::max(widest, gap);
            printf("prompt %d, %d tokens: parts after %d, gap %.4f\n", i, slices[i].second, static_cast<int>(parted), gap);
        }
        printf("parity, %s: %d of %d answers of %d tokens equal, widest gap where one parts %.4f; %s\n", config.name, equal, prompts, most, widest, counts().c_str());
        fflush(stdout);
        fprintf(json, "{\"what\":\"parity\",\"kernels\":\"%s\",\"prompts\":%d,\"equal\":%d,\"widest_gap\":%.5f}\n", config.name, prompts, equal, widest);
        failed += equal * 100 < prompts * 99 || widest >= 0.05f;
    }
    return failed ? 1 : 0;
}

int main(int argc, char ** argv) {
    const std::string mode = argc > 3 ? argv[3] : "";
    const bool needs_text = mode == "bits" || mode == "parity";
    if ((mode != "prefill" && mode != "step" && !needs_text) || (needs_text && argc < 5)) {
        fprintf(stderr, "usage: gdn_model PLUGIN|cpu MODEL prefill [DEPTH] | step [DEPTH] | bits TEXT | parity TEXT [PROMPTS]\n");
        return 64;
    }
    json = fopen(getenv("PLATEAU_JSON") ? getenv("PLATEAU_JSON") : "gdn_model.json", "w");
    expect(json, "PLATEAU_JSON cannot be written");
    llama_log_set(log_line, nullptr);
    if (strcmp(argv[1], "cpu") != 0) {
        find_kernels(argv[1]);
    }
    llama_backend_init();
    llama_model_params params = llama_model_default_params();
    params.n_gpu_layers = -1;
    model = llama_model_load_from_file(argv[2], params);
    expect(model, "the model cannot be loaded");
    const int number = argc > (needs_text ? 5 : 4) ? atoi(argv[needs_text ? 5 : 4]) : 0;
    const int depth = argc > 4 ? number : 32768;
    int code = 0;
    if (mode == "prefill") {
        prefill(depth);
    } else if (mode == "step") {
        step(depth);
    } else {
        code = mode == "bits" ? bits(argv[4]) : parity(argv[4], number > 0 ? number : 200);
    }
    fclose(json);
    llama_model_free(model);
    return code;
}
