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

/// What llama.cpp (and `model`) say of a file that does not hold the model it claims to hold: parts
/// of messages.
const FAULTS_OF_THE_FILE: [&str; 16] = [
    "has wrong shape",
    "missing tensor",
    "wrong number of tensors",
    "too many tensors",
    "has invalid data",
    "with invalid data",
    "invalid model",
    "corrupted model",
    "error loading model hyperparameters",
    "error loading model vocabulary",
    "model architecture",
    "key not found in model",
    "has wrong type",
    "wrong array",
    "llama.cpp counts",
    "takes no such images",
];

impl LoadError {
    /// The file is to blame, not the machine or the settings.
    pub fn blames_file(&self) -> bool {
        match self {
            LoadError::Gguf { source, .. } => !matches!(source, GgufError::Io { .. }),
            LoadError::Model { reason, .. } => {
                let starved = ["bad_alloc", "allocate", "out of memory"].iter().any(|text| reason.contains(text));
                !starved && FAULTS_OF_THE_FILE.iter().any(|text| reason.contains(text))
            }
            LoadError::Temporary(_) | LoadError::Context { .. } | LoadError::Cancelled => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_of_the_wrong_shape_is_the_files_fault_and_a_lack_of_memory_is_not() {
        let model = |reason: &str| LoadError::Model {
            model: "m.gguf".to_owned(),
            tried: "gpu_layers all".to_owned(),
            reason: reason.to_owned(),
        };
        for reason in [
            "llama_model_load: error loading model: check_tensor_dims: tensor 'a' has wrong shape; expected 1, got 2",
            "llama_model_load: error loading model: missing tensor 'blk.0.attn_norm.weight'",
            "llama_model_load: error loading model: error loading model hyperparameters: key not found in model: x",
        ] {
            assert!(model(reason).blames_file(), "{reason}");
        }
        for reason in [
            "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
            "llama_model_load: error loading model: error loading model vocabulary: std::bad_alloc",
            "llama_model_load: error loading model: read error: Input/output error",
            "out of memory",
        ] {
            assert!(!model(reason).blames_file(), "{reason}");
        }
    }
}
