//! Messages as clients send them -> messages as templates expect them.
//!
//! Deliberately not done here: rendering (`template`), the tools of a request (`tools`), taking
//! images out (`images`). Fields of a message that are not known here are handed to the
//! template, guarded like the rest: a template may print them.

mod calls;
mod content;
mod continued;
mod values;

use serde_json::{Map, Value};

use super::error::RequestError;
use super::json::kind_of;
use values::string_field;

pub use continued::{Continued, cut_at_mark, mark_final};
pub use values::{NormaliseOptions, guard_value};

/// Validates and rewrites the `messages` array: `developer` is `system`; leading system messages
/// are joined with a blank line; later ones become user text in the wrapper; `content` null,
/// missing, "" and [] are the same; text parts are joined, an unknown part is refused by its index;
/// string `arguments` of tool calls are parsed; `reasoning` is `reasoning_content`.
///
/// Text parts are joined without anything between them, as the templates of Qwen join them; content
/// with images stays a list of parts. Arguments that are not an object become `{"arguments":
/// <what was sent>}`. Fields that are null are left out.
///
/// # Errors
/// Names the field, e.g. `messages[2].content[0].type`, with the value and what would be accepted.
pub fn normalise(messages: &[Value], options: &NormaliseOptions<'_>) -> Result<Vec<Value>, RequestError> {
    if messages.is_empty() {
        return Err(RequestError::invalid("messages", "messages is empty; send at least one message"));
    }
    if messages.len() > options.max_messages {
        let (n, max) = (messages.len(), options.max_messages);
        return Err(RequestError::too_large("messages", format!("{n} messages; this server takes at most {max}")));
    }
    let mut out: Vec<Value> = Vec::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        let message = one_message(message, &format!("messages[{index}]"), options)?;
        if message["role"] != "system" {
            out.push(Value::Object(message));
        } else if out.iter().all(|earlier| earlier["role"] == "system") {
            join_system(&mut out, message);
        } else if let Some(text) = message["content"].as_str().filter(|text| !text.is_empty()) {
            let wrapped = options.late_system_wrapper.replacen("{}", text, 1);
            out.push(serde_json::json!({"role": "user", "content": wrapped}));
        }
    }
    Ok(out)
}

fn join_system(out: &mut Vec<Value>, message: Map<String, Value>) {
    let Some(first) = out.last_mut() else {
        out.push(Value::Object(message));
        return;
    };
    let texts: Vec<&str> = [&first["content"], &message["content"]]
        .into_iter()
        .filter_map(Value::as_str)
        .filter(|t| !t.is_empty())
        .collect();
    first["content"] = Value::String(texts.join("\n\n"));
}

fn one_message(
    message: &Value,
    path: &str,
    options: &NormaliseOptions<'_>,
) -> Result<Map<String, Value>, RequestError> {
    let Value::Object(message) = message else {
        return Err(RequestError::invalid(path, format!("{path} must be an object with role and content")));
    };
    let role = role_of(message, path)?;
    let stripped = if role == "system" { content::without_billing(message.get("content")) } else { None };
    let content = stripped.as_ref().or(message.get("content"));
    let content = content::read(content, &format!("{path}.content"), options)?;
    let mut out = Map::new();
    out.insert("role".into(), role.into());
    out.insert("content".into(), content);
    for (name, value) in message.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "role" | "content" => {}
            "name" | "tool_call_id" => {
                let text = string_field(value, &format!("{path}.{name}"))?;
                out.insert(name.clone(), (options.guard)(text).into());
            }
            "reasoning" | "reasoning_content" => add_reasoning(&mut out, name, value, path, options)?,
            "tool_calls" => {
                require_assistant(role, name, path)?;
                calls::add_tool_calls(&mut out, value, path, options.guard)?;
            }
            "function_call" => {
                require_assistant(role, name, path)?;
                calls::add_function_call(&mut out, value, path, options.guard)?;
            }
            "refusal" => add_refusal(&mut out, value, path, options)?,
            "audio" => {
                let param = format!("{path}.audio");
                return Err(RequestError::unsupported(param, "this model has no audio; send the text as content"));
            }
            _ => {
                out.insert((options.guard)(name), guard_value(value, options.guard));
            }
        }
    }
    Ok(out)
}

/// The role as templates know it.
fn role_of(message: &Map<String, Value>, path: &str) -> Result<&'static str, RequestError> {
    let param = format!("{path}.role");
    let known = "system, developer, user, assistant, tool and function";
    match message.get("role") {
        Some(Value::String(role)) => match role.as_str() {
            "system" | "developer" => Ok("system"),
            "user" => Ok("user"),
            "assistant" => Ok("assistant"),
            "tool" | "function" => Ok("tool"),
            other => Err(RequestError::invalid(param, format!("unknown role {other:?}; known are {known}"))),
        },
        Some(other) => {
            Err(RequestError::invalid(param, format!("the role is {}; it must be a string", kind_of(other))))
        }
        None => Err(RequestError::invalid(param, format!("{path} has no role; known are {known}"))),
    }
}

fn require_assistant(role: &str, field: &str, path: &str) -> Result<(), RequestError> {
    if role == "assistant" {
        return Ok(());
    }
    let message = format!("only assistant messages carry {field}; this one's role is {role}");
    Err(RequestError::invalid(format!("{path}.{field}"), message))
}

/// `reasoning_content` wins over `reasoning` when a client sends both.
fn add_reasoning(
    out: &mut Map<String, Value>,
    name: &str,
    value: &Value,
    path: &str,
    options: &NormaliseOptions<'_>,
) -> Result<(), RequestError> {
    let text = string_field(value, &format!("{path}.{name}"))?;
    if text.is_empty() {
        return Ok(());
    }
    require_assistant(out["role"].as_str().unwrap_or_default(), name, path)?;
    if name == "reasoning_content" || !out.contains_key("reasoning_content") {
        out.insert("reasoning_content".into(), (options.guard)(text).into());
    }
    Ok(())
}

/// A refusal is what the assistant said; templates know only content.
fn add_refusal(
    out: &mut Map<String, Value>,
    value: &Value,
    path: &str,
    options: &NormaliseOptions<'_>,
) -> Result<(), RequestError> {
    let text = string_field(value, &format!("{path}.refusal"))?;
    require_assistant(out["role"].as_str().unwrap_or_default(), "refusal", path)?;
    if out["content"] == "" {
        out.insert("content".into(), (options.guard)(text).into());
        return Ok(());
    }
    if text.is_empty() {
        return Ok(());
    }
    let message = "a message has either content or a refusal; join them in content";
    Err(RequestError::invalid(format!("{path}.refusal"), message))
}

#[cfg(test)]
mod tests;
