//! From wire types to `ChatRequest`: every field is consumed, completed with a documented default,
//! or refused by name. Every group of fields is taken apart without `..` here or in the check that
//! it is handed to: a new field does not compile until somebody decided what it does.
//!
//! What a request holds that has no effect is reported in its `ignored`.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::error::{ApiError, ErrorCode};
use super::extract::typed;
use super::fields::{Endpoint, judge};
use super::state::ApiState;
use super::wire::{ChatBody, ChatOwnFields, CompletionBody, CompletionOwnFields, ResponseFields};
use crate::chat::constraint::sources;
use crate::chat::conversation::{self, ConversationFields};
use crate::chat::fields::FieldValue;
use crate::chat::images::{ImageSource, Taken, take_from_messages, take_from_prompt};
use crate::chat::number::Int;
use crate::chat::options::{self, OptionFields, check_choices};
use crate::chat::request::ChatMessages;
use crate::chat::{ChatRequest, Conversation, ServedModel, prompts};

/// How the answer is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseOptions {
    pub stream: bool,
    pub include_usage: bool,
    /// Tell how far the prompt is.
    pub progress: bool,
}

/// A request whose images are not got yet, with how it is to be answered.
#[derive(Clone, Debug)]
pub struct Converted {
    pub request: ChatRequest<ImageSource>,
    pub response: ResponseOptions,
}

/// What a request is converted with.
#[derive(Clone, Copy)]
pub struct ConvertContext<'a> {
    pub served: ServedModel<'a>,
    pub model_id: &'a str,
    /// Where a request brings no seed.
    pub random_seed: u64,
}

