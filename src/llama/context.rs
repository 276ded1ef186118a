//! A context: KV cache, recurrent states, compute buffers and the threads that compute on the CPU.
//!
//! One context serves all sequences with one unified KV cache: any sequence may use all that the
//! others leave free.

#![expect(unsafe_code, reason = "calls the functions of a llama_context")]

use std::ffi::CStr;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use super::batch::Batch;
use super::error::LoadError;
use super::handle::{Handle, Threads};
use super::memory::{Bookkeeping, Memory};
use super::model::Model;
use super::{ffi, log};
use crate::config::{CacheType, EngineConfig, FlashAttention};
use crate::units::Bytes;

/// Rows that the MTP head takes at once: it is one layer, so that more would only make its compute
/// buffer larger.
const MTP_UBATCH_TOKENS: u32 = 256;

/// Most buffer types that a context spreads over.
const MAX_BUFFER_TYPES: usize = 32;

/// What a profile does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextOptions {
    /// Rows with logits that one sequence may ask for in a step: 1, or 1 and the drafted tokens.
    pub outputs_per_sequence: u32,
    /// Tokens by which a recurrent state can be rolled back after a step. Each costs one more state
    /// per sequence.
    pub rollback_tokens: u32,
    /// With the MTP head, whose KV cache has these types.
    pub mtp: Option<MtpCache>,
}

/// Element types of the MTP head's KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MtpCache {
    pub k: CacheType,
    pub v: CacheType,
}

impl Default for ContextOptions {
    fn default() -> ContextOptions {
        ContextOptions { outputs_per_sequence: 1, rollback_tokens: 0, mtp: None }
    }
}

/// Memory of one kind that model and context take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// ggml's name of the buffer type: "CPU", "CUDA0", "CPU_Mapped".
    pub buffer: String,
    /// Is it the host's memory.
    pub host: bool,
    pub model: Bytes,
    /// KV cache and recurrent states.
    pub context: Bytes,
    pub compute: Bytes,
}

/// Owned by the engine thread.
pub struct Context {
    handle: Rc<Handle>,
    /// Has it recurrent layers.
    recurrent: bool,
}

/// A context with what works on it. In which order they are dropped does not matter: each holds
/// what it uses.
pub(super) struct Parts {
    pub context: Context,
    pub batch: Batch,
    pub memory: Memory,
}

impl Context {
    pub(super) fn open(model: Arc<Model>, config: &EngineConfig, options: ContextOptions) -> Result<Parts, LoadError> {
        let tried = tried(config, options);
        if options.rollback_tokens + 1 >= config.ubatch_tokens {
            // The splitter asserts this.
            let reason = "ubatch_tokens must be more than the rollback tokens and one".to_owned();
            return Err(LoadError::Context { tried, reason });
        }
        let params = context_params(config, options);
        let raw = create(&model, &params, tried)?;
        let threads = Threads::new(params.n_threads.max(params.n_threads_batch));
        // SAFETY: just made over this model, and owned by nobody else.
        let context = Context::of(unsafe { Handle::new(raw, model, threads, None) });
        if options.mtp.is_some() {
            context.export_hidden();
        }
        context.with_parts("batch and memory", "the model has no memory: it does not generate")
    }

    /// The context of the MTP head over the same model: its own KV cache of one layer for as many
    /// tokens as `trunk` holds, one output a sequence. It computes with the trunk's threads.
    pub(super) fn open_mtp(trunk: &Context, config: &EngineConfig, cache: MtpCache) -> Result<Parts, LoadError> {
        let tried = format!("MTP head, cache {:?}/{:?}", cache.k, cache.v);
        let mut params = context_params(config, ContextOptions::default());
        params.ctx_type = ffi::LLAMA_CONTEXT_TYPE_MTP;
        params.ctx_other = trunk.handle.raw();
        params.n_ctx = u32::try_from(trunk.n_ctx()).unwrap_or(u32::MAX);
        params.n_ubatch = config.ubatch_tokens.min(MTP_UBATCH_TOKENS);
        params.n_batch = params.n_ubatch;
        params.type_k = cache_type(cache.k);
        params.type_v = cache_type(cache.v);
        let model = Arc::clone(trunk.model());
        let raw = create(&model, &params, tried)?;
        let (threads, trunk) = (trunk.handle.threads(), Rc::clone(&trunk.handle));
        // SAFETY: just made over this model and beside this trunk, and owned by nobody else.
        let context = Context::of(unsafe { Handle::new(raw, model, threads, Some(trunk)) });
        context.export_hidden();
        let context = Context { recurrent: false, ..context };
        context.with_parts("batch and memory of the MTP head", "out of memory")
    }

