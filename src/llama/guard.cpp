// Keeps C++ exceptions out of Rust: every call of llama.cpp that can throw and does not catch for itself goes through here.
//
// The codes below zero are this file's; llama.cpp's own end at -3.

#include "llama.h"
#include "llama-ext.h"

#include <cstdint>
#include <exception>
#include <new>

namespace {

constexpr int32_t OUT_OF_MEMORY = -100;
constexpr int32_t EXCEPTION     = -101;

template <typename F> int32_t guarded(F && call) {
    try {
        return call();
    } catch (const std::bad_alloc &) {
        return OUT_OF_MEMORY;
    } catch (...) {
        return EXCEPTION;
    }
}

} // namespace

extern "C" {

// Building and reserving a graph throws when a buffer cannot be had.
int32_t plateau_process(llama_context * ctx, llama_batch_ext * batch) {
    return guarded([&] { return llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch); });
}

// The regular expressions of a pre-tokenizer throw. llama_tokenize answers -n where the buffer is too small, so that its
// result is handed out apart from the code.
int32_t plateau_tokenize(const llama_vocab * vocab, const char * text, int32_t n_text, llama_token * tokens,
                         int32_t n_tokens, int32_t * n_out) {
    return guarded([&] {
        *n_out = llama_tokenize(vocab, text, n_text, tokens, n_tokens, /*add_special=*/false, /*parse_special=*/false);
        return 0;
    });
}

// Decoding the text of a token throws where the vocabulary holds malformed byte-level text.
int32_t plateau_token_to_piece(const llama_vocab * vocab, llama_token token, char * buffer, int32_t n_buffer,
                               int32_t * n_out) {
    return guarded([&] {
        *n_out = llama_token_to_piece(vocab, token, buffer, n_buffer, /*lstrip=*/0, /*special=*/true);
        return 0;
    });
}

// What a plug-in does when it starts is its own affair.
int32_t plateau_backend_load(const char * path, ggml_backend_reg_t * out) {
    return guarded([&] {
        *out = ggml_backend_load(path);
        return 0;
    });
}

// The loader catches std::exception only.
int32_t plateau_model_load(const char * path, const llama_model_params * params, llama_model ** out) {
    return guarded([&] {
        *out = llama_model_load_from_file(path, *params);
        return 0;
    });
}

int32_t plateau_context_new(llama_model * model, const llama_context_params * params, llama_context ** out) {
    return guarded([&] {
        *out = llama_init_from_model(model, *params);
        return 0;
    });
}

// The functions of llama-ext.h are C++ and have mangled names; these two do not throw. Of every row: "masked", the rows with
// outputs alone, copies the first rows of an MTP batch, whichever have outputs.
void plateau_export_hidden(llama_context * ctx) {
    llama_set_embeddings_nextn(ctx, /*value=*/true, /*masked=*/false);
}

const float * plateau_hidden_row(llama_context * ctx, int32_t row) {
    return llama_get_embeddings_nextn_ith(ctx, row);
}

// Bytes of one kind of memory: the model's share, the context's (KV cache and recurrent state), and the compute buffers.
struct plateau_memory_use {
    const char * name;
    bool         host;
    size_t       model;
    size_t       context;
    size_t       compute;
};

// Writes at most n_max rows and hands out how many there are.
int32_t plateau_memory_breakdown(const llama_context * ctx, plateau_memory_use * rows, size_t n_max, size_t * n_out) {
    return guarded([&] {
        size_t n = 0;
        for (const auto & [type, use] : llama_get_memory_breakdown(ctx)) {
            if (n < n_max) {
                rows[n] = { ggml_backend_buft_name(type), ggml_backend_buft_is_host(type), use.model, use.context, use.compute };
            }
            ++n;
        }
        *n_out = n;
        return 0;
    });
}

} // extern "C"
