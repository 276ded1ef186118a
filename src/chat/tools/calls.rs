//! The shapes of the calls that may be made, from the declarations: what of a parameter is text,
//! and what is JSON.
//!
//! It follows what the reader of calls takes a value for (`value`), so that what is generated is
//! read back as it was meant.

use serde_json::{Map, Value};

use super::declared::ToolSettings;
use super::schema::Kinds;
use super::tool::Tool;
use crate::chat::json::strings;
use crate::chat::template::ChatTemplate;
use crate::grammar::{CallBody, CallShape, Parameter, ParameterValue};

/// Where schemas keep what their parts refer to.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

/// How a model writes calls, by its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// Qwen's XML.
    Xml,
    /// Hermes' JSON.
    Json,
    /// The template does not tell.
    Either,
}

impl CallForm {
    pub fn of(template: &ChatTemplate) -> CallForm {
        match (template.mentions("<function="), template.mentions("\"arguments\"")) {
            (true, _) => CallForm::Xml,
            (false, true) => CallForm::Json,
            (false, false) => CallForm::Either,
        }
    }
}

/// A shape for every way of calling every tool that may be called.
pub fn call_shapes(tools: &ToolSettings, form: CallForm) -> Vec<CallShape> {
    let callable = tools.callable();
    let declared = tools.tools.iter().enumerate();
    let called = declared.filter(|(_, tool)| callable.iter().any(|callable| callable.name == tool.name));
    let forms: &[bool] = match form {
        CallForm::Xml => &[true],
        CallForm::Json => &[false],
        CallForm::Either => &[true, false],
    };
    called.flat_map(|(i, tool)| forms.iter().map(move |xml| shape(tool, i, *xml))).collect()
}

fn shape(tool: &Tool, index: usize, xml: bool) -> CallShape {
    let body = if xml {
        CallBody::Xml { parameters: parameters(tool), open: is_open(tool) }
    } else if tool.strict == Some(false) {
        CallBody::Json(Value::Object(Map::from_iter([("type".to_owned(), Value::from("object"))])))
    } else {
        CallBody::Json(tool.parameters.clone())
    };
    CallShape { name: tool.name.clone(), body, path: format!("tools[{index}].function.parameters") }
}

fn properties(tool: &Tool) -> Option<&Map<String, Value>> {
    tool.parameters.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty())
}

/// Nothing is declared, and nothing forbidden.
fn is_open(tool: &Tool) -> bool {
    properties(tool).is_none() && tool.parameters.get("additionalProperties") != Some(&Value::Bool(false))
}

fn parameters(tool: &Tool) -> Vec<Parameter> {
    let required: Vec<&str> = tool
        .parameters
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let parameter = |(name, schema): (&String, &Value)| Parameter {
        name: name.clone(),
        required: required.contains(&name.as_str()),
        value: value(tool, name, schema),
    };
    properties(tool).into_iter().flatten().map(parameter).collect()
}

fn value(tool: &Tool, name: &str, schema: &Value) -> ParameterValue {
    let kinds = Kinds::of_parameter(tool, name);
    let is_free = tool.strict == Some(false);
    if kinds.has(Kinds::STRING) {
        let named = schema.get("enum").and_then(strings).filter(|texts| !texts.is_empty());
        let one = schema.get("const").and_then(Value::as_str).map(|text| vec![text.to_owned()]);
        return match named.or(one) {
            Some(texts) if !is_free && kinds == Kinds::STRING => ParameterValue::OneOf(texts),
            _ => ParameterValue::Text,
        };
    }
    if is_free {
        return ParameterValue::Json(Value::Object(Map::new()));
    }
    let mut schema = schema.clone();
    if let (Value::Object(map), Value::Object(root)) = (&mut schema, &tool.parameters) {
        for key in DEFINITIONS {
            if let Some(definitions) = root.get(key).filter(|_| !map.contains_key(key)) {
                map.insert(key.to_owned(), definitions.clone());
            }
        }
    }
    ParameterValue::Json(schema)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(parameters: Value, strict: Option<bool>) -> Tool {
        Tool { name: "f".into(), description: None, parameters, strict, raw: Value::Null }
    }

    fn values(tool: &Tool) -> Vec<(String, bool, ParameterValue)> {
        parameters(tool).into_iter().map(|p| (p.name, p.required, p.value)).collect()
    }

    #[test]
    fn strings_are_text_and_the_rest_is_json_with_its_definitions() {
        let schema = json!({
            "properties": {
                "s": {"type": "string"}, "e": {"enum": ["a", "b"]}, "c": {"const": "x"}, "n": {"type": ["string", "null"]},
                "any": {}, "i": {"$ref": "#/$defs/count"}, "mixed": {"enum": ["a", 1]},
            },
            "required": ["e"],
            "$defs": {"count": {"type": "integer"}},
        });
        let text = ParameterValue::Text;
        let one = |texts: &[&str]| ParameterValue::OneOf(texts.iter().map(|t| (*t).to_owned()).collect());
        let count = json!({"$ref": "#/$defs/count", "$defs": {"count": {"type": "integer"}}});
        let expected = [
            ("s", false, text.clone()),
            ("e", true, one(&["a", "b"])),
            ("c", false, one(&["x"])),
            ("n", false, text.clone()),
            ("any", false, text.clone()),
            ("i", false, ParameterValue::Json(count)),
            ("mixed", false, text.clone()),
        ];
        let got = values(&tool(schema.clone(), None));
        assert_eq!(got, expected.map(|(name, required, value)| (name.to_owned(), required, value)));
        let free = values(&tool(schema, Some(false)));
        assert_eq!((&free[1].2, &free[5].2), (&text, &ParameterValue::Json(json!({}))));
    }

    #[test]
    fn a_tool_without_parameters_is_open_unless_it_says_no() {
        assert!(is_open(&tool(json!({}), None)));
        assert!(is_open(&tool(json!({"type": "object", "properties": {}}), None)));
        assert!(!is_open(&tool(json!({"properties": {}, "additionalProperties": false}), None)));
        assert!(!is_open(&tool(json!({"properties": {"a": {}}}), None)));
    }
}
