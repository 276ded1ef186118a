//! Raw prompts: strings, token ids, or text with images, checked.

use serde_json::{Map, Value};

use super::error::RequestError;
use super::json::kind_of;
use super::number;
use super::options::GenerationOptions;
use super::request::{PromptContent, RawPrompt, RawPrompts};
use super::sampling::token_id;
use crate::text::tokenizer::Tokenizer;
use crate::units::Token;

/// The prompts of a request: a string, a list of token ids, an object with a string and the number
/// of its images (`images::take_from_prompt`), or a list of these.
///
/// # Errors
/// Names the field; `echo` cannot be served together with log-probabilities.
pub fn check(
    prompt: &Value,
    echo: bool,
    options: &GenerationOptions,
    tokenizer: &Tokenizer,
) -> Result<RawPrompts, RequestError> {
    if echo && options.logprobs.is_some() {
        let message = "`echo` together with `logprobs` is not served: prompts have no log-probabilities here";
        return Err(RequestError::unsupported("echo", message));
    }
    let several = |list: &[Value]| list.first().is_some_and(|first| !first.is_number());
    let prompts = match prompt {
        Value::Array(list) if several(list) => {
            let one = |(i, value)| one(value, format!("prompt[{i}]"), tokenizer);
            list.iter().enumerate().map(one).collect::<Result<_, _>>()?
        }
        value => vec![one(value, "prompt".to_owned(), tokenizer)?],
    };
    Ok(RawPrompts { prompts, echo })
}

fn one(value: &Value, param: String, tokenizer: &Tokenizer) -> Result<RawPrompt, RequestError> {
    let content = match value {
        Value::String(text) => PromptContent::Text { param: param.clone(), text: text.clone() },
        Value::Array(list) => PromptContent::Tokens(ids(list, &param, tokenizer)?),
        Value::Object(fields) => PromptContent::Text {
            text: prompt_string(fields, &param)?.to_owned(),
            param: format!("{param}.prompt_string"),
        },
        _ => {
            let message = format!(
                "`{param}` must be a string, a list of token ids or an object with `prompt_string` and `multimodal_data`"
            );
            return Err(RequestError::invalid(param, message));
        }
    };
    Ok(RawPrompt { param, content, n_images: n_images(value) })
}

fn ids(list: &[Value], path: &str, tokenizer: &Tokenizer) -> Result<Vec<Token>, RequestError> {
    let id = |(i, value): (usize, &Value)| {
        let path = format!("{path}[{i}]");
        let id = number::unsigned(value);
        let id = id.ok_or_else(|| RequestError::invalid(&*path, format!("{value} is not a token id")))?;
        token_id(&path, id, tokenizer).map(Token)
    };
    list.iter().enumerate().map(id).collect()
}

/// As `images::take_from_prompt` left it.
fn n_images(prompt: &Value) -> usize {
    prompt["multimodal_data"].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0)
}

fn prompt_string<'v>(fields: &'v Map<String, Value>, path: &str) -> Result<&'v str, RequestError> {
    let known = |name: &&String| name.as_str() == "prompt_string" || name.as_str() == "multimodal_data";
    if let Some(name) = fields.keys().find(|name| !known(name)) {
        let message =
            format!("`{path}.{name}` is not known; a prompt object has `prompt_string` and `multimodal_data`");
        return Err(RequestError::invalid(format!("{path}.{name}"), message));
    }
    match fields.get("prompt_string") {
        Some(Value::String(text)) => Ok(text),
        other => {
            let param = format!("{path}.prompt_string");
            let found = other.map_or("missing", kind_of);
            Err(RequestError::invalid(param.clone(), format!("`{param}` is {found}; it must be a string")))
        }
    }
}
