//! The tool fields of a request: `tools`, `tool_choice`, `parallel_tool_calls`.
//!
//! Deliberately absent: the old `functions` pair (refused before it gets here), and judging the
//! JSON schema of the parameters. It goes to the template as it was sent.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::tool::{Tool, ToolChoice};
use crate::chat::error::RequestError;
use crate::chat::fields::ToolFields;

/// Longest function name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Limits of the profile on what a client may declare.
#[derive(Clone, Copy, Debug)]
pub struct ToolLimits {
    pub max_tools: usize,
    /// JSON text of all tools together, as it would be printed into the prompt.
    pub max_bytes: usize,
}

/// What the request asks for, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSettings {
    pub tools: Vec<Tool>,
    pub choice: ToolChoice,
    /// The tools that may be called: all, or those that the choice names.
    callable: Vec<Tool>,
    /// `parallel_tool_calls`, true when absent; a choice of one function allows one call.
    pub parallel: bool,
}

impl ToolSettings {
    /// Checks every field; the error names the path of the first fault. Without tools,
    /// `tool_choice` "auto" and "none" and either value of `parallel_tool_calls` are accepted,
    /// since all of them mean the same then.
    pub fn from_fields(fields: &ToolFields, limits: ToolLimits) -> Result<ToolSettings, RequestError> {
        let ToolFields { tools: declared, tool_choice, parallel_tool_calls } = fields;
        let tools = declared.as_ref().map_or(Ok(Vec::new()), |value| tools(value, limits))?;
        let chosen = tool_choice.as_ref().map_or(Ok(Chosen::default()), choice)?;
        let parallel = parallel_tool_calls.as_ref().map_or(Ok(true), parallel)?;
        if let Some((path, name)) =
            chosen.names.iter().flatten().find(|(_, name)| tools.iter().all(|t| t.name != *name))
        {
            let message = format!("`{path}` is {name:?}, which `tools` does not declare; name one of its functions");
            return Err(RequestError::invalid(&**path, message));
        }
        if chosen.choice == ToolChoice::Required && tools.is_empty() {
            let message = "a call is asked for, but `tools` declares no function; declare one, or send \"auto\"";
            return Err(RequestError::invalid("tool_choice", message));
        }
        let named = |tool: &&Tool| chosen.names.as_ref().is_none_or(|names| names.iter().any(|(_, n)| *n == tool.name));
        let callable = match chosen.choice {
            ToolChoice::None => Vec::new(),
            ToolChoice::Auto | ToolChoice::Required => tools.iter().filter(named).cloned().collect(),
        };
        Ok(ToolSettings { callable, choice: chosen.choice, parallel: parallel && !chosen.single, tools })
    }

    /// The tools whose calls are to be parsed: none when the choice is `none`.
    pub fn callable(&self) -> &[Tool] {
        &self.callable
    }
}

/// `tool_choice` as it was sent.
#[derive(Clone, Debug, Default, PartialEq)]
struct Chosen {
    choice: ToolChoice,
    /// The functions that may be called, each with its path; `None`: all.
    names: Option<Vec<(String, String)>>,
    /// One call of one function.
    single: bool,
}

