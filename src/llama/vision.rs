//! The model's vision encoder: images to embeddings through mtmd's C API (`vision.cpp`).
//!
//! The projector file passes the Rust reader first. Pixels come decoded and bounded; mtmd's own
//! reading of images, its markers and its batches are deliberately not used. Encoding is on the
//! engine thread, one image at a time.

#![expect(unsafe_code, reason = "owns an mtmd_context")]

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use super::error::LoadError;
use super::model::Model;
use super::{backend, ffi, log};
use crate::config::{Profile, Projector, VisionConfig, VisionDevice};
use crate::engine::{Embedding, Image, RunnerError, RunnerErrorKind, VisionFacts};
use crate::gguf::{Gguf, ProjectorFacts, embedded};

const ENCODE: &str = "encoding an image";

/// A projector, and its encoder while it is loaded.
pub struct Vision {
    vision_encoder: Option<Eyes>,
    facts: VisionFacts,
    source: Source,
    config: VisionConfig,
    n_threads: i32,
    model: Arc<Model>,
}

/// Where the encoder is loaded from, each time anew.
struct Source {
    path: PathBuf,
    name: String,
    /// The embedded projector's copy.
    _copy: Option<embedded::EmbeddedFile>,
}

impl Source {
    fn open(projector: &Projector) -> Result<Option<Source>, LoadError> {
        match projector {
            Projector::Auto | Projector::Off => Ok(None),
            Projector::File(path) => {
                Ok(Some(Source { path: path.clone(), name: path.display().to_string(), _copy: None }))
            }
            Projector::Embedded => {
                let copy = embedded::write_projector()?;
                let path = copy.path().to_owned();
                Ok(Some(Source { path, name: embedded::PROJECTOR_NAME.to_owned(), _copy: Some(copy) }))
            }
        }
    }
}

impl Vision {
    /// The vision encoder that the profile gives the model; `None`: it gives none, and nothing of mtmd is
    /// touched. The encoder is loaded once in any case, so that one that cannot be loaded is found
    /// out at the start.
    pub fn load(profile: &Profile, model: &Arc<Model>) -> Result<Option<Vision>, LoadError> {
        let Some(source) = Source::open(&profile.model.projector())? else { return Ok(None) };
        let refused = |error| LoadError::Gguf { model: source.name.clone(), source: error };
        let facts = Gguf::open(&source.path)
            .and_then(|gguf| ProjectorFacts::from_gguf(&gguf))
            .and_then(|facts| facts.check_width(model.facts().n_embd).map(|()| facts))
            .map_err(refused)?;
        let (min_tokens, max_tokens) = profile.vision.bounds(facts.min_tokens, facts.max_tokens);
        let threads = profile.engine.threads_batch.or(profile.engine.threads);
        let mut vision = Vision {
            vision_encoder: None,
            facts: VisionFacts { token_px: facts.token_px, min_tokens, max_tokens },
            source,
            config: profile.vision.clone(),
            n_threads: super::context::thread_count(threads),
            model: Arc::clone(model),
        };
        let vision_encoder = vision.open_vision_encoder()?;
        vision.vision_encoder = profile.vision.keep_loaded.then_some(vision_encoder);
        Ok(Some(vision))
    }

    pub fn facts(&self) -> &VisionFacts {
        &self.facts
    }

    fn open_vision_encoder(&self) -> Result<Eyes, LoadError> {
        let on_gpu = self.config.device == VisionDevice::Gpu;
        // SAFETY: returns a struct by value.
        let mut params = unsafe { ffi::mtmd_context_params_default() };
        params.use_gpu = on_gpu;
        params.print_timings = false;
        params.n_threads = self.n_threads;
        // Of a size that may never come, and seconds on a CPU.
        params.warmup = false;
        params.image_min_tokens = i32::try_from(self.facts.min_tokens).unwrap_or(i32::MAX);
        params.image_max_tokens = i32::try_from(self.facts.max_tokens).unwrap_or(i32::MAX);
        Eyes::open(&self.source.path, &self.source.name, params, &self.model)
    }

    pub(super) fn encode(&mut self, image: &Image) -> Result<Embedding, RunnerError> {
        let vision_encoder = match self.vision_encoder.take() {
            Some(vision_encoder) => vision_encoder,
            None => self.open_vision_encoder().map_err(|error| {
                tracing::error!(%error, "the image encoder could not be loaded");
                RunnerError { call: "loading the image encoder", kind: RunnerErrorKind::OutOfMemory, code: None }
            })?,
        };
        let outcome = vision_encoder.encode(image);
        if self.config.keep_loaded {
            self.vision_encoder = Some(vision_encoder);
        }
        outcome
    }
}

