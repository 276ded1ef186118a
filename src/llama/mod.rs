//! The only folder that names llama.cpp, and the only one with unsafe code: model, context, batch, memory, tokenizer,
//! backends, behind the seam `ModelRunner`.
//!
//! Deliberately absent: sampling, chat templates and grammars, which are ours and in Rust. No text of a request reaches a
//! C++ parser, except the tokenizer's where ours does not know the vocabulary.

pub mod backend;
pub mod batch;
pub mod context;
pub mod error;
mod ffi;
mod log;
pub mod memory;
pub mod model;
pub mod runner;
pub mod vocab;

use std::path::PathBuf;

pub use backend::{Device, DeviceKind, Plugin, PluginOutcome};
pub use context::{ContextOptions, MemoryUse};
pub use error::LoadError;
pub use model::Model;
pub use runner::LlamaRunner;

use crate::config::{EngineConfig, ModelConfig};
use crate::gguf::{ModelFacts, VocabFacts};
use crate::text::Tokenizer;

/// A model ready to run, and what is known of it.
pub struct Loaded {
    /// Stays on the engine thread.
    pub runner: LlamaRunner,
    /// Shared with the HTTP side.
    pub tokenizer: Tokenizer,
    pub facts: ModelFacts,
    pub vocab: VocabFacts,
    pub plugins: Vec<Plugin>,
    /// All devices, with the memory that is free after loading.
    pub devices: Vec<Device>,
    /// Memory that model and context take, by kind.
    pub memory: Vec<MemoryUse>,
}

/// Loads plug-ins, model and context. To be called on the engine thread. `progress` gets the share of the weights that is
/// loaded, and cancels by `false`.
pub fn load(
    model: &ModelConfig,
    engine: &EngineConfig,
    progress: &mut dyn FnMut(f32) -> bool,
) -> Result<Loaded, LoadError> {
    let plugins = start_backends(model);
    let model = Model::load(model, progress)?;
    let tokenizer = vocab::tokenizer(&model);
    let (facts, vocab) = (model.facts().clone(), model.vocab().clone());
    let runner = LlamaRunner::new(model, engine, ContextOptions::default())?;
    let memory = runner.memory_use();
    tracing::info!(
        target: "llama",
        "loaded {} with llama.cpp {}: tokenizer {}, {}{}",
        facts.name,
        backend::version(),
        tokenizer.codec_name(),
        describe(&memory),
        left_out(&facts)
    );
    Ok(Loaded { runner, tokenizer, facts, vocab, plugins, devices: backend::devices(), memory })
}

/// Starts the backends and loads the plug-ins of the folder that `model` names, or of the executable's. What `doctor` needs
/// before there is a model.
pub fn start_backends(model: &ModelConfig) -> Vec<Plugin> {
    backend::start();
    let folder: Option<PathBuf> = model.plugin_dir.clone().or_else(backend::default_plugin_folder);
    folder.map(|folder| backend::load_plugins(&folder)).unwrap_or_default()
}

/// The MTP block is in the file but not in memory: nothing drafts with it yet.
fn left_out(facts: &ModelFacts) -> String {
    match facts.tensor_bytes.mtp {
        crate::units::Bytes(0) => String::new(),
        bytes => format!("; MTP tensors not loaded ({bytes})"),
    }
}

fn describe(memory: &[MemoryUse]) -> String {
    let line = |row: &MemoryUse| {
        format!("{} weights {} context {} compute {}", row.buffer, row.model, row.context, row.compute)
    };
    memory.iter().map(line).collect::<Vec<_>>().join("; ")
}
