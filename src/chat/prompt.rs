//! Raw prompts: text, token ids, or text with pictures -> items.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::messages::kind_of;
use super::pictures::{Prompt, marked, place};
use super::prepare::{Prepare, not_encoded};
use super::sampling::token_id;
use super::{RequestError, number};
use crate::engine::Picture;
use crate::text::tokenizer::Specials;
use crate::units::Token;

impl Prepare<'_> {
    /// Items and text of every prompt; `pictures` are those of all prompts.
    pub(super) fn prompts(
        &self,
        prompt: &Value,
        pictures: &[Arc<Picture>],
    ) -> Result<Vec<(Prompt, String)>, RequestError> {
        let several = |list: &[Value]| list.first().is_some_and(|first| !first.is_number());
        let one = std::slice::from_ref(prompt);
        let (list, named): (&[Value], bool) = match prompt {
            Value::Array(list) if several(list) => (list, true),
            _ => (one, false),
        };
        let mut waiting = pictures;
        let mut prompts = Vec::with_capacity(list.len());
        for (i, value) in list.iter().enumerate() {
            let path = if named { format!("prompt[{i}]") } else { "prompt".to_owned() };
            let (own, rest) = waiting.split_at(n_pictures(value).min(waiting.len()));
            waiting = rest;
            prompts.push(self.prompt(&path, value, own)?);
        }
        Ok(prompts)
    }

    fn prompt(&self, path: &str, value: &Value, pictures: &[Arc<Picture>]) -> Result<(Prompt, String), RequestError> {
        let (tokens, text) = match value {
            Value::String(text) => (self.encoded(path, text)?, text.clone()),
            Value::Array(ids) => {
                let tokens = self.ids(path, ids)?;
                let text = self.tokenizer.decode(&tokens, true);
                (tokens, text)
            }
            Value::Object(fields) => {
                let text = prompt_string(fields, path)?;
                let param = format!("{path}.prompt_string");
                (self.encoded(&param, &marked(text, pictures.len(), &param)?)?, text.to_owned())
            }
            _ => {
                let message = format!(
                    "`{path}` must be a string, a list of token ids or an object with `prompt_string` and `multimodal_data`"
                );
                return Err(RequestError::invalid(path, message));
            }
        };
        if tokens.is_empty() {
            return Err(RequestError::invalid(path, format!("`{path}` is empty; send at least one token of text")));
        }
        Ok((place(&tokens, pictures, self.tokenizer, path)?, text))
    }

    fn encoded(&self, path: &str, text: &str) -> Result<Vec<Token>, RequestError> {
        self.tokenizer.encode(text, Specials::Parse).map_err(|error| not_encoded(path, &error))
    }

    fn ids(&self, path: &str, ids: &[Value]) -> Result<Vec<Token>, RequestError> {
        let id = |(i, value): (usize, &Value)| {
            let path = format!("{path}[{i}]");
            let id = number::unsigned(value);
            let id = id.ok_or_else(|| RequestError::invalid(&*path, format!("{value} is not a token id")))?;
            token_id(&path, id, self.tokenizer).map(Token)
        };
        ids.iter().enumerate().map(id).collect()
    }
}

/// As `pictures::take_from_prompt` left it.
fn n_pictures(prompt: &Value) -> usize {
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