/// A loaded encoder.
struct Eyes {
    raw: NonNull<ffi::mtmd_context>,
    n_embd: usize,
    /// Its vocabulary is used by the encoder.
    _model: Arc<Model>,
}

impl Drop for Eyes {
    fn drop(&mut self) {
        // SAFETY: it came from plateau_vision encoder_new and is freed once, before the model.
        unsafe { ffi::plateau_vision_encoder_free(self.raw.as_ptr()) }
    }
}

impl Eyes {
    fn open(path: &Path, name: &str, params: ffi::mtmd_context_params, model: &Arc<Model>) -> Result<Eyes, LoadError> {
        backend::start();
        log::install_mtmd();
        let tried =
            format!("image encoder, {}", if params.use_gpu { "on the GPU if there is one" } else { "on the CPU" });
        let failed = |reason: String| LoadError::Model { model: name.to_owned(), tried: tried.clone(), reason };
        let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|error| failed(error.to_string()))?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: path, parameters and result outlive the call; the model outlives the encoder,
        // which holds it.
        let (code, reasons) = log::reasons(|| unsafe {
            ffi::plateau_vision_encoder_new(c_path.as_ptr(), model.raw(), &raw const params, &raw mut raw)
        });
        let Some(raw) = NonNull::new(raw) else {
            return Err(failed(if code == 0 { reasons } else { ffi::guard_reason(code).to_owned() }));
        };
        let vision_encoder = Eyes { raw, n_embd: model.facts().n_embd as usize, _model: Arc::clone(model) };
        // SAFETY: encoder and model are alive.
        let (rows_fit, places, causal) = unsafe {
            let ctx = raw.as_ptr();
            let n_embd_inp = ffi::llama_model_n_embd_inp(model.raw());
            (
                usize::try_from(n_embd_inp) == Ok(vision_encoder.n_embd),
                ffi::mtmd_decode_use_mrope(ctx),
                !ffi::mtmd_decode_use_non_causal(ctx, std::ptr::null()),
            )
        };
        match (rows_fit, places, causal) {
            (true, true, true) => Ok(vision_encoder),
            _ => Err(failed("the model takes no such images".to_owned())),
        }
    }

    fn encode(&self, image: &Image) -> Result<Embedding, RunnerError> {
        let error = |kind, code| Err(RunnerError { call: ENCODE, kind, code: Some(code) });
        let n_bytes = 3 * u64::from(image.width_px) * u64::from(image.height_px);
        if n_bytes == 0 || n_bytes != image.rgb.len() as u64 {
            return error(RunnerErrorKind::InvalidBatch, -1);
        }
        let grid = image.grid;
        let mut floats = vec![0.0f32; grid.n_tokens() * self.n_embd];
        let mut size = [u32::from(grid.nx), u32::from(grid.ny)];
        // SAFETY: the encoder is alive; as many pixels are read as the size says, checked above;
        // two numbers of the grid are read and written; as many floats are written as are passed,
        // which the encoder has, since it makes rows of the model's width (checked when it was
        // loaded) for the promised grid, or writes none.
        let (code, reasons) = log::reasons(|| unsafe {
            ffi::plateau_vision_encoder_encode(
                self.raw.as_ptr(),
                image.width_px,
                image.height_px,
                image.rgb.as_ptr(),
                size.as_mut_ptr(),
                floats.as_mut_ptr(),
                floats.len(),
            )
        });
        match code {
            0 => Ok(Embedding { grid, n_embd: self.n_embd, floats }),
            OTHER_GRID => {
                tracing::error!(?image, nx = size[0], ny = size[1], "the encoder makes another grid of an image");
                error(RunnerErrorKind::InvalidBatch, code)
            }
            ffi::GUARD_OUT_OF_MEMORY => error(RunnerErrorKind::OutOfMemory, code),
            _ if reasons.contains("alloc") => error(RunnerErrorKind::OutOfMemory, code),
            _ => error(RunnerErrorKind::InvalidBatch, code),
        }
    }
}

/// The code of `vision.cpp`.
const OTHER_GRID: i32 = 2;

#[cfg(test)]
mod tests;
