//! The `content` of a message -> one string, or a list of strings and images.

use serde_json::{Value, json};

use super::values::NormaliseOptions;
use crate::chat::error::RequestError;
use crate::chat::images::PART_TYPES;
use crate::chat::json::kind_of;

/// Null, missing, "" and [] are the empty string; text parts are joined with nothing between them.
/// With images it is a list of parts in their order. Guarded.
pub(super) fn read(content: Option<&Value>, path: &str, options: &NormaliseOptions<'_>) -> Result<Value, RequestError> {
    match content {
        None | Some(Value::Null) => Ok("".into()),
        Some(Value::String(text)) => Ok((options.guard)(text).into()),
        Some(Value::Array(parts)) => {
            // Texts around images, one more than these.
            let mut texts = vec![String::new()];
            for (index, part) in parts.iter().enumerate() {
                match part_text(part, &format!("{path}[{index}]"))? {
                    Some(text) => texts.last_mut().into_iter().for_each(|last| last.push_str(text)),
                    None => texts.push(String::new()),
                }
            }
            Ok(joined(&texts, options))
        }
        Some(other) => {
            let message = format!("{path} is {}; it must be a string or a list of parts", kind_of(other));
            Err(RequestError::invalid(path, message))
        }
    }
}

fn joined(texts: &[String], options: &NormaliseOptions<'_>) -> Value {
    if let [text] = texts {
        return (options.guard)(text).into();
    }
    let mut parts = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        if i > 0 {
            parts.push(options.image.clone());
        }
        if !text.is_empty() {
            parts.push(json!({ "type": "text", "text": (options.guard)(text) }));
        }
    }
    parts.into()
}

/// How a client's accounting block begins, which it puts before its system prompt with a number
/// that changes every time.
const BILLING: &str = "x-anthropic-billing-header:";

/// The content of a system message without such a block: it would make every prompt new from its
/// first line on. A block is a part of its own, or the first line; nothing is looked for anywhere
/// else.
pub(super) fn without_billing(content: Option<&Value>) -> Option<Value> {
    match content? {
        Value::String(text) if text.starts_with(BILLING) => {
            Some(Value::String(text.split_once('\n').map_or_else(String::new, |(_, rest)| rest.to_owned())))
        }
        Value::Array(parts) => {
            let is_billing = |part: &Value| part["text"].as_str().is_some_and(|text| text.starts_with(BILLING));
            Some(parts.iter().filter(|part| !is_billing(part)).cloned().collect())
        }
        other => Some(other.clone()),
    }
}

/// `None`: an image.
fn part_text<'v>(part: &'v Value, path: &str) -> Result<Option<&'v str>, RequestError> {
    let Value::Object(fields) = part else {
        let message =
            format!("{path} is {}; a part is an object, e.g. {{\"type\":\"text\",\"text\":\"...\"}}", kind_of(part));
        return Err(RequestError::invalid(path, message));
    };
    let kind = match fields.get("type") {
        Some(Value::String(kind)) => kind.as_str(),
        _ => return Err(RequestError::invalid(format!("{path}.type"), format!("{path} has no type, e.g. \"text\""))),
    };
    let field = match kind {
        "text" | "input_text" | "output_text" => "text",
        "refusal" => "refusal",
        // All that is left of one that was taken out.
        "image" if fields.len() == 1 => return Ok(None),
        kind if PART_TYPES.contains(&kind) => {
            let message = format!("{path} is an image, which is not taken here; remove it or describe it in text");
            return Err(RequestError::no_vision(path, message));
        }
        other => {
            let message = format!(
                "unknown content part {other:?}; known are text, input_text, output_text, refusal, image_url and input_image"
            );
            return Err(RequestError::invalid(format!("{path}.type"), message));
        }
    };
    match fields.get(field) {
        Some(Value::String(text)) => Ok(Some(text)),
        other => {
            let found = other.map_or("missing", kind_of);
            let message = format!("{path}.{field} is {found}; it must be a string");
            Err(RequestError::invalid(format!("{path}.{field}"), message))
        }
    }
}