    fn of(handle: Rc<Handle>) -> Context {
        let recurrent = handle.model().is_recurrent();
        Context { handle, recurrent }
    }

    /// The head needs the hidden state of every row, not only of those with logits.
    fn export_hidden(&self) {
        // SAFETY: the context is alive.
        unsafe { ffi::plateau_export_hidden(self.handle.raw()) }
    }

    fn with_parts(self, tried: &str, reason: &str) -> Result<Parts, LoadError> {
        let snapshots = self.recurrent.then(|| self.rollback_tokens());
        let tracker = Bookkeeping::new(self.n_seq_max(), snapshots);
        let parts = Memory::new(Rc::clone(&self.handle), tracker).zip(Batch::new(Rc::clone(&self.handle)));
        let Some((memory, batch)) = parts else {
            return Err(LoadError::Context { tried: tried.to_owned(), reason: reason.to_owned() });
        };
        Ok(Parts { context: self, batch, memory })
    }

    pub fn model(&self) -> &Arc<Model> {
        self.handle.model()
    }

    pub fn n_ctx(&self) -> usize {
        // SAFETY: the context is alive (so for the next three).
        unsafe { ffi::llama_n_ctx(self.handle.raw()) as usize }
    }

    pub fn n_batch(&self) -> usize {
        // SAFETY: as above.
        unsafe { ffi::llama_n_batch(self.handle.raw()) as usize }
    }

    pub fn n_ubatch(&self) -> usize {
        // SAFETY: as above.
        unsafe { ffi::llama_n_ubatch(self.handle.raw()) as usize }
    }

    pub fn n_seq_max(&self) -> usize {
        // SAFETY: as above.
        unsafe { ffi::llama_n_seq_max(self.handle.raw()) as usize }
    }

    /// Tokens by which a recurrent state can be rolled back: what was asked for, or 0 where the
    /// model cannot.
    pub fn rollback_tokens(&self) -> u32 {
        // SAFETY: as above.
        unsafe { ffi::llama_n_rs_seq(self.handle.raw()) }
    }

    /// Computes the batch. llama.cpp's code, or the guard's; -1 for a batch of another context.
    pub(super) fn process(&mut self, batch: &mut Batch) -> i32 {
        if !batch.is_of(&self.handle) {
            return -1;
        }
        // SAFETY: both are alive, and the batch was made for this context.
        unsafe { ffi::plateau_process(self.handle.raw(), batch.raw()) }
    }

    /// Returns when the last batch is computed and its outputs are in place.
    pub(super) fn wait(&mut self) {
        // SAFETY: the context is alive; what fails on the device ends the process there, nothing is
        // thrown.
        unsafe { ffi::llama_synchronize(self.handle.raw()) }
    }

    /// The logits of row `row` of the last batch. `None` for a row without.
    pub(super) fn logits(&mut self, row: usize) -> Option<&[f32]> {
        let n_vocab = self.handle.model().vocab().tokens.len();
        let row = i32::try_from(row).ok()?;
        // SAFETY: the context is alive; the call waits for the computation, catches its own
        // exceptions and returns null or n_vocab floats that stay in place until the next batch,
        // which needs `&mut self`.
        unsafe {
            let logits = ffi::llama_get_logits_ith(self.handle.raw(), row);
            (!logits.is_null()).then(|| std::slice::from_raw_parts(logits, n_vocab))
        }
    }

    /// Are weights on a device of its own.
    pub(super) fn is_on_device(&self) -> bool {
        self.memory_use().iter().any(|row| !row.host && row.model > Bytes(0))
    }

    /// The hidden state behind row `row` of the last batch, `n_embd` floats: what the MTP head goes
    /// on from. `None` where none is exported.
    pub(super) fn hidden(&mut self, row: usize) -> Option<&[f32]> {
        let n_embd = self.handle.model().facts().n_embd as usize;
        let row = i32::try_from(row).ok()?;
        // SAFETY: as for the logits.
        unsafe {
            let hidden = ffi::plateau_hidden_row(self.handle.raw(), row);
            (!hidden.is_null()).then(|| std::slice::from_raw_parts(hidden, n_embd))
        }
    }

    /// For the functions of `state`.
    pub(super) fn raw(&mut self) -> *mut ffi::llama_context {
        self.handle.raw()
    }

    /// Has it recurrent layers.
    pub(super) fn is_recurrent(&self) -> bool {
        self.recurrent
    }

