// Keeps C++ exceptions out of Rust: every call of llama.cpp that can throw and does not catch for
// itself goes through here. Images are in `vision.cpp`.

#include "guard.h"
#include "llama.h"
#include "llama-context.h"
#include "llama-ext.h"
#include "llama-io.h"
#include "llama-kv-cache.h"
#include "llama-memory-hybrid.h"
#include "llama-memory-recurrent.h"
#include "ggml-backend.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>
#include <vector>

namespace {

// The two kinds of memory that a context can have here. Other kinds (sliding windows, sparse
// attention) have no state that this file can save.
llama_kv_cache * attention_of(llama_context * ctx) {
    llama_memory_t memory = llama_get_memory(ctx);
    if (auto * hybrid = dynamic_cast<llama_memory_hybrid *>(memory)) {
        return hybrid->get_mem_attn();
    }
    return dynamic_cast<llama_kv_cache *>(memory);
}

llama_memory_recurrent * recurrent_of(llama_context * ctx) {
    auto * hybrid = dynamic_cast<llama_memory_hybrid *>(llama_get_memory(ctx));
    return hybrid ? hybrid->get_mem_recr() : nullptr;
}

llama_kv_cache & attention(llama_context * ctx) {
    llama_kv_cache * cache = attention_of(ctx);
    if (!cache) {
        throw std::runtime_error("no attention cache of a known kind");
    }
    return *cache;
}

llama_memory_recurrent & recurrent(llama_context * ctx) {
    llama_memory_recurrent * memory = recurrent_of(ctx);
    if (!memory) {
        throw std::runtime_error("no recurrent memory");
    }
    return *memory;
}

// A sequence beyond those of any context, for rows on their way. Only the attention cache is ever
// asked about it.
constexpr llama_seq_id SCRATCH = LLAMA_MAX_SEQ - 1;

// Copies between a context's tensors and host memory. Those of a GPU are begun one after the other
// and waited for together, by the destructor: a state is some hundred copies, and a wait after each
// costs more than the copies.
class copies {
public:
    explicit copies(llama_context * ctx) : ctx(ctx) {}
    copies(const copies &) = delete;
    ~copies() {
        for (ggml_backend_t backend : begun) {
            ggml_backend_synchronize(backend);
        }
    }

    void from(const ggml_tensor * tensor, void * dst, size_t offset, size_t n) {
        if (ggml_backend_t backend = gpu_of(tensor)) {
            ggml_backend_tensor_get_async(backend, tensor, dst, offset, n);
        } else {
            ggml_backend_tensor_get(tensor, dst, offset, n);
        }
    }

    void to(ggml_tensor * tensor, const void * src, size_t offset, size_t n) {
        if (ggml_backend_t backend = gpu_of(tensor)) {
            ggml_backend_tensor_set_async(backend, tensor, src, offset, n);
        } else {
            ggml_backend_tensor_set(tensor, src, offset, n);
        }
    }

private:
    // The backend of this context whose memory the tensor lies in, where it is a GPU; its copies
    // follow what it computes.
    ggml_backend_t gpu_of(const ggml_tensor * tensor) {
        ggml_backend_buffer_t buffer = tensor->view_src ? tensor->view_src->buffer : tensor->buffer;
        if (!buffer || ggml_backend_buffer_is_host(buffer)) {
            return nullptr;
        }
        ggml_backend_buffer_type_t type = ggml_backend_buffer_get_type(buffer);
        ggml_backend_sched_t sched = ctx->get_sched();
        for (int i = 0; i < ggml_backend_sched_get_n_backends(sched); ++i) {
            ggml_backend_t backend = ggml_backend_sched_get_backend(sched, i);
            if (ggml_backend_get_default_buffer_type(backend) == type) {
                if (std::find(begun.begin(), begun.end(), backend) == begun.end()) {
                    begun.push_back(backend);
                }
                return backend;
            }
        }
        return nullptr;
    }

    llama_context *             ctx;
    std::vector<ggml_backend_t> begun;
};

// Writes into a buffer, or only counts where there is none. The buffer is whole when the writer is
// gone.
class writer : public llama_io_write_i {
public:
    writer(llama_context * ctx, uint8_t * dst, size_t size) : copy(ctx), dst(dst), size(size) {}

    void write(const void * src, size_t n) override {
        if (uint8_t * at = take(n)) {
            std::memcpy(at, src, n);
        }
    }

    void write_tensor(ggml_tensor * tensor, size_t offset, size_t n) override {
        if (uint8_t * at = take(n)) {
            copy.from(tensor, at, offset, n);
        }
    }

    size_t n_bytes() override { return used; }

private:
    uint8_t * take(size_t n) {
        uint8_t * at = dst ? dst + used : nullptr;
        used += n;
        if (dst && used > size) {
            throw std::runtime_error("the buffer is too small");
        }
        return at;
    }

