//! Whether a request wants the model to think, out of every spelling that clients use, and how a
//! prompt leaves it.
//!
//! Where several spellings disagree the most explicit one holds:
//! `chat_template_kwargs.enable_thinking`, then `enable_thinking`, `thinking`, `reasoning.enabled`,
//! `reasoning_effort`, `reasoning.effort`, then the profile. Of bounds on the tokens:
//! `thinking.budget_tokens`, the flat spellings, `reasoning.max_tokens`, the degree of effort, then
//! the profile.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::RequestError;
use super::fields::{FieldValue, ThinkingFields, first};
use super::messages::Continued;
use super::number::Int;
use super::output::Thinking;
use super::served::ServedModel;
use crate::config::ThinkingConfig;

const EFFORTS_ON: [&str; 6] = ["minimal", "low", "medium", "high", "xhigh", "max"];

/// What a request says about thinking, completed with the profile's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThinkingSettings {
    /// `None`: the template's own default.
    pub enabled: Option<bool>,
    /// For templates that know degrees.
    pub effort: Option<String>,
    /// The fields that switch it, for the list of those without effect.
    pub switched_by: Vec<&'static str>,
    pub bounds: ThinkingBounds,
}

/// The bounds that hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThinkingBounds {
    /// `None`: no bound.
    pub budget_tokens: Option<u32>,
    /// Name of a shipped grammar, or GBNF.
    pub grammar: Option<FieldValue<String>>,
    /// Written before a think block is closed at its bound.
    pub message: String,
    /// The fields of the request that set bounds.
    set_by: Vec<&'static str>,
}

impl ThinkingBounds {
    /// The fields of the request that set bounds.
    pub fn fields(&self) -> impl Iterator<Item = String> + '_ {
        self.set_by.iter().map(|field| (*field).to_owned())
    }
}

impl ThinkingSettings {
    /// Checks all spellings, also those that are overruled.
    ///
    /// # Errors
    /// Names the spelling.
    pub fn from_fields(
        fields: ThinkingFields,
        kwargs: &Map<String, Value>,
        served: &ServedModel<'_>,
    ) -> Result<ThinkingSettings, RequestError> {
        let Asked { enabled, effort, switched_by, budget, grammar, message } = read(fields, kwargs)?;
        let defaults = &served.profile.thinking;
        // Degrees of effort are the business of a template that knows them, and set no bound then.
        let degree = effort.as_deref().filter(|_| !served.template.mentions("reasoning_effort"));
        let mut set_by: Vec<&'static str> = budget.iter().map(|budget| budget.param).collect();
        set_by.extend(grammar.is_some().then_some("thinking.grammar"));
        set_by.extend(message.is_some().then_some("reasoning_budget_message"));
        let own = grammar.map(|value| FieldValue { param: "thinking.grammar", value });
        let default = || defaults.grammar.clone().map(|value| FieldValue { param: "thinking", value });
        let bounds = ThinkingBounds {
            budget_tokens: budget_tokens(budget, degree, defaults)?,
            grammar: own.or_else(default),
            message: message.unwrap_or_else(|| defaults.message.clone()),
            set_by,
        };
        Ok(ThinkingSettings { enabled: enabled.or(served.profile.chat.thinking), effort, switched_by, bounds })
    }
}

/// What the fields say, without the profile.
#[derive(Debug, PartialEq)]
struct Asked {
    enabled: Option<bool>,
    effort: Option<String>,
    switched_by: Vec<&'static str>,
    budget: Option<FieldValue<Int>>,
    grammar: Option<String>,
    message: Option<String>,
}

fn read(fields: ThinkingFields, kwargs: &Map<String, Value>) -> Result<Asked, RequestError> {
    let ThinkingFields {
        enable_thinking,
        thinking,
        reasoning_effort,
        reasoning,
        thinking_budget,
        thinking_budget_tokens,
        reasoning_budget,
        reasoning_budget_tokens,
        reasoning_budget_message,
    } = fields;
    let in_kwargs = match kwargs.get("enable_thinking") {
        None | Some(Value::Null) => None,
        Some(value) => Some(boolean("chat_template_kwargs.enable_thinking", value)?),
    };
    let reasoning = reasoning.map_or(Ok(ReasoningObject::default()), |map| reasoning_object(&map))?;
    let thinking = thinking.as_ref().map_or(Ok(ThinkingObject::default()), thinking_object)?;
    let outer = reasoning_effort.as_deref().map(|text| effort("reasoning_effort", text)).transpose()?;
    let inner = reasoning.effort.as_deref().map(|text| effort("reasoning.effort", text)).transpose()?;
    let spellings = [
        ("chat_template_kwargs.enable_thinking", in_kwargs),
        ("enable_thinking", enable_thinking),
        ("thinking", thinking.enabled),
        ("reasoning", reasoning.enabled),
        ("reasoning_effort", outer),
        ("reasoning", inner),
    ];
    let mut switched_by: Vec<&'static str> = spellings.iter().filter(|s| s.1.is_some()).map(|s| s.0).collect();
    switched_by.dedup();
    let budget = first([
        ("thinking_budget_tokens", thinking_budget_tokens),
        ("thinking_budget", thinking_budget),
        ("reasoning_budget_tokens", reasoning_budget_tokens),
        ("reasoning_budget", reasoning_budget),
    ]);
    Ok(Asked {
        enabled: spellings.iter().find_map(|s| s.1),
        effort: reasoning_effort.or(reasoning.effort).filter(|text| text != "none"),
        switched_by,
        budget: thinking.budget.or(budget).or(reasoning.budget),
        grammar: thinking.grammar,
        message: reasoning_budget_message,
    })
}

