//! From a checked request to what the engine runs: render, tokenise, compile constraints. Pure: the
//! id and the time come from outside.
//!
//! May take long (a template and a tokeniser over megabytes): call it off the async threads.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Map, Value};

use super::breakpoints::breakpoints;
use super::constraint::sources::AnswerConstraint;
use super::constraint::{ConstraintCompiler, Rules, shown};
use super::error::RequestError;
use super::images::{Prompt, marked, place};
use super::messages::{cut_at_mark, guard_value};
use super::options::GenerationOptions;
use super::output::OutputFormat;
use super::request::{ChatMessages, ChatRequest, Conversation, PromptContent, RawPrompt, RawPrompts, Turn};
use super::served::ServedModel;
use super::template::{RenderInput, TemplateError};
use super::thinking::{self, ThinkingBounds, ThinkingSettings};
use super::tools::ToolSettings;
use crate::engine::{CacheUse, Constraint, GenerationRequest, Image};
use crate::text::tokenizer::{CodecError, GUARD, Specials};
use crate::units::Token;

/// Which request it is.
#[derive(Clone, Copy, Debug)]
pub struct RequestOrigin<'a> {
    pub id: &'a str,
    pub arrived: Instant,
}

/// A request with everything that its answer is made with.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub choices: ChoiceRequests,
    /// Text in front of each prompt's answers (`echo`); empty otherwise.
    pub echo: Vec<String>,
    pub notices: Notices,
}

/// The engine's requests.
#[derive(Clone, Debug)]
pub struct ChoiceRequests {
    /// One a choice, in the order of their index: all choices of the first prompt first.
    pub requests: Vec<GenerationRequest>,
    /// Choices of each prompt.
    pub n_per_prompt: usize,
    /// How to read the output; `None`: it is text as it comes.
    pub format: Option<OutputFormat>,
}

/// What a client is told beside its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notices {
    /// Fields without effect, by path.
    pub ignored: Vec<String>,
    /// Parts of schemas that hold less strictly than asked for, one line each.
    pub relaxed: Vec<String>,
}

/// Prepares a request.
///
/// # Errors
/// What only rendering, tokenising or compiling can find; names the field.
pub fn prepare(
    request: ChatRequest,
    served: &ServedModel<'_>,
    origin: &RequestOrigin<'_>,
) -> Result<Prepared, RequestError> {
    let ChatRequest { conversation, images, options, constraint, mut ignored } = request;
    let Prompts { prompts, echo, format, rules } = match conversation {
        Conversation::Messages(messages) => chat(*messages, &images, constraint, served)?,
        Conversation::Prompts(prompts) => raw(&prompts, &images, constraint, served)?,
    };
    let Rules { constraint, relaxed, ignored: unused } = rules;
    ignored.extend(unused);
    Ok(Prepared {
        choices: ChoiceRequests {
            n_per_prompt: options.n,
            requests: requests(&prompts, options, &constraint, served, origin),
            format,
        },
        echo,
        notices: Notices { ignored, relaxed: relaxed.iter().map(shown).collect() },
    })
}

/// The tokens and rules of a request.
struct Prompts {
    prompts: Vec<Prompt>,
    echo: Vec<String>,
    format: Option<OutputFormat>,
    rules: Rules,
}

fn chat(
    messages: ChatMessages,
    images: &[Arc<Image>],
    constraint: AnswerConstraint,
    served: &ServedModel<'_>,
) -> Result<Prompts, RequestError> {
    let RenderedChat { prompt, format, tools, bounds } = render(messages, served)?;
    let tokens = encoded(&prompt, "messages", served)?;
    if tokens.is_empty() {
        return Err(RequestError::invalid("messages", "the conversation is empty: send at least one message"));
    }
    let prompt = place(&tokens, images, served.tokenizer, "messages")?;
    let rules = ConstraintCompiler { served: *served }.chat(constraint, &bounds, &tools, &format)?;
    Ok(Prompts { prompts: vec![prompt], echo: Vec::new(), format: Some(format), rules })
}

fn raw(
    raw: &RawPrompts,
    images: &[Arc<Image>],
    constraint: AnswerConstraint,
    served: &ServedModel<'_>,
) -> Result<Prompts, RequestError> {
    let (mut prompts, mut echo) = (Vec::with_capacity(raw.prompts.len()), Vec::new());
    let mut waiting = images;
    for prompt in &raw.prompts {
        let (own, rest) = waiting.split_at(prompt.n_images.min(waiting.len()));
        waiting = rest;
        let tokens = raw_tokens(prompt, served)?;
        if tokens.is_empty() {
            let param = prompt.param.as_str();
            let message = format!("`{param}` is empty; send at least one token of text");
            return Err(RequestError::invalid(param, message));
        }
        prompts.push(place(&tokens, own, served.tokenizer, &prompt.param)?);
        if raw.echo {
            echo.push(match &prompt.content {
                PromptContent::Text { text, .. } => text.clone(),
                PromptContent::Tokens(tokens) => served.tokenizer.decode(tokens, true),
            });
        }
    }
    let rules = ConstraintCompiler { served: *served }.completion(constraint)?;
    Ok(Prompts { prompts, echo, format: None, rules })
}