    copies    copy;
    uint8_t * dst;
    size_t    size;
    size_t    used = 0;
};

// What `scratch_writer` knows of llama_kv_cache::state_write. With another version read that
// function again, and the expected bytes of tests/native_layout.rs.
static_assert(LLAMA_STATE_SEQ_VERSION == 4 && LLAMA_SESSION_VERSION == 11, "the layout of saved states has changed");
static_assert(sizeof(llama_kv_cell_ext) == 12, "the layout of a cell has changed");
static_assert(sizeof(llama_pos) == 4 && sizeof(llama_seq_id) == 4, "the layout of a cell has changed");

// The rows of SCRATCH as those of a sequence with an id. The cache lists the ids of each cell up to
// its own number of sequences, so it writes none for SCRATCH, and refuses cells without one when it
// reads them. Written are, in this order: the number of streams, the number of cells, each cell
// (position, number of ids, in some models 2D position and token, the ids), and the data. Anything
// else is an exception: nothing is saved rather than something that cannot be read.
class scratch_writer : public writer {
public:
    using writer::writer;

    void write(const void * src, size_t n) override {
        switch (next) {
            case part::streams:
                expect(n == sizeof(uint32_t) && number(src) == 1);
                next = part::cells;
                break;
            case part::cells:
                expect(n == sizeof(uint32_t));
                cells = number(src);
                next = cells > 0 ? part::position : part::end;
                break;
            case part::position:
                expect(n == sizeof(llama_pos));
                next = part::n_ids;
                break;
            case part::n_ids: {
                expect(n == sizeof(uint32_t) && number(src) == 0);
                next = part::after_n_ids;
                const uint32_t one = 1;
                return writer::write(&one, sizeof(one));
            }
            case part::after_n_ids:
                return write_after_n_ids(src, n);
            case part::transposed:
                expect(n == sizeof(uint32_t) && number(src) <= 1);
                next = part::data;
                break;
            case part::data:
                break;
            case part::end:
                expect(false);
        }
        writer::write(src, n);
    }

    void write_tensor(ggml_tensor * tensor, size_t offset, size_t n) override {
        expect(next == part::data);
        writer::write_tensor(tensor, offset, n);
    }

    // All of it was written.
    void finish() { expect(next == part::data || next == part::end); }

private:
    enum class part { streams, cells, position, n_ids, after_n_ids, transposed, data, end };

    static void expect(bool as_known) {
        if (!as_known) {
            throw std::runtime_error("the cache writes another layout than is known");
        }
    }

    static uint32_t number(const void * src) {
        uint32_t value;
        std::memcpy(&value, src, sizeof(value));
        return value;
    }

    // The cell's 2D position and token, or, in a model without them, what follows the cell. All
    // cells are alike.
    void write_after_n_ids(const void * src, size_t n) {
        const bool is_ext = n == sizeof(llama_kv_cell_ext);
        expect(is_ext == has_ext || is_first);
        has_ext = is_ext;
        is_first = false;
        if (is_ext) {
            writer::write(src, n);
        }
        const llama_seq_id id = 0;
        writer::write(&id, sizeof(id));
        next = --cells > 0 ? part::position : part::transposed;
        if (!is_ext) {
            write(src, n);
        }
    }

    part     next     = part::streams;
    uint32_t cells    = 0;
    bool     is_first = true;
    bool     has_ext  = false;
};

// The bytes are read when the reader is gone.
class reader : public llama_io_read_i {
public:
    reader(llama_context * ctx, const uint8_t * src, size_t size) : copy(ctx), src(src), size(size) {}

    void read(void * dst, size_t n) override { std::memcpy(dst, take(n), n); }

    void read_tensor(ggml_tensor * tensor, size_t offset, size_t n) override {
        copy.to(tensor, take(n), offset, n);
    }

    size_t n_bytes() override { return used; }

private:
    const uint8_t * take(size_t n) {
        if (n > size - used) {
            throw std::runtime_error("the state ends too early");
        }
        const uint8_t * at = src + used;
        used += n;
        return at;
    }

    copies          copy;
    const uint8_t * src;
    size_t          size;
    size_t          used = 0;
};

// SCRATCH is empty again, whatever happens.
struct scratch_rows {
    llama_kv_cache & cache;
    ~scratch_rows() { cache.seq_rm(SCRATCH, -1, -1); }
};

} // namespace

extern "C" {

// Host memory of the first GPU's driver, which the GPU copies to and from without a detour; null
// where there is no GPU, no such memory, or none left. Not `on_card`: ordinary memory, for tests
// without one. Freed by `ggml_backend_buffer_free`.
int32_t plateau_host_memory_new(size_t size, bool on_gpu, ggml_backend_buffer_t * out) {
    return guarded([&] {
        ggml_backend_dev_t gpu = on_gpu ? ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_GPU) : nullptr;
        ggml_backend_buffer_type_t type = gpu ? ggml_backend_dev_host_buffer_type(gpu) : nullptr;
        if (!on_gpu) {
            type = ggml_backend_cpu_buffer_type();
        }
        *out = type ? ggml_backend_buft_alloc_buffer(type, size) : nullptr;
        return 0;
    });
}