/// `degree` of effort sets the bound where the request has no other.
fn budget_tokens(
    asked: Option<FieldValue<Int>>,
    degree: Option<&str>,
    defaults: &ThinkingConfig,
) -> Result<Option<u32>, RequestError> {
    match (asked, degree) {
        (Some(FieldValue { value: Int(-1), .. }), _) => Ok(None),
        (Some(FieldValue { param, value: Int(value) }), _) => u32::try_from(value).map(Some).map_err(|_| {
            let message = format!("`{param}` is {value}; it must be a number of tokens, or -1 for no bound");
            RequestError::invalid(param, message)
        }),
        (None, None) => Ok(defaults.budget_tokens),
        (None, Some("minimal")) => Ok(defaults.effort_minimal_tokens),
        (None, Some("low")) => Ok(defaults.effort_low_tokens),
        (None, Some("medium")) => Ok(defaults.effort_medium_tokens),
        (None, Some(_)) => Ok(defaults.effort_high_tokens),
    }
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

#[derive(Default)]
struct ThinkingObject {
    enabled: Option<bool>,
    budget: Option<FieldValue<Int>>,
    grammar: Option<String>,
}

fn thinking_object(value: &Value) -> Result<ThinkingObject, RequestError> {
    let map = match value {
        Value::Bool(on) => return Ok(ThinkingObject { enabled: Some(*on), ..ThinkingObject::default() }),
        Value::Object(map) => map,
        _ => return Err(RequestError::invalid("thinking", "`thinking` must be a boolean or {\"type\": ...}")),
    };
    let mut read = ThinkingObject::default();
    for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        match key.as_str() {
            "type" => read.enabled = Some(thinking_type(value)?),
            "budget_tokens" => read.budget = Some(tokens("thinking.budget_tokens", value)?),
            "grammar" => {
                let text = value.as_str().filter(|text| !text.is_empty());
                let message = "`thinking.grammar` must be the name of a grammar or GBNF";
                read.grammar = Some(text.ok_or_else(|| RequestError::invalid("thinking.grammar", message))?.to_owned());
            }
            _ => {
                let path = format!("thinking.{key}");
                let message = format!("`{path}` is not served");
                return Err(RequestError::unsupported(path, message));
            }
        }
    }
    Ok(read)
}

fn thinking_type(value: &Value) -> Result<bool, RequestError> {
    match value.as_str() {
        Some("enabled" | "adaptive" | "auto") => Ok(true),
        Some("disabled") => Ok(false),
        _ => {
            let message = "`thinking.type` must be \"enabled\", \"adaptive\", \"auto\" or \"disabled\"";
            Err(RequestError::invalid("thinking.type", message))
        }
    }
}

#[derive(Default)]
struct ReasoningObject {
    enabled: Option<bool>,
    effort: Option<String>,
    budget: Option<FieldValue<Int>>,
}

fn reasoning_object(map: &Map<String, Value>) -> Result<ReasoningObject, RequestError> {
    let mut read = ReasoningObject::default();
    for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        let path = format!("reasoning.{key}");
        match (key.as_str(), value) {
            ("enabled", value) => read.enabled = Some(boolean(&path, value)?),
            ("effort", Value::String(text)) => read.effort = Some(text.clone()),
            ("effort", _) => return Err(RequestError::invalid(path, "`reasoning.effort` must be a string")),
            ("max_tokens", value) => read.budget = Some(tokens("reasoning.max_tokens", value)?),
            // Reasoning is always sent.
            ("exclude", Value::Bool(false)) => {}
            _ => return Err(RequestError::unsupported(&*path, format!("`{path}` is not served"))),
        }
    }
    Ok(read)
}

fn tokens(param: &'static str, value: &Value) -> Result<FieldValue<Int>, RequestError> {
    let value = Int::deserialize(value)
        .map_err(|_| RequestError::invalid(param, format!("`{param}` must be a number of tokens, not {value}")))?;
    Ok(FieldValue { param, value })
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
        read(fields, &kwargs).unwrap().enabled.or(default)
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
        let error = read(fields, &Map::new()).unwrap_err();
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
