//! Profile -> running engine: devices, header, memory plan, model, chat template. Blocks until the
//! model is loaded.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::api::{BuildInfo, ModelInfo};
use crate::chat::{ChatTemplate, TemplateOrigin, constraint, template::default_template};
use crate::config::Profile;
use crate::engine::{Engine, EngineSettings, EngineStartError, Handle, Joiner, Loaded, PrefixSettings};
use crate::grammar::{Grammars, Source, catalogue};
use crate::telemetry::Metrics;
use crate::text::Tokenizer;
use crate::units::{Bytes, Token};

use super::cache::ModelFiles;
use super::devices::{self, Device};
use super::failure::Failure;
use super::fit::{Fit, free_memory};
use super::machine::HostMemory;
use super::model::{Header, ModelFile, ProjectorFile};
use super::options::StartOptions;
use super::process;

/// Called with 0..=1 while weights are loaded, on the engine thread.
pub type Progress = Box<dyn FnMut(f32) + Send>;

/// A loaded model, ready for requests.
pub struct Started {
    pub profile: Profile,
    pub model: ModelInfo,
    pub build: BuildInfo,
    pub handle: Handle,
    pub joiner: Joiner,
    pub metrics: Metrics,
    pub template: ChatTemplate,
    pub grammars: Grammars,
}

/// Starts everything but the port.
pub fn start(mut profile: Profile, options: &StartOptions, progress: Progress) -> Result<Started, Failure> {
    let devices = devices::start(&profile.model);
    let file = ModelFile::locate(&profile.model)?;
    let header = Header::read(&file)?;
    let projector = ProjectorFile::read(&profile.model, &header)?;
    let sizes = header.sizes_with(projector.as_ref(), &profile.vision);
    let fit = Fit::new(&profile, sizes, free_memory(&HostMemory::read(), &devices))?;
    match (fit.fits(), options.allow_overcommit) {
        (false, false) => return Err(Failure::NoFit(fit.table())),
        (false, true) => tracing::warn!("starting although it does not fit\n{}", fit.table()),
        (true, _) => tracing::debug!("\n{}", fit.table()),
    }
    read_thinking_grammar(&mut profile)?;
    let template_source = template_source(&profile, &header)?;
    let metrics = Metrics::new();
    metrics.set_kernel_reader(devices::kernels);
    let files = ModelFiles { model: &file, projector: projector.as_ref(), template: template_source.as_bytes() };
    let cache = super::cache::settings(&profile, &files, HostMemory::read().free())?;
    let (handle, joiner) = spawn(&profile, &file, (cache, metrics.clone()), progress)?;
    contain_aborts(&handle);
    let compiled = compile(template_source, &profile, handle.tokenizer())
        .and_then(|template| Ok((template, grammars(&profile, handle.tokenizer())?)));
    let (template, grammars) = match compiled {
        Ok(compiled) => compiled,
        Err(failure) => {
            // The thread frees the model: the process must not go before it.
            joiner.join(handle);
            return Err(failure);
        }
    };
    let model = describe(&profile, &file, &header, &handle);
    let build = BuildInfo { version: process::version(), backend: backend(&devices) };
    Ok(Started { profile, model, build, handle, joiner, metrics, template, grammars })
}

/// The model as clients are told about it.
fn describe(profile: &Profile, file: &ModelFile, header: &Header, handle: &Handle) -> ModelInfo {
    let facts = &header.model;
    let named = profile.model.alias.as_ref().or(Some(&facts.name)).filter(|name| !name.is_empty()).cloned();
    ModelInfo {
        id: named.unwrap_or_else(|| file.stem()),
        created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs()),
        architecture: facts.architecture.clone(),
        n_ctx: handle.facts().n_ctx,
        n_ctx_train: facts.n_ctx_train as usize,
        n_params: facts.n_params,
        size: Bytes(header.gguf.tensors.iter().map(|tensor| tensor.bytes).fold(0, u64::saturating_add)),
        quantization: facts.quantization.clone(),
        n_layer_mtp: facts.n_layer_mtp,
        template: TemplateOrigin::of(profile.chat.template.is_some(), facts.chat_template.is_some()),
    }
}

/// What computes.
fn backend(devices: &[Device]) -> String {
    let gpu = devices.iter().find(|device| device.is_gpu);
    format!("llama.cpp ({})", gpu.or(devices.first()).map_or("none", |device| device.backend.as_str()))
}

fn template_source(profile: &Profile, header: &Header) -> Result<String, Failure> {
    let Some(path) = &profile.chat.template else {
        let own = header.model.chat_template.clone();
        return Ok(own.unwrap_or_else(|| {
            tracing::warn!(
                "the model has no chat template: chats are rendered as ChatML; set chat.template to change that"
            );
            default_template().to_owned()
        }));
    };
    std::fs::read_to_string(path)
        .map_err(|e| Failure::Unavailable(format!("cannot read the chat template {}: {e}", path.display())))
}

/// A file that the profile names as the shape of thinking is read once.
fn read_thinking_grammar(profile: &mut Profile) -> Result<(), Failure> {
    let Some(named) = profile.thinking.grammar.take() else { return Ok(()) };
    profile.thinking.grammar = Some(if catalogue::find(&named).is_some() {
        named
    } else {
        std::fs::read_to_string(&named).map_err(|error| {
            let names: Vec<&str> = catalogue::SHIPPED.iter().map(|shipped| shipped.name).collect();
            let names = names.join(", ");
            Failure::Usage(format!("thinking.grammar is {named:?}: no file ({error}), and none of {names}"))
        })?
    });
    Ok(())
}

