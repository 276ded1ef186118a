//! Whether a request wants the model to think, out of every spelling that clients use, and how a prompt leaves it.
//!
//! Where several spellings disagree the most explicit one holds: `chat_template_kwargs.enable_thinking`, then
//! `enable_thinking`, `thinking`, `reasoning.enabled`, `reasoning_effort`, `reasoning.effort`, then the profile.

use serde_json::{Map, Value};

use super::messages::Continued;
use super::request::ThinkingFields;
use super::{RequestError, Thinking};

const EFFORTS_ON: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];

/// The answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThinkingChoice {
    /// `None`: the template's own default.
    pub enabled: Option<bool>,
    /// For templates that know degrees.
    pub effort: Option<String>,
    /// The fields that spoke, for the list of those without effect.
    pub spoken: Vec<&'static str>,
}

/// Checks all spellings, also those that are overruled.
pub fn choose(
    fields: ThinkingFields,
    kwargs: &Map<String, Value>,
    default: Option<bool>,
) -> Result<ThinkingChoice, RequestError> {
    let ThinkingFields { enable_thinking, thinking, reasoning_effort, reasoning } = fields;
    let in_kwargs = match kwargs.get("enable_thinking") {
        None | Some(Value::Null) => None,
        Some(value) => Some(boolean("chat_template_kwargs.enable_thinking", value)?),
    };
    let (reasoning_on, inner_effort) = reasoning.map_or(Ok((None, None)), |map| reasoning_object(&map))?;
    let switch = thinking.as_ref().map(thinking_object).transpose()?;
    let outer = reasoning_effort.as_deref().map(|text| effort("reasoning_effort", text)).transpose()?;
    let inner = inner_effort.as_deref().map(|text| effort("reasoning.effort", text)).transpose()?;
    let spellings = [
        ("chat_template_kwargs.enable_thinking", in_kwargs),
        ("enable_thinking", enable_thinking),
        ("thinking", switch),
        ("reasoning", reasoning_on),
        ("reasoning_effort", outer),
        ("reasoning", inner),
    ];
    let mut spoken: Vec<&'static str> = spellings.iter().filter(|s| s.1.is_some()).map(|s| s.0).collect();
    spoken.dedup();
    Ok(ThinkingChoice {
        enabled: spellings.iter().find_map(|s| s.1).or(default),
        effort: reasoning_effort.or(inner_effort).filter(|text| text != "none"),
        spoken,
    })
}

fn boolean(path: &str, value: &Value) -> Result<bool, RequestError> {
    value.as_bool().ok_or_else(|| RequestError::invalid(path, format!("`{path}` must be true or false, not {value}")))
}

fn effort(path: &str, text: &str) -> Result<bool, RequestError> {
    match text {
        "none" => Ok(false),
        _ if EFFORTS_ON.contains(&text) => Ok(true),
        _ => {
            let message = format!("`{path}` is {text:?}; it must be \"none\" or one of {}", EFFORTS_ON.join(", "));
            Err(RequestError::invalid(path, message))
        }
    }
}

fn thinking_object(value: &Value) -> Result<bool, RequestError> {
    let map = match value {
        Value::Bool(on) => return Ok(*on),
        Value::Object(map) => map,
        _ => return Err(RequestError::invalid("thinking", "`thinking` must be a boolean or {\"type\": ...}")),
    };
    for (key, _) in map.iter().filter(|(_, value)| !value.is_null()) {
        match key.as_str() {
            "type" => {}
            "budget_tokens" => return Err(no_budget("thinking.budget_tokens")),
            _ => {
                return Err(RequestError::unsupported(
                    format!("thinking.{key}"),
                    format!("`thinking.{key}` is not served"),
                ));
            }
        }
    }
    match map.get("type").and_then(Value::as_str) {
        Some("enabled" | "adaptive" | "auto") => Ok(true),
        Some("disabled") => Ok(false),
        _ => {
            let message = "`thinking.type` must be \"enabled\", \"adaptive\", \"auto\" or \"disabled\"";
            Err(RequestError::invalid("thinking.type", message))
        }
    }
}