fn tools(value: &Value, limits: ToolLimits) -> Result<Vec<Tool>, RequestError> {
    let list = value.as_array().ok_or_else(|| wrong_type("tools", "an array", value))?;
    if list.len() > limits.max_tools {
        let message = format!("{} tools were sent, at most {} are served; send fewer", list.len(), limits.max_tools);
        return Err(RequestError::too_large("tools", message));
    }
    let bytes: usize = list.iter().map(|tool| tool.to_string().len()).sum();
    if bytes > limits.max_bytes {
        let message = format!("the tools are {bytes} bytes of JSON, at most {} are served", limits.max_bytes);
        return Err(RequestError::too_large("tools", message));
    }
    let mut names = HashSet::new();
    let mut tools = Vec::with_capacity(list.len());
    for (i, value) in list.iter().enumerate() {
        let tool = tool(value, &format!("tools[{i}]"))?;
        if !names.insert(tool.name.clone()) {
            let message = format!("the name `{}` is declared twice; every tool needs its own", tool.name);
            return Err(RequestError::invalid(format!("tools[{i}].function.name"), message));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn tool(value: &Value, path: &str) -> Result<Tool, RequestError> {
    let object = value.as_object().ok_or_else(|| wrong_type(path, "an object", value))?;
    match object.get("type") {
        Some(Value::String(kind)) if kind == "function" => {}
        Some(Value::String(kind)) => {
            let message = format!("tools of type `{kind}` are not served; only `function` is");
            return Err(RequestError::unsupported(format!("{path}.type"), message));
        }
        other => return Err(wrong_type(&format!("{path}.type"), "the string \"function\"", or_null(other))),
    }
    let at = format!("{path}.function");
    let function = object.get("function");
    let function =
        function.and_then(Value::as_object).ok_or_else(|| wrong_type(&at, "an object", or_null(function)))?;
    Ok(Tool {
        name: name(function, &at)?,
        description: description(function, &at)?,
        parameters: parameters(function, &at)?,
        strict: strict(function, &at)?,
        raw: value.clone(),
    })
}

fn name(function: &Map<String, Value>, at: &str) -> Result<String, RequestError> {
    let path = format!("{at}.name");
    let value = function.get("name");
    let name = value.and_then(Value::as_str).ok_or_else(|| wrong_type(&path, "a string", or_null(value)))?;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b':' | b'-');
    if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(allowed) {
        let shown: String = name.chars().take(MAX_NAME_BYTES).collect();
        let message = format!("the name {shown:?} must be 1 to {MAX_NAME_BYTES} characters of A-Z a-z 0-9 _ . : -");
        return Err(RequestError::invalid(path, message));
    }
    Ok(name.to_owned())
}

fn description(function: &Map<String, Value>, at: &str) -> Result<Option<String>, RequestError> {
    match function.get("description") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => Err(wrong_type(&format!("{at}.description"), "a string", other)),
    }
}

fn parameters(function: &Map<String, Value>, at: &str) -> Result<Value, RequestError> {
    let path = format!("{at}.parameters");
    let value = match function.get("parameters") {
        None | Some(Value::Null) => return Ok(json!({})),
        Some(value) => value,
    };
    let schema = value.as_object().ok_or_else(|| wrong_type(&path, "a JSON schema (an object)", value))?;
    match schema.get("type") {
        None => {}
        Some(Value::String(kind)) if kind == "object" => {}
        Some(other) => return Err(wrong_type(&format!("{path}.type"), "\"object\"", other)),
    }
    Ok(value.clone())
}

fn strict(function: &Map<String, Value>, at: &str) -> Result<Option<bool>, RequestError> {
    match function.get("strict") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(strict)) => Ok(Some(*strict)),
        Some(other) => Err(wrong_type(&format!("{at}.strict"), "a boolean", other)),
    }
}

fn choice(value: &Value) -> Result<Chosen, RequestError> {
    const SEND: &str =
        "send \"auto\", \"none\", \"required\" or {\"type\": \"function\", \"function\": {\"name\": ...}}";
    match value {
        Value::String(text) => {
            let message = || RequestError::invalid("tool_choice", format!("{text:?} is no tool choice; {SEND}"));
            Ok(Chosen { choice: mode(text).ok_or_else(message)?, ..Chosen::default() })
        }
        Value::Object(object) => match object.get("type").and_then(Value::as_str) {
            Some("function") => {
                let named = function_name(object, "tool_choice")?;
                Ok(Chosen { choice: ToolChoice::Required, names: Some(vec![named]), single: true })
            }
            Some("allowed_tools") => allowed(object),
            Some(kind @ "custom") => {
                let message = format!("a choice of type `{kind}` is not served; {SEND}");
                Err(RequestError::unsupported("tool_choice.type", message))
            }
            _ => Err(RequestError::invalid("tool_choice.type", format!("unknown kind of tool choice; {SEND}"))),
        },
        other => Err(wrong_type("tool_choice", "a string or an object", other)),
    }
}

fn mode(text: &str) -> Option<ToolChoice> {
    match text {
        "auto" => Some(ToolChoice::Auto),
        "none" => Some(ToolChoice::None),
        "required" => Some(ToolChoice::Required),
        _ => None,
    }
}

/// The name in `{"function": {"name": ...}}` or `{"name": ...}`, with its path.
fn function_name(object: &Map<String, Value>, at: &str) -> Result<(String, String), RequestError> {
    let nested = object.get("function").and_then(Value::as_object);
    let (path, value) = match nested {
        Some(function) => (format!("{at}.function.name"), function.get("name")),
        None => (format!("{at}.name"), object.get("name")),
    };
    let name = value.and_then(Value::as_str).ok_or_else(|| wrong_type(&path, "a string", or_null(value)))?;
    Ok((path, name.to_owned()))
}