/// The constraint engine, with the shape of thinking that the profile sets tried out.
fn grammars(profile: &Profile, tokenizer: &Tokenizer) -> Result<Grammars, Failure> {
    let started = Instant::now();
    let grammars = constraint::grammars(tokenizer).map_err(|error| Failure::Malformed(error.to_string()))?;
    tracing::debug!(ms = started.elapsed().as_millis() as u64, "the vocabulary is indexed for constraints");
    if let Some(named) = &profile.thinking.grammar {
        let text = catalogue::find(named).map_or(named.as_str(), |shipped| shipped.text);
        let compiled = grammars.compile(&Source::Gbnf(text.to_owned()));
        compiled.map_err(|error| Failure::Usage(format!("thinking.grammar: {error}")))?;
        if profile.thinking.budget_tokens.is_none() && !constraint::is_bounded(text) {
            let message = "thinking.grammar bounds no length: set thinking.budget_tokens, too";
            return Err(Failure::Usage(message.to_owned()));
        }
    }
    Ok(grammars)
}

fn compile(source: String, profile: &Profile, tokenizer: &Tokenizer) -> Result<ChatTemplate, Failure> {
    let text = |token: Option<Token>| token.map(|t| tokenizer.text(t)).unwrap_or_default();
    let (bos, eos) = (text(tokenizer.bos()), text(tokenizer.eos()));
    ChatTemplate::new(source, &bos, &eos, profile.limits.template_fuel).map_err(|error| match profile.chat.template {
        Some(_) => Failure::Usage(format!("chat.template: {error}")),
        None => Failure::Malformed(format!("{error}; set chat.template to a file that replaces the model's")),
    })
}

fn spawn(
    profile: &Profile,
    file: &ModelFile,
    (cache, metrics): (PrefixSettings, Metrics),
    progress: Progress,
) -> Result<(Handle, Joiner), Failure> {
    let mut profile = profile.clone();
    // Before the model gets a path: the demo model comes with its own.
    profile.model.mmproj = profile.model.projector();
    profile.model.path = Some(file.path().to_owned());
    let settings = EngineSettings::from(&profile);
    Engine::with_cache(move || load(&profile, progress), settings, cache, metrics).map_err(|error| failure(error, file))
}

/// Why the engine did not start, as the end of the process.
fn failure(error: EngineStartError, file: &ModelFile) -> Failure {
    let text = format!("{}: {error}", file.display());
    match error {
        EngineStartError::Load(cause) => match cause.downcast_ref::<NotLoaded>() {
            Some(NotLoaded { by_file: true, .. }) => Failure::Malformed(text),
            _ => Failure::Unavailable(text),
        },
        EngineStartError::Facts(_) => Failure::Unavailable(text),
        EngineStartError::Panicked(_) | EngineStartError::Thread(_) => Failure::Internal(error.to_string()),
    }
}

/// No model was loaded.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
struct NotLoaded {
    reason: String,
    /// The file does not hold a model that can be loaded, on whatever machine.
    by_file: bool,
}

/// Requests get their errors before llama.cpp takes the process down.
#[cfg(feature = "native")]
fn contain_aborts(handle: &Handle) {
    let lost = handle.lost();
    let contained = crate::llama::abort::contain(Failure::INTERNAL, move |reason| lost.tell(reason));
    if let Err(error) = contained {
        tracing::warn!("an abort of llama.cpp will end the process without a word to clients: {error}");
    }
}

/// Nothing here aborts.
#[cfg(not(feature = "native"))]
fn contain_aborts(_handle: &Handle) {}

#[cfg(feature = "native")]
fn load(profile: &Profile, mut progress: Progress) -> Result<Loaded, NotLoaded> {
    let mut go_on = |done| {
        progress(done);
        true
    };
    let loaded = crate::llama::load(profile, &mut go_on)
        .map_err(|error| NotLoaded { by_file: error.blames_file(), reason: error.to_string() })?;
    Ok(Loaded { runner: Box::new(loaded.runner), tokenizer: loaded.tokenizer })
}

#[cfg(not(feature = "native"))]
fn load(_profile: &Profile, _progress: Progress) -> Result<Loaded, NotLoaded> {
    let reason = "this build has no model runtime: it was built without the feature `native`".to_owned();
    Err(NotLoaded { reason, by_file: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModelConfig;

    #[test]
    fn a_file_that_llama_cpp_refuses_is_65_and_a_machine_that_is_too_small_69() {
        let file = ModelFile::locate(&ModelConfig { path: Some("m.gguf".into()), ..Profile::demo().model }).unwrap();
        for (by_file, code) in [(true, Failure::MALFORMED), (false, Failure::UNAVAILABLE)] {
            let cause = NotLoaded { reason: "the cause".to_owned(), by_file };
            let failure = failure(EngineStartError::Load(cause.into()), &file);
            assert_eq!(failure.exit_code(), code);
            assert!(failure.to_string().contains("m.gguf") && failure.to_string().contains("the cause"), "{failure}");
        }
    }
}
