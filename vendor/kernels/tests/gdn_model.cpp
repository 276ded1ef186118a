// A whole model with the Gated DeltaNet kernels on and off, in one process, through libllama as plateau uses it.
//
//   gdn_model PLUGIN MODEL prefill [DEPTH]         tokens a second at micro-batches of 512 and 2048, depth 0 and DEPTH (32768)
//   gdn_model PLUGIN MODEL step [DEPTH]            a step of 1 to 5 tokens, all but one taken back: milliseconds, memory
//   gdn_model PLUGIN MODEL widths [DEPTH]          a step of 1 to 8 tokens with small-batch products on and off, and how far
//                                                  apart their logits are; of WIDTHS and PRODUCTS (llama.cpp, off, on) alone
//                                                  where the environment has such lists
//   gdn_model PLUGIN MODEL bits TEXT               in place: the same logits, whatever is taken back, saved, copied
//   gdn_model PLUGIN MODEL parity TEXT [PROMPTS [WAYS]]    in chunks: greedy answers to long pieces of TEXT (200), and the gap
//                                                          of logits where they part
//   gdn_model PLUGIN MODEL answers FILE [PROMPTS [WAYS]]   the same to whole prompts, form feeds between them (gdn_prompts.py)
//
// WAYS, by default all: again (llama.cpp twice), ubatch and plain (controls: its kernels with micro-batches of 256, without
// flash attention), chunks, exact.
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
    bool flash = true;
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
        p.flash_attn_type = setup.flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
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

static std::string text_of(const char * path, size_t most_bytes) {
    FILE * file = fopen(path, "rb");
    expect(file, "the text cannot be read");
    std::string text(most_bytes, '\0');
    text.resize(fread(&text[0], 1, most_bytes, file));
    fclose(file);
    return text;
}

