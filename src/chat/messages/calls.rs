//! Tool calls in the history: checked, their arguments made an object, which is what templates
//! iterate over.

use serde_json::{Map, Value, json};

use super::values::{guard_value, string_field};
use crate::chat::error::RequestError;
use crate::chat::json::kind_of;

type Guard<'a> = &'a dyn Fn(&str) -> String;

/// `tool_calls` of an assistant message; an empty list is the same as none.
pub(super) fn add_tool_calls(
    out: &mut Map<String, Value>,
    calls: &Value,
    path: &str,
    guard: Guard<'_>,
) -> Result<(), RequestError> {
    let param = format!("{path}.tool_calls");
    let Value::Array(calls) = calls else {
        return Err(RequestError::invalid(&param, format!("{param} is {}; it must be a list", kind_of(calls))));
    };
    let calls = calls
        .iter()
        .enumerate()
        .map(|(index, call)| tool_call(call, &format!("{param}[{index}]"), guard))
        .collect::<Result<Vec<Value>, RequestError>>()?;
    if !calls.is_empty() {
        out.insert("tool_calls".into(), Value::Array(calls));
    }
    Ok(())
}

/// `function_call`, the form before `tool_calls`.
pub(super) fn add_function_call(
    out: &mut Map<String, Value>,
    call: &Value,
    path: &str,
    guard: Guard<'_>,
) -> Result<(), RequestError> {
    let param = format!("{path}.function_call");
    if out.contains_key("tool_calls") {
        return Err(RequestError::invalid(param, "a message has either tool_calls or function_call; use tool_calls"));
    }
    let function = function(call, &param, guard)?;
    out.insert("tool_calls".into(), json!([{"type": "function", "function": function}]));
    Ok(())
}

fn tool_call(call: &Value, path: &str, guard: Guard<'_>) -> Result<Value, RequestError> {
    let Value::Object(fields) = call else {
        return Err(RequestError::invalid(path, format!("{path} is {}; it must be an object", kind_of(call))));
    };
    if let Some(kind) = fields.get("type").filter(|kind| !kind.is_null() && *kind != "function") {
        let message = format!("a tool call of type {kind} is not supported; only \"function\" is");
        return Err(RequestError::unsupported(format!("{path}.type"), message));
    }
    let mut out = Map::new();
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "function" => {}
            "id" => {
                out.insert("id".into(), guard(string_field(value, &format!("{path}.id"))?).into());
            }
            _ => {
                out.insert(guard(name), guard_value(value, guard));
            }
        }
    }
    let param = format!("{path}.function");
    let given = fields.get("function").unwrap_or(&Value::Null);
    out.insert("function".into(), Value::Object(function(given, &param, guard)?));
    Ok(Value::Object(out))
}

fn function(function: &Value, path: &str, guard: Guard<'_>) -> Result<Map<String, Value>, RequestError> {
    let Value::Object(fields) = function else {
        let message = format!("{path} is {}; it must be an object with name and arguments", kind_of(function));
        return Err(RequestError::invalid(path, message));
    };
    let param = format!("{path}.name");
    let name = string_field(fields.get("name").unwrap_or(&Value::Null), &param)?;
    if name.is_empty() {
        return Err(RequestError::invalid(param, "the name of a called function is empty"));
    }
    let mut out = Map::new();
    out.insert("name".into(), guard(name).into());
    out.insert("arguments".into(), guard_value(&arguments(fields.get("arguments")), guard));
    for (name, value) in
        fields.iter().filter(|(name, value)| !value.is_null() && *name != "name" && *name != "arguments")
    {
        out.insert(guard(name), guard_value(value, guard));
    }
    Ok(out)
}

/// Always an object. OpenAI's clients send JSON text; nothing at all is no arguments; what is no
/// object is kept under the key `arguments`, so that the model still sees what it once wrote.
fn arguments(given: Option<&Value>) -> Value {
    match given {
        None | Some(Value::Null) => json!({}),
        Some(Value::Object(map)) => Value::Object(map.clone()),
        Some(Value::String(text)) if text.trim().is_empty() => json!({}),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Object(map)) => Value::Object(map),
            Ok(_) | Err(_) => json!({"arguments": text}),
        },
        Some(other) => json!({"arguments": other}),
    }
}