    /// What model and context take now, by kind of memory.
    pub fn memory_use(&self) -> Vec<MemoryUse> {
        let empty = ffi::MemoryUseRow { name: std::ptr::null(), host: false, model: 0, context: 0, compute: 0 };
        let mut rows = [empty; MAX_BUFFER_TYPES];
        let mut n = 0;
        // SAFETY: the context is alive, and the rows are passed with their number.
        let code =
            unsafe { ffi::plateau_memory_breakdown(self.handle.raw(), rows.as_mut_ptr(), rows.len(), &raw mut n) };
        if code != 0 {
            return Vec::new();
        }
        let buffer = |row: &ffi::MemoryUseRow| MemoryUse {
            // SAFETY: buffer types are never freed, and their names are NUL-terminated.
            buffer: unsafe { CStr::from_ptr(row.name) }.to_string_lossy().into_owned(),
            host: row.host,
            model: Bytes(row.model as u64),
            context: Bytes(row.context as u64),
            compute: Bytes(row.compute as u64),
        };
        rows.iter().take(n).map(buffer).collect()
    }
}

fn create(
    model: &Model,
    params: &ffi::llama_context_params,
    tried: String,
) -> Result<NonNull<ffi::llama_context>, LoadError> {
    let mut raw = std::ptr::null_mut();
    // SAFETY: the model is alive and held by the context from here on; the parameters are copied
    // during the call.
    let (code, reasons) =
        log::reasons(|| unsafe { ffi::plateau_context_new(model.raw(), std::ptr::from_ref(params), &raw mut raw) });
    let reason = if code == 0 { reasons } else { ffi::guard_reason(code).to_owned() };
    NonNull::new(raw).ok_or(LoadError::Context { tried, reason })
}

fn tried(config: &EngineConfig, options: ContextOptions) -> String {
    let tokens = config.ctx_tokens.map_or("training length".to_owned(), |tokens| tokens.to_string());
    format!(
        "ctx_tokens {tokens}, parallel {}, ubatch_tokens {}, cache {:?}/{:?}, rollback {}",
        config.parallel, config.ubatch_tokens, config.cache_type_k, config.cache_type_v, options.rollback_tokens
    )
}

fn context_params(config: &EngineConfig, options: ContextOptions) -> ffi::llama_context_params {
    // SAFETY: returns a struct by value.
    let mut params = unsafe { ffi::llama_context_default_params() };
    params.n_ctx = config.ctx_tokens.unwrap_or(0);
    params.n_batch = config.batch_tokens;
    params.n_ubatch = config.ubatch_tokens;
    params.n_seq_max = config.parallel;
    params.n_rs_seq = options.rollback_tokens;
    params.n_outputs_max = config.parallel.saturating_mul(options.outputs_per_sequence);
    params.n_outputs_max_per_seq = options.outputs_per_sequence;
    params.n_threads = thread_count(config.threads);
    params.n_threads_batch = thread_count(config.threads_batch.or(config.threads));
    params.flash_attn_type = match config.flash_attention {
        FlashAttention::Auto => ffi::LLAMA_FLASH_ATTN_TYPE_AUTO,
        FlashAttention::On => ffi::LLAMA_FLASH_ATTN_TYPE_ENABLED,
        FlashAttention::Off => ffi::LLAMA_FLASH_ATTN_TYPE_DISABLED,
    };
    params.type_k = cache_type(config.cache_type_k);
    params.type_v = cache_type(config.cache_type_v);
    params.kv_unified = true;
    // Layers with a sliding window keep their whole length, so that a sequence can be cut anywhere.
    params.swa_full = true;
    params.no_perf = true;
    params
}

fn cache_type(name: CacheType) -> ffi::ggml_type {
    match name {
        CacheType::F32 => ffi::GGML_TYPE_F32,
        CacheType::F16 => ffi::GGML_TYPE_F16,
        CacheType::Bf16 => ffi::GGML_TYPE_BF16,
        CacheType::Q8_0 => ffi::GGML_TYPE_Q8_0,
        CacheType::Q5_1 => ffi::GGML_TYPE_Q5_1,
        CacheType::Q5_0 => ffi::GGML_TYPE_Q5_0,
        CacheType::Q4_1 => ffi::GGML_TYPE_Q4_1,
        CacheType::Q4_0 => ffi::GGML_TYPE_Q4_0,
    }
}

/// Threads as llama.cpp is told them; `None`: one a physical core.
pub(super) fn thread_count(threads: Option<u32>) -> i32 {
    let threads = threads.unwrap_or_else(physical_cores);
    i32::try_from(threads.max(1)).unwrap_or(i32::MAX)
}

/// Two threads on one core only get in each other's way, and a container may grant less than the
/// machine has.
fn physical_cores() -> u32 {
    let granted = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cores = sysinfo::System::physical_core_count().unwrap_or(granted);
    u32::try_from(cores.min(granted)).unwrap_or(1)
}
