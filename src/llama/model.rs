//! A loaded model: weights and vocabulary, shared by the context that computes and the tokenizer
//! that encodes.
//!
//! Files pass the Rust parser first, all parts of a split file; nothing malformed reaches
//! llama.cpp. What is computed with the weights is the context's affair.

#![expect(unsafe_code, reason = "owns a llama_model")]

use std::ffi::{CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use super::error::LoadError;
use super::{backend, ffi, log};
use crate::config::ModelConfig;
use crate::gguf::{Gguf, ModelFacts, VocabFacts, embedded};
use crate::units::Token;

/// Weights and vocabulary. Never changed after it was loaded.
pub struct Model {
    raw: NonNull<ffi::llama_model>,
    facts: ModelFacts,
    vocab: VocabFacts,
}

// SAFETY: llama_model is only read after loading: contexts take it as const, the vocabulary
// functions used here are documented as thread-safe, and it is freed by whichever thread drops the
// last reference. llama_init_from_model may write one number of it (n_ctx_train, under YaRN);
// contexts are created on the engine thread alone, and nothing else reads that number.
unsafe impl Send for Model {}
// SAFETY: as above.
unsafe impl Sync for Model {}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: contexts hold an Arc of the model, so none is left; the pointer came from the
        // loader and is freed once.
        unsafe { ffi::llama_model_free(self.raw.as_ptr()) }
    }
}

impl Model {
    /// Loads the model that `config` names, or the embedded one, without its MTP head. `progress`
    /// gets 0..=1 and stops the load by `false`.
    pub fn load(config: &ModelConfig, progress: &mut dyn FnMut(f32) -> bool) -> Result<Arc<Model>, LoadError> {
        Model::load_parts(config, &mut |_| false, progress)
    }

    /// As `load`, with the MTP head where `mtp` wants it for this model.
    pub fn load_parts(
        config: &ModelConfig,
        mtp: &mut dyn FnMut(&ModelFacts) -> bool,
        progress: &mut dyn FnMut(f32) -> bool,
    ) -> Result<Arc<Model>, LoadError> {
        backend::start();
        let wishes = Wishes { config, mtp, progress };
        let Some(path) = &config.path else {
            // Kept until the loader has mapped or read it.
            let file = embedded::write()?;
            return load_file(file.path(), embedded::NAME, wishes);
        };
        load_file(path, &path.display().to_string(), wishes)
    }

    pub fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    pub fn vocab(&self) -> &VocabFacts {
        &self.vocab
    }

    /// Does the state of a sequence include recurrent layers.
    pub fn is_recurrent(&self) -> bool {
        // SAFETY: the model is alive.
        unsafe { ffi::llama_model_is_hybrid(self.raw.as_ptr()) || ffi::llama_model_is_recurrent(self.raw.as_ptr()) }
    }

    /// For the context. The pointer must not outlive the model and must not be used to change it.
    pub(super) fn raw(&self) -> *mut ffi::llama_model {
        self.raw.as_ptr()
    }

    pub(super) fn raw_vocab(&self) -> *const ffi::llama_vocab {
        // SAFETY: the model is alive; the vocabulary is a part of it.
        unsafe { ffi::llama_model_get_vocab(self.raw.as_ptr()) }
    }
}

/// What is to be loaded, and who hears of it.
struct Wishes<'a> {
    config: &'a ModelConfig,
    mtp: &'a mut dyn FnMut(&ModelFacts) -> bool,
    progress: &'a mut dyn FnMut(f32) -> bool,
}

fn load_file(path: &Path, name: &str, wishes: Wishes<'_>) -> Result<Arc<Model>, LoadError> {
    let Wishes { config, mtp, progress } = wishes;
    let refused = |source| LoadError::Gguf { model: name.to_owned(), source };
    let gguf = Gguf::open(path).map_err(refused)?;
    let facts = ModelFacts::from_gguf(&gguf).map_err(refused)?;
    let mut vocab = VocabFacts::from_gguf(&gguf).map_err(refused)?;
    drop(gguf);

    let mut params = model_params(config);
    params.load_mtp = mtp(&facts);
    let raw = load_native(path, name, config, params, progress)?;
    // SAFETY: the model is alive, and so is its vocabulary.
    let (raw_vocab, n_vocab) = unsafe {
        let raw_vocab = ffi::llama_model_get_vocab(raw.as_ptr());
        (raw_vocab, ffi::llama_vocab_n_tokens(raw_vocab))
    };
    // llama.cpp knows more texts that end a generation than the file says; its list is the one that
    // counts. SAFETY: every id is in 0..n_vocab.
    vocab.eog = (0..n_vocab).filter(|id| unsafe { ffi::llama_vocab_is_eog(raw_vocab, *id) }).map(token).collect();
    let model = Model { raw, facts, vocab };
    if n_vocab as usize != model.vocab.tokens.len() {
        let reason = format!("it has {} tokens, llama.cpp counts {n_vocab}", model.vocab.tokens.len());
        return Err(LoadError::Model { model: name.to_owned(), tried: tried(config), reason });
    }
    Ok(Arc::new(model))
}

