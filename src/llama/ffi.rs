//! The raw edge: the generated bindings, the functions of `guard.cpp` and `vision.cpp`, and the
//! dynamic loader.
//!
//! Nothing is wrapped here. Which calls may be made directly: those that cannot throw (getters, the
//! memory's sequence operations, the batch, frees) or catch for themselves
//! (`llama_get_logits_ith`). All others go through the guard.

#![expect(unsafe_code, reason = "foreign declarations")]

use std::ffi::{c_char, c_int, c_void};

pub use llama_cpp_sys_2::*;

/// `std::bad_alloc` was caught.
pub const GUARD_OUT_OF_MEMORY: i32 = -100;
/// Another C++ exception was caught.
pub const GUARD_EXCEPTION: i32 = -101;

/// One row of `plateau_memory_breakdown`. `name` lives as long as the backend's buffer type, which
/// is for ever.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemoryUseRow {
    pub name: *const c_char,
    pub host: bool,
    pub model: usize,
    pub context: usize,
    pub compute: usize,
}

unsafe extern "C" {
    pub fn plateau_process(ctx: *mut llama_context, batch: *mut llama_batch_ext) -> i32;
    pub fn plateau_tokenize(
        vocab: *const llama_vocab,
        text: *const c_char,
        n_text: i32,
        tokens: *mut llama_token,
        n_tokens: i32,
        n_out: *mut i32,
    ) -> i32;
    pub fn plateau_token_to_piece(
        vocab: *const llama_vocab,
        token: llama_token,
        buffer: *mut c_char,
        n_buffer: i32,
        n_out: *mut i32,
    ) -> i32;
    pub fn plateau_backend_load(path: *const c_char, out: *mut ggml_backend_reg_t) -> i32;
    pub fn plateau_model_load(
        path: *const c_char,
        params: *const llama_model_params,
        out: *mut *mut llama_model,
    ) -> i32;
    pub fn plateau_context_new(
        model: *mut llama_model,
        params: *const llama_context_params,
        out: *mut *mut llama_context,
    ) -> i32;
    pub fn plateau_export_hidden(ctx: *mut llama_context);
    pub fn plateau_hidden_row(ctx: *mut llama_context, row: i32) -> *const f32;
    pub fn plateau_memory_breakdown(
        ctx: *const llama_context,
        rows: *mut MemoryUseRow,
        n_max: usize,
        n_out: *mut usize,
    ) -> i32;

    pub fn plateau_vision_encoder_new(
        path: *const c_char,
        model: *const llama_model,
        params: *const mtmd_context_params,
        out: *mut *mut mtmd_context,
    ) -> i32;
    pub fn plateau_vision_encoder_free(ctx: *mut mtmd_context);
    pub fn plateau_vision_encoder_encode(
        ctx: *mut mtmd_context,
        width: u32,
        height: u32,
        rgb: *const u8,
        grid: *mut u32,
        dst: *mut f32,
        n_floats: usize,
    ) -> i32;

    pub fn plateau_host_memory_new(size: usize, on_gpu: bool, out: *mut ggml_backend_buffer_t) -> i32;
    pub fn plateau_state_known(ctx: *mut llama_context, recurrent_too: bool) -> bool;
    pub fn plateau_recurrent_save(
        ctx: *mut llama_context,
        seq: i32,
        dst: *mut u8,
        size: usize,
        n_out: *mut usize,
    ) -> i32;
    pub fn plateau_recurrent_restore(ctx: *mut llama_context, seq: i32, src: *const u8, size: usize) -> i32;
    pub fn plateau_rows_save(
        ctx: *mut llama_context,
        seq: i32,
        p0: i32,
        p1: i32,
        dst: *mut u8,
        size: usize,
        n_out: *mut usize,
    ) -> i32;
    pub fn plateau_rows_restore(
        ctx: *mut llama_context,
        seq: i32,
        p0: i32,
        p1: i32,
        src: *const u8,
        size: usize,
    ) -> i32;
    pub fn plateau_rows_share(ctx: *mut llama_context, src: i32, dst: i32, p1: i32) -> i32;
    pub fn plateau_rows_remove(ctx: *mut llama_context, seq: i32, p0: i32) -> i32;
    pub fn plateau_state_extent(ctx: *mut llama_context, seq: i32, out: *mut i32) -> i32;

    pub fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    pub fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    pub fn dlclose(handle: *mut c_void) -> c_int;
    pub fn dlerror() -> *mut c_char;
    pub fn _exit(status: c_int) -> !;
}

/// `dlopen`: resolve everything now, keep the symbols to the library itself.
pub const RTLD_NOW: c_int = 2;

/// What a guard's code means, for messages.
pub fn guard_reason(code: i32) -> &'static str {
    match code {
        GUARD_OUT_OF_MEMORY => "out of memory",
        GUARD_EXCEPTION => "an internal exception",
        _ => "an unknown failure",
    }
}
