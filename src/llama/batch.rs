//! The rows of a step in llama.cpp's form, one buffer that is used again for every step.

#![expect(unsafe_code, reason = "owns a llama_batch_ext")]

use std::ptr::NonNull;
use std::rc::Rc;

use super::ffi;
use super::handle::Handle;
use crate::engine::{BatchRow, EncoderCache, ImageRow, PromptItem};

/// Holds up to the context's `n_batch` rows.
pub struct Batch {
    raw: NonNull<ffi::llama_batch_ext>,
    /// The context that it was made for, whose memory it points to.
    context: Rc<Handle>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: made by llama_batch_ext_init and freed once.
        unsafe { ffi::llama_batch_ext_free(self.raw.as_ptr()) }
    }
}

impl Batch {
    /// `None` where memory ran out.
    pub(super) fn new(context: Rc<Handle>) -> Option<Batch> {
        // SAFETY: the context is alive, and the batch keeps it so.
        let raw = NonNull::new(unsafe { ffi::llama_batch_ext_init(context.raw()) })?;
        Some(Batch { raw, context })
    }

    /// Was it made for that context.
    pub(super) fn is_of(&self, context: &Rc<Handle>) -> bool {
        Rc::ptr_eq(&self.context, context)
    }

    /// Replaces the contents. `false`: a row was refused (full, unknown token or sequence, a
    /// image that is not there).
    pub fn fill(&mut self, rows: &[BatchRow], encoder_cache: &EncoderCache) -> bool {
        self.clear();
        rows.iter().all(|row| match row.item {
            PromptItem::Token(_) => self.push(*row, None),
            PromptItem::Image(image) => {
                encoder_cache.row(image).is_some_and(|floats| self.push_image(*row, image, floats))
            }
        })
    }

    pub fn clear(&mut self) {
        // SAFETY: the batch is alive.
        unsafe { ffi::llama_batch_ext_clear(self.raw.as_ptr()) }
    }

    /// Adds a row, for the MTP head with the trunk's hidden state (`n_embd` floats) beside the
    /// token. `false`: refused.
    pub fn push(&mut self, row: BatchRow, hidden: Option<&[f32]>) -> bool {
        let raw = self.raw.as_ptr();
        let (Ok(seq), Some(Ok(token)), Ok(pos)) =
            (i32::try_from(row.seq.0), row.item.token().map(|token| i32::try_from(token.0)), i32::try_from(row.pos.0))
        else {
            return false;
        };
        // SAFETY: the batch is alive. Indices passed on are those just handed out by add_token; the
        // position is read during the call (one number for a row with a token, also with M-RoPE),
        // and the hidden state is copied during the call, its length passed with it. Growing its
        // vectors is all that could throw, and an allocation of so few bytes fails nowhere that
        // Rust's own would not.
        unsafe {
            let index = ffi::llama_batch_ext_add_token(raw, seq, token);
            let embd = |hidden: &[f32]| ffi::llama_embd { data: hidden.as_ptr(), n_rows: 1, n_embd: hidden.len() };
            // Not `llama_batch_ext_set_embd_state`, which is made for this and does nothing.
            index >= 0
                && hidden.is_none_or(|hidden| ffi::llama_batch_ext_set_embd_token(raw, index, embd(hidden)))
                && ffi::llama_batch_ext_set_pos(raw, index, &raw const pos)
                && ffi::llama_batch_ext_set_output_logits(raw, index, row.output)
        }
    }

    /// Adds a row of an image. llama.cpp takes it beside rows of tokens, in all architectures that
    /// are served with images.
    fn push_image(&mut self, row: BatchRow, image: ImageRow, floats: &[f32]) -> bool {
        let raw = self.raw.as_ptr();
        let (y, x) = image.place();
        let number = |n: Option<u32>| n.and_then(|n| i32::try_from(n).ok());
        let (t, y, x) = (Some(row.pos.0), row.pos.0.checked_add(y), row.pos.0.checked_add(x));
        let (Ok(seq), Some(t), Some(y), Some(x)) = (i32::try_from(row.seq.0), number(t), number(y), number(x)) else {
            return false;
        };
        // Time, row, column and a fourth that is not used, as models with positions of several
        // dimensions have them.
        let pos = [t, y, x, 0];
        let embd = ffi::llama_embd { data: floats.as_ptr(), n_rows: 1, n_embd: floats.len() };
        // SAFETY: as in `push`; the floats are copied during the call, within their length, which
        // is refused where it is not the model's. Of the positions four are read, or one where the
        // model has one.
        unsafe {
            let index = ffi::llama_batch_ext_add_embd(raw, seq, embd);
            index >= 0
                && ffi::llama_batch_ext_set_pos(raw, index, pos.as_ptr())
                && ffi::llama_batch_ext_set_output_logits(raw, index, row.output)
        }
    }

    pub(super) fn raw(&mut self) -> *mut ffi::llama_batch_ext {
        self.raw.as_ptr()
    }
}
