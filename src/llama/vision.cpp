// Images through mtmd: the encoder, and one image at a time, as numbers. Texts, markers and
// files of images never come here.

#include "guard.h"
#include "mtmd.h"

#include <cstring>
#include <memory>

namespace {

constexpr int32_t REFUSED    = 1; // it could not be prepared
constexpr int32_t OTHER_GRID = 2; // it has another size in tokens than was promised
constexpr int32_t FAILED     = 3; // the computation failed

struct free_bitmap {
    void operator()(mtmd_bitmap * bitmap) const { mtmd_bitmap_free(bitmap); }
};

struct free_chunks {
    void operator()(mtmd_input_chunks * chunks) const { mtmd_input_chunks_free(chunks); }
};

// The one image among the chunks; null where it was taken apart.
const mtmd_input_chunk * image_of(const mtmd_input_chunks * chunks) {
    const mtmd_input_chunk * found = nullptr;
    for (size_t i = 0; i < mtmd_input_chunks_size(chunks); ++i) {
        const mtmd_input_chunk * chunk = mtmd_input_chunks_get(chunks, i);
        if (mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
            continue; // the tags around it
        }
        if (found || mtmd_input_chunk_get_type(chunk) != MTMD_INPUT_CHUNK_TYPE_IMAGE) {
            return nullptr;
        }
        found = chunk;
    }
    return found;
}

} // namespace

extern "C" {

int32_t plateau_vision_encoder_new(const char * path, const llama_model * model, const mtmd_context_params * params,
                         mtmd_context ** out) {
    return guarded([&] {
        *out = mtmd_init_from_file(path, model, *params);
        return 0;
    });
}

void plateau_vision_encoder_free(mtmd_context * ctx) {
    mtmd_free(ctx);
}

// Encodes an image of width x height times RGB. `grid` holds the promised columns and rows and
// gets the true ones; `dst` has room for as many rows of the model's width.
int32_t plateau_vision_encoder_encode(mtmd_context * ctx, uint32_t width, uint32_t height, const uint8_t * rgb, uint32_t * grid,
                            float * dst, size_t n_floats) {
    return guarded([&] {
        const std::unique_ptr<mtmd_bitmap, free_bitmap> bitmap(mtmd_bitmap_init(width, height, rgb));
        const std::unique_ptr<mtmd_input_chunks, free_chunks> chunks(mtmd_input_chunks_init());
        const mtmd_input_part part { nullptr, bitmap.get() };
        const mtmd_input_part * parts[] = { &part };
        if (mtmd_tokenize_from_parts(ctx, chunks.get(), parts, 1, /*add_special=*/false) != 0) {
            return REFUSED;
        }
        const mtmd_input_chunk * image = image_of(chunks.get());
        const size_t n = image ? mtmd_input_chunk_get_n_tokens(image) : 0;
        if (n == 0) {
            return REFUSED;
        }
        const mtmd_image_tokens * tokens = mtmd_input_chunk_get_tokens_image(image);
        const mtmd_decoder_pos last = mtmd_image_tokens_get_decoder_pos(tokens, 0, n - 1);
        const uint32_t nx = last.x + 1, ny = last.y + 1;
        const bool as_promised = nx == grid[0] && ny == grid[1] && size_t(nx) * ny == n;
        grid[0] = nx;
        grid[1] = ny;
        if (!as_promised) {
            return OTHER_GRID;
        }
        if (mtmd_encode_chunk(ctx, image) != 0) {
            return FAILED;
        }
        std::memcpy(dst, mtmd_get_output_embd(ctx), n_floats * sizeof(float));
        return int32_t(0);
    });
}

} // extern "C"
