//! The tool fields of a request: `tools`, `tool_choice`, `parallel_tool_calls`.
//!
//! Deliberately absent: the old `functions` pair (refused before it gets here), and judging the JSON schema of the parameters. It goes to the template as it was sent.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::{Tool, ToolChoice};
use crate::chat::RequestError;

/// Longest function name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Limits of the profile on what a client may declare.
#[derive(Clone, Copy, Debug)]
pub struct ToolLimits {
    pub max_tools: usize,
    /// JSON text of all tools together, as it would be printed into the prompt.
    pub max_bytes: usize,
}

/// The fields of a chat request that concern tools, as sent; a field that is absent or null is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ToolFields<'a> {
    pub tools: Option<&'a Value>,
    pub tool_choice: Option<&'a Value>,
    pub parallel_tool_calls: Option<&'a Value>,
}

/// What the request asks for, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSettings {
    pub tools: Vec<Tool>,
    pub choice: ToolChoice,
    /// `parallel_tool_calls`, true when absent.
    pub parallel: bool,
    /// Paths of fields that have no effect.
    pub ignored: Vec<String>,
}

impl ToolSettings {
    /// Checks every field; the error names the path of the first fault. Without tools, `tool_choice` "auto" and "none" and
    /// either value of `parallel_tool_calls` are accepted, since all of them mean the same then.
    pub fn from_fields(fields: ToolFields<'_>, limits: ToolLimits) -> Result<ToolSettings, RequestError> {
        let mut ignored = Vec::new();
        Ok(ToolSettings {
            tools: fields.tools.map_or(Ok(Vec::new()), |value| tools(value, limits, &mut ignored))?,
            choice: fields.tool_choice.map_or(Ok(ToolChoice::Auto), choice)?,
            parallel: fields.parallel_tool_calls.map_or(Ok(true), parallel)?,
            ignored,
        })
    }

    /// The tools whose calls are to be parsed: none when the choice is `none`.
    pub fn callable(&self) -> &[Tool] {
        match self.choice {
            ToolChoice::Auto => &self.tools,
            ToolChoice::None => &[],
        }
    }
}

fn tools(value: &Value, limits: ToolLimits, ignored: &mut Vec<String>) -> Result<Vec<Tool>, RequestError> {
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
        let tool = tool(value, &format!("tools[{i}]"), ignored)?;
        if !names.insert(tool.name.clone()) {
            let message = format!("the name `{}` is declared twice; every tool needs its own", tool.name);
            return Err(RequestError::invalid(format!("tools[{i}].function.name"), message));
        }
        tools.push(tool);
    }
    Ok(tools)
}

fn tool(value: &Value, path: &str, ignored: &mut Vec<String>) -> Result<Tool, RequestError> {
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
    if is_strict(function, &at)? {
        ignored.push(format!("{at}.strict"));
    }
    Ok(Tool {
        name: name(function, &at)?,
        description: description(function, &at)?,
        parameters: parameters(function, &at)?,
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

/// Clients that send `strict: true` by default mean no harm by it, but arguments are not constrained by the schema.
fn is_strict(function: &Map<String, Value>, at: &str) -> Result<bool, RequestError> {
    match function.get("strict") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(strict)) => Ok(*strict),
        Some(other) => Err(wrong_type(&format!("{at}.strict"), "a boolean", other)),
    }
}

fn choice(value: &Value) -> Result<ToolChoice, RequestError> {
    let forced = |what: &str| {
        let message = format!("{what} is not served: calls cannot be forced; send \"auto\" or \"none\"");
        RequestError::unsupported("tool_choice", message)
    };
    match value {
        Value::String(text) => match text.as_str() {
            "auto" => Ok(ToolChoice::Auto),
            "none" => Ok(ToolChoice::None),
            "required" => Err(forced("\"required\"")),
            other => {
                let message = format!("{other:?} is no tool choice; send \"auto\" or \"none\"");
                Err(RequestError::invalid("tool_choice", message))
            }
        },
        Value::Object(object) => match object.get("type").and_then(Value::as_str) {
            Some(kind @ ("function" | "allowed_tools" | "custom")) => {
                Err(forced(&format!("a choice of type `{kind}`")))
            }
            _ => {
                Err(RequestError::invalid("tool_choice.type", "unknown kind of tool choice; send \"auto\" or \"none\""))
            }
        },
        other => Err(wrong_type("tool_choice", "a string or an object", other)),
    }
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
    use crate::chat::RequestErrorKind::{Invalid, TooLarge, Unsupported};

    const LIMITS: ToolLimits = ToolLimits { max_tools: 3, max_bytes: 4096 };

    fn settings(body: Value) -> Result<ToolSettings, RequestError> {
        let Value::Object(body) = body else { panic!("not an object: {body}") };
        let field = |name: &str| body.get(name).filter(|value| !value.is_null());
        let fields = ToolFields {
            tools: field("tools"),
            tool_choice: field("tool_choice"),
            parallel_tool_calls: field("parallel_tool_calls"),
        };
        ToolSettings::from_fields(fields, LIMITS)
    }

    fn function(function: Value) -> Value {
        json!({"tools": [{"type": "function", "function": function}]})
    }

    #[track_caller]
    fn refused(body: Value, kind: crate::chat::RequestErrorKind, param: &str, message: &str) {
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
        let tool = Tool { name: "mcp:a.b-c_9".into(), description: Some("d".into()), parameters, raw };
        let expected =
            ToolSettings { tools: vec![tool], choice: ToolChoice::Auto, parallel: false, ignored: Vec::new() };
        assert_eq!(got, expected);
    }

    #[test]
    fn absent_and_null_fields_have_defaults() {
        let none = ToolSettings { tools: Vec::new(), choice: ToolChoice::Auto, parallel: true, ignored: Vec::new() };
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
    fn a_strict_tool_is_taken_and_reported() {
        let tool =
            |name: &str, strict: Value| json!({"type": "function", "function": {"name": name, "strict": strict}});
        let tools = json!([tool("a", json!(false)), tool("b", json!(true)), tool("c", json!(null))]);
        let got = settings(json!({"tools": tools})).unwrap();
        assert_eq!((got.tools.len(), got.ignored), (3, vec!["tools[1].function.strict".to_owned()]));
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
    fn forced_calls_are_refused_by_name() {
        refused(json!({"tool_choice": "required"}), Unsupported, "tool_choice", "required");
        let named = json!({"tool_choice": {"type": "function", "function": {"name": "f"}}});
        refused(named, Unsupported, "tool_choice", "`function`");
        refused(json!({"tool_choice": "any"}), Invalid, "tool_choice", "\"any\"");
        refused(json!({"tool_choice": {}}), Invalid, "tool_choice.type", "auto");
        refused(json!({"tool_choice": 1}), Invalid, "tool_choice", "not 1");
        refused(json!({"parallel_tool_calls": "no"}), Invalid, "parallel_tool_calls", "a boolean");
    }
}