/// Control tokens in the text are control tokens: there is no client text apart from it.
fn raw_tokens(prompt: &RawPrompt, served: &ServedModel<'_>) -> Result<Vec<Token>, RequestError> {
    match &prompt.content {
        PromptContent::Text { param, text } => encoded(&marked(text, prompt.n_images, param)?, param, served),
        PromptContent::Tokens(tokens) => Ok(tokens.clone()),
    }
}

fn encoded(text: &str, param: &str, served: &ServedModel<'_>) -> Result<Vec<Token>, RequestError> {
    let not_encoded =
        |error: CodecError| RequestError::invalid(param, format!("the text cannot be tokenised: {error}"));
    served.tokenizer.encode(text, Specials::Parse).map_err(not_encoded)
}

/// A rendered conversation, with what its output is read and ruled by.
#[derive(Clone, Debug)]
pub struct RenderedChat {
    /// With guards in it: for `Tokenizer::encode` alone.
    prompt: String,
    format: OutputFormat,
    tools: ToolSettings,
    bounds: ThinkingBounds,
}

impl RenderedChat {
    /// The prompt for people.
    pub fn shown(&self) -> String {
        self.prompt.replace(GUARD, "")
    }
}

/// Renders a conversation.
///
/// # Errors
/// The template refuses it or does not print what is to be continued.
pub fn render(conversation: ChatMessages, served: &ServedModel<'_>) -> Result<RenderedChat, RequestError> {
    let ChatMessages { messages, tools, thinking, template_kwargs, turn } = conversation;
    let ThinkingSettings { enabled, effort, switched_by: _, bounds } = thinking;
    let guard = |value: &Value| guard_value(value, &|text| served.tokenizer.guard(text));
    let input = RenderInput {
        messages,
        tools: tools.tools.iter().map(|tool| guard(&tool.raw)).collect(),
        add_generation_prompt: turn == Turn::Opened,
        kwargs: kwargs(template_kwargs, enabled, effort, &guard),
    };
    let rendered = served.template.render(&input).map_err(not_rendered)?;
    let (prompt, continued) = match &turn {
        Turn::Continued(continued) => (cut_at_mark(&rendered)?, Some(continued)),
        Turn::Opened | Turn::NotOpened => (rendered, None),
    };
    let may_think = served.template.mentions("<think>") || served.tokenizer.special("<think>").is_some();
    let format = OutputFormat {
        thinking: thinking::start(&prompt, may_think, continued),
        tools: tools.callable().to_vec(),
        parallel: tools.parallel,
        calls_end_thinking: served.profile.chat.calls_end_thinking,
    };
    Ok(RenderedChat { prompt, format, tools, bounds })
}

fn kwargs(
    mut kwargs: Map<String, Value>,
    enabled: Option<bool>,
    effort: Option<String>,
    guard: &dyn Fn(&Value) -> Value,
) -> Map<String, Value> {
    // A template would take null for a choice.
    kwargs.retain(|name, value| name != "enable_thinking" || !value.is_null());
    kwargs.iter_mut().for_each(|(_, value)| *value = guard(value));
    if let Some(on) = enabled {
        kwargs.insert("enable_thinking".to_owned(), Value::Bool(on));
    }
    if let Some(effort) = effort {
        kwargs.entry("reasoning_effort").or_insert(Value::String(effort));
    }
    kwargs
}

fn not_rendered(error: TemplateError) -> RequestError {
    match error {
        TemplateError::OutOfFuel => RequestError::too_large("messages", error.to_string()),
        TemplateError::Compile(_) | TemplateError::Raised(_) | TemplateError::Render(_) => {
            RequestError::invalid("messages", error.to_string())
        }
    }
}

/// One request a choice; choices of one prompt differ by seed and id alone.
fn requests(
    prompts: &[Prompt],
    options: GenerationOptions,
    constraint: &Constraint,
    served: &ServedModel<'_>,
    origin: &RequestOrigin<'_>,
) -> Vec<GenerationRequest> {
    let GenerationOptions {
        n,
        max_tokens,
        sampling,
        stop,
        ignore_eos,
        logprobs,
        cache_prompt,
        cache_store,
        progress,
        show_control,
        speculative,
    } = options;
    let RequestOrigin { id, arrived } = *origin;
    let breakpoints_of = |prompt: &Prompt| breakpoints(&prompt.items, served.tokenizer, !show_control);
    let breakpoints: Vec<_> = prompts.iter().map(breakpoints_of).collect();
    let n_choices = prompts.len() * n;
    let choice = |index: usize| {
        let mut sampling = sampling.clone();
        sampling.seed = sampling.seed.wrapping_add((index % n) as u64);
        GenerationRequest {
            id: if n_choices == 1 { id.to_owned() } else { format!("{id}-{index}") },
            prompt: Arc::clone(&prompts[index / n].items),
            images: prompts[index / n].images.clone(),
            sampling,
            stop: stop.clone(),
            max_tokens,
            ignore_eos,
            logprobs,
            cache_prompt,
            cache: CacheUse { store: cache_store, breakpoints: breakpoints[index / n].clone() },
            progress,
            show_control,
            speculative,
            constraint: constraint.clone(),
            arrived,
        }
    };
    (0..n_choices).map(choice).collect()
}

#[cfg(test)]
mod tests;