impl<'a> ConvertContext<'a> {
    pub fn of(state: &'a ApiState) -> ConvertContext<'a> {
        let (random_seed, _) = Uuid::new_v4().as_u64_pair();
        ConvertContext { served: state.served(), model_id: &state.model.id, random_seed }
    }
}

/// The body of `/v1/chat/completions`.
pub fn chat(body: Map<String, Value>, context: &ConvertContext<'_>) -> Result<Converted, ApiError> {
    let mut ignored = Vec::new();
    let ChatBody { chat, template, tools, thinking, response, generation, sampling, constraint } =
        typed(judge(body, Endpoint::Chat, &mut ignored)?)?;
    let ChatOwn { messages, images, logprobs } = chat_own(chat, &mut ignored)?;
    let response = response_options(response, context.model_id, &mut ignored)?;
    ignored.extend(generation.unknown_members());
    let progress = response.progress;
    let options = OptionFields { generation, sampling, logprobs, progress, show_control: false };
    let served = &context.served;
    let options = options::check(options, served, context.random_seed)?;
    check_choices(options.n, "n", served)?;
    let conversation = ConversationFields { messages, template, tools, thinking };
    let conversation = conversation::check(conversation, served, &mut ignored)?;
    let constraint = sources::read(constraint, &mut ignored)?;
    let conversation = Conversation::Messages(Box::new(conversation));
    Ok(Converted { request: ChatRequest { conversation, images, options, constraint, ignored }, response })
}

/// The conversation of a chat request alone.
#[derive(Clone, Debug)]
pub struct TemplateRequest {
    pub conversation: ChatMessages,
    pub images: Vec<ImageSource>,
    pub ignored: Vec<String>,
}

/// The body of `/apply-template`: that of a chat request, of which what concerns the generation
/// alone is not checked.
pub fn template(body: Map<String, Value>, context: &ConvertContext<'_>) -> Result<TemplateRequest, ApiError> {
    let mut ignored = Vec::new();
    let ChatBody { chat, template, tools, thinking, response, generation, sampling: _, constraint: _ } =
        typed(judge(body, Endpoint::Chat, &mut ignored)?)?;
    let ChatOwn { messages, images, logprobs: _ } = chat_own(chat, &mut ignored)?;
    response_options(response, context.model_id, &mut ignored)?;
    ignored.extend(generation.unknown_members());
    let conversation = ConversationFields { messages, template, tools, thinking };
    let conversation = conversation::check(conversation, &context.served, &mut ignored)?;
    Ok(TemplateRequest { conversation, images, ignored })
}

/// The body of `/v1/completions`.
pub fn completion(body: Map<String, Value>, context: &ConvertContext<'_>) -> Result<Converted, ApiError> {
    let mut ignored = Vec::new();
    let CompletionBody { completion, response, generation, sampling, constraint } =
        typed(judge(body, Endpoint::Completions, &mut ignored)?)?;
    let CompletionOwnFields { prompt, echo, best_of, logprobs, special, skip_special_tokens } = completion;
    let mut prompt = prompt.ok_or_else(|| missing("prompt"))?;
    let Taken { images, ignored: unused } = take_from_prompt(&mut prompt)?;
    ignored.extend(unused);
    let response = response_options(response, context.model_id, &mut ignored)?;
    ignored.extend(generation.unknown_members());
    let n = generation.n.unwrap_or(Int(1));
    if best_of.is_some_and(|best_of| best_of != n) {
        return Err(invalid("best_of", "`best_of` is served only where it equals `n`: choices are not ranked"));
    }
    let options = OptionFields {
        generation,
        sampling,
        logprobs: logprobs.map(|value| FieldValue { param: "logprobs", value }),
        progress: response.progress,
        show_control: special.or(skip_special_tokens.map(|skip| !skip)).unwrap_or(false),
    };
    let served = &context.served;
    let options = options::check(options, served, context.random_seed)?;
    let prompts = prompts::check(&prompt, echo.unwrap_or(false), &options, served.tokenizer)?;
    let n_prompts = prompts.prompts.len();
    let multiplied_by = if n_prompts > 1 { "prompt" } else { "n" };
    check_choices(n_prompts.saturating_mul(options.n), multiplied_by, served)?;
    let constraint = sources::read(constraint, &mut ignored)?;
    let conversation = Conversation::Prompts(prompts);
    Ok(Converted { request: ChatRequest { conversation, images, options, constraint, ignored }, response })
}

/// `ChatOwnFields`, read.
struct ChatOwn {
    messages: Vec<Value>,
    images: Vec<ImageSource>,
    logprobs: Option<FieldValue<Int>>,
}

fn chat_own(fields: ChatOwnFields, ignored: &mut Vec<String>) -> Result<ChatOwn, ApiError> {
    let ChatOwnFields { messages, logprobs, top_logprobs } = fields;
    let mut messages = messages.ok_or_else(|| missing("messages"))?;
    let Taken { images, ignored: unused } = take_from_messages(&mut messages)?;
    ignored.extend(unused);
    let logprobs = match (logprobs, top_logprobs) {
        (Some(true), top) => Some(FieldValue { param: "top_logprobs", value: top.unwrap_or(Int(0)) }),
        (_, None | Some(Int(0))) => None,
        (_, Some(_)) => return Err(invalid("top_logprobs", "`top_logprobs` needs `logprobs: true`")),
    };
    Ok(ChatOwn { messages, images, logprobs })
}

fn response_options(
    fields: ResponseFields,
    model_id: &str,
    ignored: &mut Vec<String>,
) -> Result<ResponseOptions, ApiError> {
    let ResponseFields { model, stream, stream_options, return_progress } = fields;
    if model.is_some_and(|name| name != model_id) {
        ignored.push("model".to_owned());
    }
    let stream = stream.unwrap_or(false);
    let include_usage = include_usage(stream, stream_options.unwrap_or_default(), ignored)?;
    let progress = return_progress.unwrap_or(false);
    if progress && !stream {
        ignored.push("return_progress".to_owned());
    }
    Ok(ResponseOptions { stream, include_usage, progress: progress && stream })
}

fn include_usage(stream: bool, options: Map<String, Value>, ignored: &mut Vec<String>) -> Result<bool, ApiError> {
    let mut include_usage = false;
    for (name, value) in options.into_iter().filter(|(_, value)| !value.is_null()) {
        let path = format!("stream_options.{name}");
        match (name.as_str(), value) {
            ("include_usage", Value::Bool(wanted)) => {
                include_usage = wanted;
                if wanted && !stream {
                    ignored.push(path);
                }
            }
            ("include_usage", _) => return Err(invalid(&path, "`stream_options.include_usage` must be true or false")),
            _ => ignored.push(path),
        }
    }
    Ok(include_usage && stream)
}

fn missing(name: &str) -> ApiError {
    invalid(name, &format!("`{name}` is required"))
}

fn invalid(param: &str, message: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, message).with_param(param)
}

#[cfg(test)]
mod tests;
