//! The rows of a step in llama.cpp's form, one buffer that is used again for every step.

#![expect(unsafe_code, reason = "owns a llama_batch_ext")]

use std::ptr::NonNull;

use super::ffi;
use crate::engine::BatchRow;

/// Holds up to the context's `n_batch` rows.
pub struct Batch {
    raw: NonNull<ffi::llama_batch_ext>,
}

impl Drop for Batch {
    fn drop(&mut self) {
        // SAFETY: made by llama_batch_ext_init and freed once. It points to the context's memory but does not touch it.
        unsafe { ffi::llama_batch_ext_free(self.raw.as_ptr()) }
    }
}

impl Batch {
    /// `None` where memory ran out.
    ///
    /// # Safety
    /// `context` is alive, and stays so while the batch is used.
    pub(super) unsafe fn new(context: *mut ffi::llama_context) -> Option<Batch> {
        // SAFETY: the caller vouches for the context.
        NonNull::new(unsafe { ffi::llama_batch_ext_init(context) }).map(|raw| Batch { raw })
    }

    /// Replaces the contents. `false`: a row was refused (full, unknown token or sequence).
    pub fn fill(&mut self, rows: &[BatchRow]) -> bool {
        let raw = self.raw.as_ptr();
        // SAFETY: the batch is alive. Indices passed on are those just handed out by add_token; the position is read during
        // the call (one number for a token row, also with M-RoPE). Growing its vectors is all that could throw, and an
        // allocation of so few bytes fails nowhere that Rust's own would not.
        unsafe {
            ffi::llama_batch_ext_clear(raw);
            rows.iter().all(|row| {
                let (Ok(seq), Ok(token), Ok(pos)) =
                    (i32::try_from(row.seq.0), i32::try_from(row.token.0), i32::try_from(row.pos.0))
                else {
                    return false;
                };
                let index = ffi::llama_batch_ext_add_token(raw, seq, token);
                index >= 0
                    && ffi::llama_batch_ext_set_pos(raw, index, &raw const pos)
                    && ffi::llama_batch_ext_set_output_logits(raw, index, row.output)
            })
        }
    }

    pub(super) fn raw(&mut self) -> *mut ffi::llama_batch_ext {
        self.raw.as_ptr()
    }
}