// `marked`: text that names special tokens means them.
static std::vector<llama_token> tokenized(const std::string & text, bool marked) {
    std::vector<llama_token> tokens(text.size() + 16);
    const int n = llama_tokenize(llama_model_get_vocab(model), text.data(), static_cast<int32_t>(text.size()), tokens.data(), static_cast<int32_t>(tokens.size()), false, marked);
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

static void keep_logits(Context & c, std::vector<float> & all);

static void widths(int depth) {
    const Config configs[] = { UPSTREAM, { "off", "+all,-gdn_exact,-mmq_small" }, { "on", "+all,-gdn_exact,+mmq_small" } };
    const std::vector<llama_token> text = random_tokens(depth + 256);
    printf("%-12s %3s %12s   NMSE of logits against off, products' calls/fall-backs\n", "products", "T", "ms");
    // Whether a comma-separated list of the environment has it, or there is none.
    auto wanted = [](const char * list, const std::string & what) {
        const char * text = getenv(list);
        return !text || ("," + std::string(text) + ",").find("," + what + ",") != std::string::npos;
    };
    for (const int tokens : { 1, 2, 3, 4, 5, 6, 8 }) {
        if (!wanted("WIDTHS", std::to_string(tokens))) {
            continue;
        }
        std::vector<float> off;
        for (const Config & config : configs) {
            if (!wanted("PRODUCTS", config.name)) {
                continue;
            }
            Context c(config.switches, { static_cast<uint32_t>(depth + 512), 512, static_cast<uint32_t>(tokens - 1) });
            c.append(text.data(), std::max(depth, 16));
            std::vector<float> logits;
            for (int i = 0; i < 4; ++i) { // the later ones replay a graph
                c.append(&text[8 * i], tokens, tokens);
                keep_logits(c, logits);
            }
            const double ms = step_milliseconds(c, text, tokens);
            const bool is_off = !strcmp(config.name, "off");
            off = is_off ? logits : off;
            const double apart = off.empty() ? 0.0 : difference(logits, off);
            printf("%-12s %3d %12.3f   %.2e, %llu/%llu\n", config.name, tokens, ms, apart, (unsigned long long) count("mmq_small", 0), (unsigned long long) count("mmq_small", 1));
            fflush(stdout);
            fprintf(json, "{\"what\":\"widths\",\"products\":\"%s\",\"tokens\":%d,\"depth\":%d,\"ms\":%.4f,\"apart\":%.3e}\n", config.name, tokens, depth, ms, apart);
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
    const std::vector<llama_token> text = tokenized(text_of(path, 20000), false);
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

// A greedy answer, to its end if that comes soon, and how far its choice was ahead of the next best, token by token.
struct Answer {
    std::vector<llama_token> tokens;
    std::vector<float> gaps;
};

typedef std::vector<std::vector<llama_token>> Prompts;
static constexpr int LONGEST_ANSWER = 32;

static Answer answer(Context & c, const std::vector<llama_token> & prompt) {
    const llama_vocab * vocab = llama_model_get_vocab(model);
    const int size = llama_vocab_n_tokens(vocab);
    Answer a;
    c.clear();
    c.append(prompt.data(), static_cast<int>(prompt.size()));
    while (true) {
        const float * logits = llama_get_logits_ith(c.raw, -1);
        const int best = static_cast<int>(std::max_element(logits, logits + size) - logits);
        float second = -INFINITY;
        for (int i = 0; i < size; ++i) {
            second = i != best ? std::max(second, logits[i]) : second;
        }
        a.tokens.push_back(best);
        a.gaps.push_back(logits[best] - second);
        if (static_cast<int>(a.tokens.size()) == LONGEST_ANSWER || llama_vocab_is_eog(vocab, best)) {
            return a;
        }
        c.append(&a.tokens.back(), 1);
    }
}

// Pieces of 4,000 to 30,000 tokens, shorter ones of a short text.
static Prompts pieces_of(const std::vector<llama_token> & text, int count) {
    const int longest = std::min<int>(30000, static_cast<int>(text.size()) / 2), shortest = std::min(4000, longest / 2);
    std::mt19937 generator(7);
    Prompts prompts;
    for (int i = 0; i < count; ++i) {
        const int length = shortest + static_cast<int>(generator() % (longest - shortest + 1));
        const auto begin = text.begin() + generator() % (text.size() - length);
        prompts.emplace_back(begin, begin + length);
    }
    return prompts;
}

static Prompts prompts_in(const std::string & text, int count) {
    Prompts prompts;
    for (size_t begin = 0; begin < text.size() && static_cast<int>(prompts.size()) < count;) {
        const size_t end = std::min(text.find('\f', begin), text.size());
        prompts.push_back(tokenized(text.substr(begin, end - begin), true));
        begin = end + 1;
    }
    expect(!prompts.empty(), "no prompts");
    return prompts;
}

struct Asked {
    const char * key;
    const char * name;
    const char * switches;
    uint32_t ubatch = 512;
    bool flash = true;
};
static const char * const NO_CHUNKS = "+all,-gdn_chunk,-gdn_exact";
static const Asked ASKED[] = { { "again", "the same again", NO_CHUNKS }, { "ubatch", "control: micro-batches of 256", NO_CHUNKS, 256 },
                               { "chunks", "in chunks", "+all,-gdn_exact" }, { "exact", "exact", "+all,+gdn_exact" },
                               { "plain", "control: no flash attention", NO_CHUNKS, 512, false } };

static std::vector<Answer> answers(const Prompts & prompts, const Asked & asked) {
    size_t longest = 0;
    for (const auto & prompt : prompts) {
        longest = std::max(longest, prompt.size());
    }
    Setup setup = { static_cast<uint32_t>(longest + LONGEST_ANSWER + 256), asked.ubatch, 0, GGML_TYPE_F16 };
    setup.flash = asked.flash;
    Context c(asked.switches, setup);
    std::vector<Answer> all;
    for (const auto & prompt : prompts) {
        all.push_back(answer(c, prompt));
    }
    return all;
}

// How sure the model was: of all tokens chosen, the share that led by less than 0.1, and by less than 0.05.
static void print_leads(const char * mode, const std::vector<Answer> & all) {
    size_t tokens = 0, narrow = 0, narrower = 0;
    for (const Answer & a : all) {
        for (const float gap : a.gaps) {
            ++tokens;
            narrow += gap < 0.1f;
            narrower += gap < 0.05f;
        }
    }
    printf("%s: %zu answers, %zu tokens; ahead of the next best by less than 0.1: %zu (%.2f %%), less than 0.05: %zu\n", mode, all.size(), tokens, narrow,
           100.0 * narrow / tokens, narrower);
    fprintf(json, "{\"what\":\"%s\",\"answers\":%zu,\"tokens\":%zu,\"below_0.1\":%zu,\"below_0.05\":%zu}\n", mode, all.size(), tokens, narrow, narrower);
}

// Whether 99 of 100 answers are equal and the others part at a gap below 0.05.
static bool close(const char * mode, const Prompts & prompts, const std::vector<Answer> & theirs, const Asked & asked) {
    const std::vector<Answer> ours = answers(prompts, asked);
    int equal = 0;
    float widest = 0.0f;
    for (size_t i = 0; i < prompts.size(); ++i) {
        const std::vector<llama_token> &a = theirs[i].tokens, &b = ours[i].tokens;
        if (a == b) {
            ++equal;
            continue;
        }
        // One cannot be the beginning of the other: both go on to the same length or an end.
        const auto parted = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
        const float gap = theirs[i].gaps[parted];
        widest = std::max(widest, gap);
        printf("prompt %zu, %zu tokens: parts after %d, gap %.4f\n", i, prompts[i].size(), static_cast<int>(parted), gap);
    }
    printf("%s, %s: %d of %zu answers equal, widest gap where one parts %.4f; %s\n", mode, asked.name, equal, prompts.size(), widest, counts().c_str());
    fflush(stdout);
    fprintf(json, "{\"what\":\"%s\",\"kernels\":\"%s\",\"prompts\":%zu,\"equal\":%d,\"widest_gap\":%.5f}\n", mode, asked.name, prompts.size(), equal, widest);
    fflush(json);
    return equal * 100 >= static_cast<int>(prompts.size()) * 99 && widest < 0.05f;
}

static int compare_answers(const char * mode, const Prompts & prompts, const std::string & ways) {
    size_t shortest = SIZE_MAX, longest = 0, tokens = 0;
    for (const auto & prompt : prompts) {
        shortest = std::min(shortest, prompt.size());
        longest = std::max(longest, prompt.size());
        tokens += prompt.size();
    }
    printf("%zu prompts of %zu to %zu tokens, %zu in all\n", prompts.size(), shortest, longest, tokens);
    fflush(stdout);
    const std::vector<Answer> theirs = answers(prompts, { "", "llama.cpp", NO_CHUNKS });
    print_leads(mode, theirs);
    int failed = 0;
    for (const Asked & asked : ASKED) {
        if (ways.empty() || ("," + ways + ",").find(std::string(",") + asked.key + ",") != std::string::npos) {
            const bool control = !strcmp(asked.key, "ubatch") || !strcmp(asked.key, "plain"); // llama.cpp's own: no verdict
            failed += !close(mode, prompts, theirs, asked) && !control;
        }
    }
    return failed ? 1 : 0;
}

int main(int argc, char ** argv) {
    const std::string mode = argc > 3 ? argv[3] : "";
    const bool needs_text = mode == "bits" || mode == "parity" || mode == "answers";
    if ((mode != "prefill" && mode != "step" && mode != "widths" && !needs_text) || (needs_text && argc < 5)) {
        fprintf(stderr, "usage: gdn_model PLUGIN|cpu MODEL prefill [DEPTH] | step [DEPTH] | widths [DEPTH] | bits TEXT | parity TEXT [PROMPTS [WAYS]] | answers FILE [PROMPTS [WAYS]]\n");
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
    const int depth = argc > 4 ? number : mode == "widths" ? 0 : 32768;
    int code = 0;
    if (mode == "prefill") {
        prefill(depth);
    } else if (mode == "step") {
        step(depth);
    } else if (mode == "widths") {
        widths(depth);
    } else if (mode == "bits") {
        code = bits(argv[4]);
    } else {
        const std::string text = text_of(argv[4], 64u << 20);
        const int count = number > 0 ? number : 200;
        const Prompts prompts = mode == "parity" ? pieces_of(tokenized(text, false), count) : prompts_in(text, count);
        code = compare_answers(mode.c_str(), prompts, argc > 6 ? argv[6] : "");
    }
    fclose(json);
    llama_model_free(model);
    return code;
}