/// A choice among some of the tools, nested as in chat completions or flat.
fn allowed(object: &Map<String, Value>) -> Result<Chosen, RequestError> {
    let nested = object.get("allowed_tools").and_then(Value::as_object);
    let (object, at) = match nested {
        Some(inner) => (inner, "tool_choice.allowed_tools"),
        None => (object, "tool_choice"),
    };
    let path = format!("{at}.mode");
    let choice = match object.get("mode").and_then(Value::as_str) {
        Some("auto") => ToolChoice::Auto,
        Some("required") => ToolChoice::Required,
        _ => return Err(wrong_type(&path, "\"auto\" or \"required\"", or_null(object.get("mode")))),
    };
    let path = format!("{at}.tools");
    let list = object.get("tools").and_then(Value::as_array).filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| wrong_type(&path, "a list of functions", or_null(object.get("tools"))))?;
    let name = |(i, value): (usize, &Value)| {
        let at = format!("{path}[{i}]");
        value.as_object().ok_or_else(|| wrong_type(&at, "an object", value)).and_then(|map| function_name(map, &at))
    };
    let names = list.iter().enumerate().map(name).collect::<Result<Vec<_>, _>>()?;
    Ok(Chosen { choice, names: Some(names), single: false })
}

fn parallel(value: &Value) -> Result<bool, RequestError> {
    value.as_bool().ok_or_else(|| wrong_type("parallel_tool_calls", "a boolean", value))
}

fn or_null(value: Option<&Value>) -> &Value {
    value.unwrap_or(&Value::Null)
}

