//! The only folder that names llama.cpp, and the only one with unsafe code: model, context, batch,
//! memory, tokenizer, backends, behind the seam `ModelRunner`.
//!
//! Deliberately absent: sampling, chat templates and grammars, which are ours and in Rust. No text
//! of a request reaches a C++ parser, except the tokenizer's where ours does not know the
//! vocabulary.

pub mod abort;
pub mod backend;
pub mod batch;
pub mod context;
pub mod error;
mod ffi;
mod handle;
mod heap;
pub mod kernels;
mod log;
pub mod memory;
pub mod model;
mod mtp;
mod pinned;
pub mod runner;
mod state;
pub mod vision;
pub mod vocab;

use std::path::PathBuf;

pub use backend::{Device, DeviceKind, Plugin, PluginOutcome};
pub use context::{ContextOptions, MemoryUse, MtpCache};
pub use error::LoadError;
pub use model::Model;
pub use runner::LlamaRunner;
pub use vision::Vision;

use crate::config::{ModelConfig, Profile, SpeculativeConfig};
use crate::engine::{MAX_DRAFT_TOKENS, ModelRunner};
use crate::gguf::{ModelFacts, VocabFacts};
use crate::text::Tokenizer;
use crate::units::Bytes;

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

/// Loads plug-ins, model and context. To be called on the engine thread. `progress` gets the share
/// of the weights that is loaded, and cancels by `false`.
pub fn load(profile: &Profile, progress: &mut dyn FnMut(f32) -> bool) -> Result<Loaded, LoadError> {
    let Profile { model, engine, speculative, .. } = profile;
    let plugins = start_backends(model);
    let model = Model::load_parts(model, &mut |facts| in_effect(speculative, facts).mtp, progress)?;
    let tokenizer = vocab::tokenizer(&model);
    let (facts, vocab) = (model.facts().clone(), model.vocab().clone());
    let vision = Vision::load(profile, &model)?;
    let runner = LlamaRunner::new(model, engine, context_options(&in_effect(speculative, &facts), &facts))?;
    let runner = match vision {
        Some(vision) => runner.with_vision(vision),
        None => runner,
    };
    let memory = runner.memory_use();
    tracing::info!(
        target: "llama",
        "loaded {} with llama.cpp {}: tokenizer {}, {}{}",
        facts.name,
        backend::version(),
        tokenizer.codec_name(),
        describe(&memory),
        drafting(&runner, &facts)
    );
    Ok(Loaded { runner, tokenizer, facts, vocab, plugins, devices: backend::devices(), memory })
}

/// Starts the backends and loads the plug-ins of the folder that `model` names, or of the
/// executable's. What `doctor` needs before there is a model.
pub fn start_backends(model: &ModelConfig) -> Vec<Plugin> {
    backend::start();
    let folder: Option<PathBuf> = model.plugin_dir.clone().or_else(backend::default_plugin_folder);
    let switches = model.kernels.as_deref().unwrap_or_default();
    folder.map(|folder| backend::load_plugins_with(&folder, switches)).unwrap_or_default()
}

/// What of the profile's drafting this model can do. Only a head of one layer can be run, and only
/// recurrent states that can be rolled back can be drafted for.
fn in_effect(speculative: &SpeculativeConfig, facts: &ModelFacts) -> SpeculativeConfig {
    let can_roll_back = facts.can_roll_back();
    let effect = speculative.in_effect(facts.n_layer_mtp == 1);
    SpeculativeConfig { mtp: effect.mtp && can_roll_back, lookup: effect.lookup && can_roll_back, ..effect }
}

/// As many outputs and rollback states as drafts can need, and none where nothing drafts.
fn context_options(speculative: &SpeculativeConfig, facts: &ModelFacts) -> ContextOptions {
    let drafts = speculative.draft_tokens_max().min(MAX_DRAFT_TOKENS as u32);
    ContextOptions {
        outputs_per_sequence: drafts + 1,
        rollback_tokens: if facts.recurrent.is_some() { drafts } else { 0 },
        mtp: speculative.mtp.then_some(MtpCache { k: speculative.cache_type_k, v: speculative.cache_type_v }),
    }
}

/// What drafts, for the log.
fn drafting(runner: &LlamaRunner, facts: &ModelFacts) -> String {
    let head = match (runner.facts().mtp, facts.tensor_bytes.mtp) {
        (true, bytes) => format!("MTP head loaded ({bytes})"),
        (false, Bytes(0)) => "no MTP head".to_owned(),
        (false, bytes) => format!("MTP head not loaded ({bytes})"),
    };
    let vision_encoder = if runner.facts().vision.is_some() { "; sees images" } else { "" };
    format!("; {head}, up to {} drafted tokens a step{vision_encoder}", runner.facts().n_outputs_seq - 1)
}

fn describe(memory: &[MemoryUse]) -> String {
    let line = |row: &MemoryUse| {
        format!("{} weights {} context {} compute {}", row.buffer, row.model, row.context, row.compute)
    };
    memory.iter().map(line).collect::<Vec<_>>().join("; ")
}