fn reasoning_object(map: &Map<String, Value>) -> Result<(Option<bool>, Option<String>), RequestError> {
    let (mut enabled, mut effort) = (None, None);
    for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        let path = format!("reasoning.{key}");
        match (key.as_str(), value) {
            ("enabled", value) => enabled = Some(boolean(&path, value)?),
            ("effort", Value::String(text)) => effort = Some(text.clone()),
            ("effort", _) => return Err(RequestError::invalid(path, "`reasoning.effort` must be a string")),
            ("max_tokens", _) => return Err(no_budget(&path)),
            // Reasoning is always sent.
            ("exclude", Value::Bool(false)) => {}
            _ => return Err(RequestError::unsupported(&*path, format!("`{path}` is not served"))),
        }
    }
    Ok((enabled, effort))
}

fn no_budget(path: &str) -> RequestError {
    RequestError::unsupported(path, format!("`{path}` is not served: this build cannot bound thinking; leave it out"))
}

/// Where the generation starts.
pub fn start(prompt: &str, may_think: bool, continued: Option<&Continued>) -> Thinking {
    let unclosed = |text: &str| text.rfind("<think>").filter(|at| !text[*at..].contains("</think>"));
    if let Some(at) = unclosed(prompt) {
        let at_end = prompt[at + "<think>".len()..].trim().is_empty();
        // A tag in somebody's text is not the model's; one in the continued message is.
        if at_end || continued.is_some_and(|c| c.in_reasoning || unclosed(&c.text).is_some()) {
            return Thinking::Open;
        }
    }
    let at_the_start = continued.is_none_or(|c| c.text.is_empty());
    if may_think && at_the_start && !prompt.trim_end().ends_with("</think>") {
        Thinking::Possible
    } else {
        Thinking::Off
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chosen(fields: ThinkingFields, kwargs: Value, default: Option<bool>) -> Option<bool> {
        let Value::Object(kwargs) = kwargs else { panic!("an object") };
        choose(fields, &kwargs, default).unwrap().enabled
    }

    #[test]
    fn the_most_explicit_spelling_wins() {
        let effort = |text: &str| ThinkingFields { reasoning_effort: Some(text.into()), ..ThinkingFields::default() };
        assert_eq!(chosen(ThinkingFields::default(), json!({}), None), None);
        assert_eq!(chosen(ThinkingFields::default(), json!({}), Some(true)), Some(true));
        assert_eq!(chosen(effort("none"), json!({}), Some(true)), Some(false));
        let both = ThinkingFields { enable_thinking: Some(true), ..effort("none") };
        assert_eq!(chosen(both.clone(), json!({}), None), Some(true));
        assert_eq!(chosen(both, json!({ "enable_thinking": false }), None), Some(false));
    }

    #[test]
    fn an_overruled_spelling_is_still_checked() {
        let fields = ThinkingFields {
            enable_thinking: Some(true),
            reasoning_effort: Some("extreme".into()),
            ..ThinkingFields::default()
        };
        let error = choose(fields, &Map::new(), None).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("reasoning_effort"));
    }

    #[test]
    fn a_null_inside_a_spelling_says_nothing() {
        let null = json!({ "enable_thinking": null });
        assert_eq!(chosen(ThinkingFields::default(), null.clone(), None), None);
        let thinking = json!({ "type": "disabled", "budget_tokens": null, "else": null });
        let fields = ThinkingFields { thinking: Some(thinking), ..ThinkingFields::default() };
        assert_eq!(chosen(fields, null, Some(true)), Some(false));
    }

    #[test]
    fn the_prompt_says_where_the_answer_starts() {
        let continued = |text: &str, in_reasoning| Some(Continued { text: text.into(), in_reasoning });
        let cases = [
            ("user: hi\nassistant:\n<think>\n", None, Thinking::Open),
            ("assistant:\n<think>\n\n</think>\n\n", None, Thinking::Off),
            ("assistant:\n", None, Thinking::Possible),
            // Somebody wrote about the tag.
            ("user: what is <think> for\nassistant:\n", None, Thinking::Possible),
            ("assistant:\nhello ", continued("hello ", false), Thinking::Off),
            ("assistant:\n<think>so far", continued("", true), Thinking::Open),
            ("assistant:\n<think>so far", continued("<think>so far", false), Thinking::Open),
            ("assistant:\n<think>a</think>b", continued("<think>a</think>b", false), Thinking::Off),
        ];
        for (prompt, continued, expected) in cases {
            assert_eq!(start(prompt, true, continued.as_ref()), expected, "{prompt:?}");
        }
        assert_eq!(start("assistant:\n", false, None), Thinking::Off);
    }
}
