//! Configuration: what was written (`file`), what will run (`profile`), whether it fits (`plan`).
//!
//! Layers, weakest first: built-in defaults, profile file, environment, flags (`resolve`), all over one table of settings
//! (`settings`). Environment variables are read here and nowhere else (`env`). Knows no model file and no device: `plan` is
//! told their sizes.

pub mod builtin;
mod check;
pub mod env;
pub mod error;
pub mod file;
mod images;
pub mod plan;
pub mod profile;
pub mod reference;
pub mod resolve;
pub mod settings;
pub mod value;

pub use error::{ConfigError, Origin};
pub use file::ProfileFile;
pub use images::ImagesConfig;
pub use profile::{
    CacheType, ChatConfig, EngineConfig, FlashAttention, GenerationDefaults, LimitsConfig, ModelConfig, Profile,
    Projector, SamplingDefaults, ServerConfig, SpeculativeConfig, ThinkingConfig, VisionConfig, VisionDevice,
};
pub use resolve::{Layers, Resolved, resolve};
pub use settings::{SETTINGS, Setting};
pub use value::{Kind, Value};