fn token(id: ffi::llama_token) -> Token {
    Token(id.unsigned_abs())
}

/// The settings that a failure may be due to.
fn tried(config: &ModelConfig) -> String {
    let layers = config.gpu_layers.map_or("all".to_owned(), |layers| layers.to_string());
    format!("gpu_layers {layers}, mmap {}, mlock {}", config.mmap, config.mlock)
}

fn load_native(
    path: &Path,
    name: &str,
    config: &ModelConfig,
    mut params: ffi::llama_model_params,
    progress: &mut dyn FnMut(f32) -> bool,
) -> Result<NonNull<ffi::llama_model>, LoadError> {
    let failed = |reason: String| LoadError::Model { model: name.to_owned(), tried: tried(config), reason };
    let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
    let mut watch = Watch { progress, cancelled: false };
    // With no layer on a GPU, the GPU is left alone altogether: an empty list instead of "all
    // devices".
    let mut no_devices = [std::ptr::null_mut()];
    if config.gpu_layers == Some(0) {
        params.devices = no_devices.as_mut_ptr();
    }
    params.progress_callback = Some(on_progress);
    params.progress_callback_user_data = (&raw mut watch).cast::<c_void>();
    let mut model = std::ptr::null_mut();
    // SAFETY: path, parameters, device list, watch and result all outlive the call, and the loader
    // keeps none of them: the callback is used while loading only.
    let (code, reasons) =
        log::reasons(|| unsafe { ffi::plateau_model_load(c_path.as_ptr(), &raw const params, &raw mut model) });
    match NonNull::new(model) {
        Some(model) => Ok(model),
        None if watch.cancelled => Err(LoadError::Cancelled),
        None if code != 0 => Err(failed(ffi::guard_reason(code).to_owned())),
        None => Err(failed(reasons)),
    }
}

fn model_params(config: &ModelConfig) -> ffi::llama_model_params {
    // SAFETY: returns a struct by value.
    let mut params = unsafe { ffi::llama_model_default_params() };
    // The memory plan counts the first GPU alone, so the model goes there and is not spread over
    // all GPUs.
    params.split_mode = ffi::LLAMA_SPLIT_MODE_NONE;
    params.main_gpu = 0;
    params.n_gpu_layers = config.gpu_layers.map_or(-1, |layers| i32::try_from(layers).unwrap_or(i32::MAX));
    params.load_mode = match (config.mmap, config.mlock) {
        (true, true) => ffi::LLAMA_LOAD_MODE_MMAP_MLOCK,
        (true, false) => ffi::LLAMA_LOAD_MODE_MMAP,
        (false, true) => ffi::LLAMA_LOAD_MODE_MLOCK,
        (false, false) => ffi::LLAMA_LOAD_MODE_NONE,
    };
    params.lazy_mode = ffi::LLAMA_LAZY_MODE_OFF;
    params
}

struct Watch<'a> {
    progress: &'a mut dyn FnMut(f32) -> bool,
    cancelled: bool,
}

unsafe extern "C" fn on_progress(done: f32, data: *mut c_void) -> bool {
    // SAFETY: `data` is the Watch of `load_native`, which waits for the loader and touches it only
    // afterwards; the loader reports from the thread that called it.
    let watch = unsafe { &mut *data.cast::<Watch<'_>>() };
    // A panic must not travel through C++; it cancels the load.
    let go_on = catch_unwind(AssertUnwindSafe(|| (watch.progress)(done))).unwrap_or(false);
    watch.cancelled |= !go_on;
    go_on
}
