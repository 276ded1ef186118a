//! Why a model could not be brought to life: what was tried, and what llama.cpp said.

use crate::gguf::GgufError;

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The Rust parser refused the file; C++ never saw it.
    #[error("cannot load {model}: {source}")]
    Gguf { model: String, source: GgufError },
    #[error("cannot write the embedded model to a temporary file: {0}")]
    Temporary(#[from] std::io::Error),
    #[error("cannot load {model} ({tried}): {reason}")]
    Model { model: String, tried: String, reason: String },
    /// Usually memory: the KV cache or the compute buffers do not fit.
    #[error("cannot create a context ({tried}): {reason}")]
    Context { tried: String, reason: String },
    #[error("loading was cancelled")]
    Cancelled,
}
