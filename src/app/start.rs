//! Profile -> running engine: devices, header, memory plan, model, chat template. Blocks until the model is loaded.

use crate::chat::ChatTemplate;
use crate::config::{EngineConfig, ModelConfig, Profile};
use crate::engine::{Engine, EngineSettings, EngineStartError, Handle, Joiner, Loaded};
use crate::gguf::ModelFacts;
use crate::telemetry::Metrics;
use crate::text::Tokenizer;

use super::fit::Fit;
use super::machine::HostMemory;
use super::model::{Header, ModelFile};
use super::{Failure, StartOptions, devices, free_memory};

/// Called with 0..=1 while weights are loaded, on the engine thread.
pub type Progress = Box<dyn FnMut(f32) + Send>;

/// A loaded model, ready for requests.
pub struct Started {
    pub profile: Profile,
    pub facts: ModelFacts,
    pub handle: Handle,
    pub joiner: Joiner,
    pub metrics: Metrics,
    /// `None`: neither the model nor the profile has one.
    pub template: Option<ChatTemplate>,
}

/// Starts everything but the port.
pub fn start(profile: Profile, options: &StartOptions, progress: Progress) -> Result<Started, Failure> {
    let devices = devices::start(&profile.model);
    let file = ModelFile::locate(&profile.model)?;
    let header = Header::read(&file)?;
    let fit = Fit::new(&profile, header.sizes(), free_memory(&HostMemory::read(), &devices))?;
    match (fit.fits(), options.allow_overcommit) {
        (false, false) => return Err(Failure::NoFit(fit.table())),
        (false, true) => tracing::warn!("starting although it does not fit\n{}", fit.table()),
        (true, _) => tracing::debug!("\n{}", fit.table()),
    }
    let template_source = template_source(&profile, &header)?;
    let metrics = Metrics::new();
    let (handle, joiner) = spawn(&profile, &file, metrics.clone(), progress)?;
    let template = template_source.map(|source| compile(source, &profile, handle.tokenizer())).transpose()?;
    Ok(Started { profile, facts: header.model, handle, joiner, metrics, template })
}

fn template_source(profile: &Profile, header: &Header) -> Result<Option<String>, Failure> {
    let Some(path) = &profile.chat.template else { return Ok(header.model.chat_template.clone()) };
    std::fs::read_to_string(path)
        .map(Some)
        .map_err(|e| Failure::Unavailable(format!("cannot read the chat template {}: {e}", path.display())))
}

fn compile(source: String, profile: &Profile, tokenizer: &Tokenizer) -> Result<ChatTemplate, Failure> {
    let text = |token: Option<crate::units::Token>| token.map(|t| tokenizer.text(t)).unwrap_or_default();
    let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
    ChatTemplate::new(source, &bos, &eos, profile.limits.template_fuel).map_err(|error| match profile.chat.template {
        Some(_) => Failure::Usage(format!("chat.template: {error}")),
        None => Failure::Malformed(format!("{error}; set chat.template to a file that replaces the model's")),
    })
}

fn spawn(
    profile: &Profile,
    file: &ModelFile,
    metrics: Metrics,
    progress: Progress,
) -> Result<(Handle, Joiner), Failure> {
    let mut config = profile.model.clone();
    config.path = Some(file.path().to_owned());
    let engine = profile.engine.clone();
    let settings = EngineSettings::from(&engine);
    Engine::spawn(move || load(&config, &engine, progress), settings, metrics).map_err(|error| match error {
        EngineStartError::Load(_) | EngineStartError::Facts(_) => {
            Failure::Unavailable(format!("{}: {error}", file.display()))
        }
        EngineStartError::Panicked(_) | EngineStartError::Thread(_) => Failure::Internal(error.to_string()),
    })
}

#[cfg(feature = "native")]
fn load(model: &ModelConfig, engine: &EngineConfig, mut progress: Progress) -> Result<Loaded, crate::llama::LoadError> {
    let mut go_on = |done| {
        progress(done);
        true
    };
    let loaded = crate::llama::load(model, engine, &mut go_on)?;
    Ok(Loaded { runner: Box::new(loaded.runner), tokenizer: loaded.tokenizer })
}

#[cfg(not(feature = "native"))]
fn load(_model: &ModelConfig, _engine: &EngineConfig, _progress: Progress) -> Result<Loaded, &'static str> {
    Err("this build has no model runtime: it was built without the feature `native`")
}
