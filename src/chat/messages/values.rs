//! What all of a message is read with.

use serde_json::Value;

use crate::chat::error::RequestError;
use crate::chat::json::kind_of;

/// What `normalise` needs to know.
pub struct NormaliseOptions<'a> {
    /// Wrapper of a system message after the first user message; `{}` stands for its text.
    pub late_system_wrapper: &'a str,
    /// Makes client text safe (`Tokenizer::guard`); applied to every string that a template may
    /// print.
    pub guard: &'a dyn Fn(&str) -> String,
    /// The part that the template gets for an image.
    pub image: &'a Value,
    pub max_messages: usize,
}

/// Every string in a JSON value made safe, keys too: for tools, `chat_template_kwargs` and whatever
/// else a template may print.
pub fn guard_value(value: &Value, guard: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(guard(text)),
        Value::Array(items) => items.iter().map(|item| guard_value(item, guard)).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (guard(key), guard_value(value, guard))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// A string; the error names `param`.
pub(super) fn string_field<'v>(value: &'v Value, param: &str) -> Result<&'v str, RequestError> {
    value
        .as_str()
        .ok_or_else(|| RequestError::invalid(param, format!("{param} is {}; it must be a string", kind_of(value))))
}
