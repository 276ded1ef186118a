//! Configuration: what was written (`file`), what will run (`profile`), whether it fits (`plan`).
//!
//! Environment variables are read here and nowhere else.

pub mod profile;

pub use profile::{
    CacheType, ChatConfig, EngineConfig, FlashAttention, GenerationDefaults, LimitsConfig, ModelConfig, Profile,
    SamplingDefaults, ServerConfig,
};
