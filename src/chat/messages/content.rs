//! The `content` of a message -> one string.

use serde_json::Value;

use super::RequestError;

/// Null, missing, "" and [] are the empty string; text parts are joined with nothing between them.
pub(super) fn text_of(content: Option<&Value>, path: &str) -> Result<String, RequestError> {
    match content {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Array(parts)) => {
            let mut text = String::new();
            for (index, part) in parts.iter().enumerate() {
                text.push_str(part_text(part, &format!("{path}[{index}]"))?);
            }
            Ok(text)
        }
        Some(other) => {
            let message = format!("{path} is {}; it must be a string or a list of parts", kind_of(other));
            Err(RequestError::invalid(path, message))
        }
    }
}

/// How a client's accounting block begins, which it puts before its system prompt with a number that changes every time.
const BILLING: &str = "x-anthropic-billing-header:";

/// The content of a system message without such a block: it would make every prompt new from its first line on. A block is a
/// part of its own, or the first line; nothing is looked for anywhere else.
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

fn part_text<'v>(part: &'v Value, path: &str) -> Result<&'v str, RequestError> {
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
        "image_url" | "input_image" | "image" => {
            let message =
                format!("{path} is a picture, but this model has no vision; remove it or describe it in text");
            return Err(RequestError::unsupported(path, message));
        }
        other => {
            let message =
                format!("unknown content part {other:?}; known are text, input_text, output_text and refusal");
            return Err(RequestError::invalid(format!("{path}.type"), message));
        }
    };
    match fields.get(field) {
        Some(Value::String(text)) => Ok(text),
        other => {
            let found = other.map_or("missing", kind_of);
            let message = format!("{path}.{field} is {found}; it must be a string");
            Err(RequestError::invalid(format!("{path}.{field}"), message))
        }
    }
}

/// For messages: what kind of JSON value was found.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