fn wrong_type(path: &str, wanted: &str, found: &Value) -> RequestError {
    let found = match found {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) => format!("the string {:?}", text.chars().take(MAX_NAME_BYTES).collect::<String>()),
        scalar => scalar.to_string(),
    };
    RequestError::invalid(path, format!("`{path}` must be {wanted}, not {found}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::error::RequestErrorKind::{Invalid, TooLarge, Unsupported};

    const LIMITS: ToolLimits = ToolLimits { max_tools: 3, max_bytes: 4096 };

    fn settings(body: Value) -> Result<ToolSettings, RequestError> {
        let Value::Object(body) = body else { panic!("not an object: {body}") };
        let field = |name: &str| body.get(name).filter(|value| !value.is_null()).cloned();
        let fields = ToolFields {
            tools: field("tools"),
            tool_choice: field("tool_choice"),
            parallel_tool_calls: field("parallel_tool_calls"),
        };
        ToolSettings::from_fields(&fields, LIMITS)
    }

    fn function(function: Value) -> Value {
        json!({"tools": [{"type": "function", "function": function}]})
    }

    #[track_caller]
    fn refused(body: Value, kind: crate::chat::error::RequestErrorKind, param: &str, message: &str) {
        let error = settings(body).unwrap_err();
        assert_eq!((error.kind, error.param.as_deref()), (kind, Some(param)), "{error}");
        assert!(error.message.contains(message), "{error}");
    }

    #[test]
    fn a_tool_keeps_what_the_client_sent() {
        let raw = json!({"type": "function", "cache": 1, "function": {
            "name": "mcp:a.b-c_9", "description": "d", "strict": false, "parameters": {"type": "object", "properties": {}}}});
        let got = settings(json!({"tools": [raw], "tool_choice": "auto", "parallel_tool_calls": false})).unwrap();
        let parameters = raw["function"]["parameters"].clone();
        let tool =
            Tool { name: "mcp:a.b-c_9".into(), description: Some("d".into()), parameters, strict: Some(false), raw };
        let callable = vec![tool.clone()];
        let expected = ToolSettings { tools: vec![tool], choice: ToolChoice::Auto, callable, parallel: false };
        assert_eq!(got, expected);
    }

    #[test]
    fn absent_and_null_fields_have_defaults() {
        let none = ToolSettings { tools: Vec::new(), choice: ToolChoice::Auto, callable: Vec::new(), parallel: true };
        assert_eq!(settings(json!({})).unwrap(), none);
        let null = json!({"tools": null, "tool_choice": null, "parallel_tool_calls": null});
        assert_eq!(settings(null).unwrap(), none);
        let tool = settings(function(json!({"name": "f", "parameters": null, "description": null}))).unwrap();
        assert_eq!((&tool.tools[0].parameters, &tool.tools[0].description), (&json!({}), &None));
    }

    #[test]
    fn choice_none_leaves_no_tool_to_call() {
        let mut body = function(json!({"name": "f"}));
        assert_eq!(settings(body.clone()).unwrap().callable().len(), 1);
        body["tool_choice"] = "none".into();
        let got = settings(body).unwrap();
        assert_eq!((got.tools.len(), got.callable().len()), (1, 0));
    }

    #[test]
    fn faults_name_their_path() {
        let good = json!({"type": "function", "function": {"name": "f"}});
        refused(json!({"tools": {}}), Invalid, "tools", "an array");
        refused(json!({"tools": [good, 1]}), Invalid, "tools[1]", "not 1");
        refused(json!({"tools": [{"function": {"name": "f"}}]}), Invalid, "tools[0].type", "function");
        refused(json!({"tools": [{"type": "web_search"}]}), Unsupported, "tools[0].type", "`web_search`");
        refused(json!({"tools": [{"type": "function"}]}), Invalid, "tools[0].function", "an object");
        refused(json!({"tools": [good, good]}), Invalid, "tools[1].function.name", "`f`");
        refused(function(json!({})), Invalid, "tools[0].function.name", "nothing");
        for name in ["", "a b", "é", "a>", &"x".repeat(65)] {
            refused(function(json!({"name": name})), Invalid, "tools[0].function.name", "1 to 64");
        }
        let at = |field: &str, value: Value| function(json!({"name": "f", field: value}));
        refused(at("description", json!(1)), Invalid, "tools[0].function.description", "a string");
        refused(at("parameters", json!([])), Invalid, "tools[0].function.parameters", "a JSON schema");
        refused(at("parameters", json!({"type": "string"})), Invalid, "tools[0].function.parameters.type", "object");
        refused(at("strict", json!("yes")), Invalid, "tools[0].function.strict", "a boolean");
    }

    #[test]
    fn a_choice_names_what_may_be_called() {
        let f = json!({"type": "function", "function": {"name": "f"}});
        let g = json!({"type": "function", "function": {"name": "g"}});
        let chosen = |choice: Value| {
            let got = settings(json!({"tools": [f, g], "tool_choice": choice})).unwrap();
            let names: Vec<String> = got.callable().iter().map(|tool| tool.name.clone()).collect();
            (got.choice, names.join(","), got.parallel)
        };
        let allowed = json!({"mode": "required", "tools": [g]});
        for (choice, expected) in [
            (json!("required"), (ToolChoice::Required, "f,g".to_owned(), true)),
            (g.clone(), (ToolChoice::Required, "g".to_owned(), false)),
            (json!({"type": "function", "name": "f"}), (ToolChoice::Required, "f".to_owned(), false)),
            (json!({"type": "allowed_tools", "allowed_tools": allowed}), (ToolChoice::Required, "g".to_owned(), true)),
            (json!({"type": "allowed_tools", "mode": "auto", "tools": [f]}), (ToolChoice::Auto, "f".to_owned(), true)),
        ] {
            assert_eq!(chosen(choice.clone()), expected, "{choice}");
        }
    }

    #[test]
    fn limits_hold() {
        let tool = |name: String| json!({"type": "function", "function": {"name": name}});
        let tools: Vec<_> = (0..4).map(|i| tool(format!("f{i}"))).collect();
        assert_eq!(settings(json!({"tools": tools[..3]})).unwrap().tools.len(), 3);
        refused(json!({"tools": tools}), TooLarge, "tools", "at most 3");
        refused(function(json!({"name": "f", "description": "x".repeat(5000)})), TooLarge, "tools", "at most 4096");
    }

    #[test]
    fn a_choice_that_cannot_be_made_is_refused_by_name() {
        let with = |choice: Value| {
            let mut body = function(json!({"name": "f"}));
            body["tool_choice"] = choice;
            body
        };
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        refused(with(named("g")), Invalid, "tool_choice.function.name", "does not declare");
        refused(with(json!({"type": "function"})), Invalid, "tool_choice.name", "a string");
        refused(with(json!({"type": "allowed_tools", "mode": "none"})), Invalid, "tool_choice.mode", "required");
        let none = json!({"type": "allowed_tools", "mode": "auto", "tools": []});
        refused(with(none), Invalid, "tool_choice.tools", "a list");
        refused(with(json!({"type": "custom", "custom": {"name": "f"}})), Unsupported, "tool_choice.type", "`custom`");
        refused(json!({"tool_choice": "required"}), Invalid, "tool_choice", "declares no function");
        refused(json!({"tool_choice": "any"}), Invalid, "tool_choice", "\"any\"");
        refused(json!({"tool_choice": {}}), Invalid, "tool_choice.type", "auto");
        refused(json!({"tool_choice": 1}), Invalid, "tool_choice", "not 1");
        refused(json!({"parallel_tool_calls": "no"}), Invalid, "parallel_tool_calls", "a boolean");
    }
}