// Can states be saved: attention rows, and recurrent ones where `recurrent_too`.
bool plateau_state_known(llama_context * ctx, bool recurrent_too) {
    return attention_of(ctx) && (!recurrent_too || recurrent_of(ctx));
}

// The recurrent state of a sequence. `dst` null: only its size. A rollback that waits is part of
// it.
int32_t plateau_recurrent_save(llama_context * ctx, int32_t seq, uint8_t * dst, size_t size, size_t * n_out) {
    return guarded([&] {
        llama_synchronize(ctx);
        writer io(ctx, dst, size);
        recurrent(ctx).state_write(io, seq, 0);
        *n_out = io.n_bytes();
        return 0;
    });
}

// After an exception the sequence has no recurrent state.
int32_t plateau_recurrent_restore(llama_context * ctx, int32_t seq, const uint8_t * src, size_t size) {
    return guarded([&] {
        llama_synchronize(ctx);
        reader io(ctx, src, size);
        recurrent(ctx).state_read(io, seq, 0);
        if (io.n_bytes() != size) {
            throw std::runtime_error("bytes are left over");
        }
        return 0;
    });
}

// The attention rows of positions p0..p1.
int32_t plateau_rows_save(llama_context * ctx, int32_t seq, int32_t p0, int32_t p1, uint8_t * dst, size_t size,
                          size_t * n_out) {
    return guarded([&] {
        llama_synchronize(ctx);
        llama_kv_cache & cache = attention(ctx);
        scratch_rows scratch { cache };
        cache.seq_cp(seq, SCRATCH, p0, p1);
        scratch_writer io(ctx, dst, size);
        cache.state_write(io, SCRATCH, 0);
        io.finish();
        *n_out = io.n_bytes();
        return 0;
    });
}

// Adds rows p0..p1 of saved ones to a sequence. 1: the cache has no room.
int32_t plateau_rows_restore(llama_context * ctx, int32_t seq, int32_t p0, int32_t p1, const uint8_t * src, size_t size) {
    return guarded([&] {
        llama_synchronize(ctx);
        llama_kv_cache & cache = attention(ctx);
        scratch_rows scratch { cache };
        reader io(ctx, src, size);
        cache.state_read(io, SCRATCH, 0);
        if (io.n_bytes() != size) {
            throw std::runtime_error("bytes are left over");
        }
        cache.seq_cp(SCRATCH, seq, p0, p1);
        return 0;
    });
}

// `dst` shares the rows 0..p1 of `src`, without a copy. The recurrent state of `dst` is another
// matter.
int32_t plateau_rows_share(llama_context * ctx, int32_t src, int32_t dst, int32_t p1) {
    return guarded([&] {
        attention(ctx).seq_cp(src, dst, 0, p1);
        return 0;
    });
}

// Removes the attention rows from p0 on; the recurrent state stays as it is, which makes no sense
// but for a moment.
int32_t plateau_rows_remove(llama_context * ctx, int32_t seq, int32_t p0) {
    return guarded([&] {
        attention(ctx).seq_rm(seq, p0, -1);
        return 0;
    });
}

// First and last position of the attention rows, last position of the recurrent state; -1 where
// there are none.
int32_t plateau_state_extent(llama_context * ctx, int32_t seq, int32_t * out) {
    return guarded([&] {
        llama_kv_cache & cache = attention(ctx);
        llama_memory_recurrent * memory = recurrent_of(ctx);
        out[0] = cache.seq_pos_min(seq);
        out[1] = cache.seq_pos_max(seq);
        out[2] = memory ? memory->seq_pos_max(seq) : -1;
        return 0;
    });
}

// Building and reserving a graph throws when a buffer cannot be had.
int32_t plateau_process(llama_context * ctx, llama_batch_ext * batch) {
    return guarded([&] { return llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch); });
}

// The regular expressions of a pre-tokenizer throw. llama_tokenize answers -n where the buffer is
// too small, so that its result is handed out apart from the code.
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

// The functions of llama-ext.h are C++ and have mangled names; these two do not throw. Of every
// row: "masked", the rows with outputs alone, copies the first rows of an MTP batch, whichever have
// outputs.
void plateau_export_hidden(llama_context * ctx) {
    llama_set_embeddings_nextn(ctx, /*value=*/true, /*masked=*/false);
}

const float * plateau_hidden_row(llama_context * ctx, int32_t row) {
    return llama_get_embeddings_nextn_ith(ctx, row);
}

// Bytes of one kind of memory: the model's share, the context's (KV cache and recurrent state), and
// the compute buffers.
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
