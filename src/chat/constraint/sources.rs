//! Which constraint the fields of a request ask for. One at most: two at once is an error, not a
//! choice of ours.

use serde_json::{Map, Value};

use crate::chat::error::RequestError;
use crate::chat::fields::{ConstraintFields, FieldValue};
use crate::chat::json::strings;
use crate::grammar::Source;

type Asked = Result<Option<FieldValue<Source>>, RequestError>;

/// What a request asks of its answer.
#[derive(Clone, Debug, Default)]
pub struct AnswerConstraint {
    /// The constraint with the field that carried it.
    pub source: Option<FieldValue<Source>>,
    pub scope: Scope,
}

/// Members of vLLM's object that choose a back end or a way to print.
const WITHOUT_EFFECT: [&str; 5] =
    ["backend", "disable_any_whitespace", "disable_fallback", "disable_additional_properties", "whitespace_pattern"];

/// Where the constraint holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// What follows the thinking.
    #[default]
    Answer,
    /// Everything that is generated.
    Whole,
}

/// The constraint that the fields ask for. Members of objects that say nothing here go to
/// `ignored`.
///
/// # Errors
/// Names the field.
pub fn read(fields: ConstraintFields, ignored: &mut Vec<String>) -> Result<AnswerConstraint, RequestError> {
    let ConstraintFields {
        response_format,
        json_schema,
        grammar,
        ebnf,
        regex,
        guided_json,
        guided_regex,
        guided_choice,
        guided_grammar,
        structured_outputs,
        constraint_scope,
    } = fields;
    let text = |param, value: Option<String>, make: fn(String) -> Source| {
        value.filter(|text| !text.is_empty()).map(|text| FieldValue { param, value: make(text) })
    };
    let asked = [
        response_format.map_or(Ok(None), |value| format(&value))?,
        json_schema.map(|value| schema("json_schema", &value)).transpose()?,
        text("grammar", grammar, dialect),
        text("ebnf", ebnf, dialect),
        text("regex", regex, Source::Regex),
        guided_json.map(|value| schema("guided_json", &value)).transpose()?,
        text("guided_regex", guided_regex, Source::Regex),
        guided_choice.map(|texts| FieldValue { param: "guided_choice", value: Source::Choice(texts) }),
        text("guided_grammar", guided_grammar, dialect),
        structured_outputs.as_ref().map_or(Ok(None), structured)?,
    ];
    let mut asked = asked.into_iter().flatten();
    let first = asked.next();
    if let (Some(first), Some(second)) = (&first, asked.next()) {
        let message = format!("`{}` and `{}` both constrain the answer; send one of them", first.param, second.param);
        return Err(RequestError::invalid(second.param, message));
    }
    let members =
        structured_outputs.iter().flatten().filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str());
    let idle = members.filter(|key| WITHOUT_EFFECT.contains(key));
    ignored.extend(idle.map(|key| format!("structured_outputs.{key}")));
    Ok(AnswerConstraint { source: first, scope: scope(constraint_scope.as_deref())? })
}

fn scope(text: Option<&str>) -> Result<Scope, RequestError> {
    match text {
        None | Some("answer") => Ok(Scope::Answer),
        Some("whole") => Ok(Scope::Whole),
        Some(other) => {
            let message = format!("`constraint_scope` is {other:?}; it must be \"answer\" or \"whole\"");
            Err(RequestError::invalid("constraint_scope", message))
        }
    }
}

/// GBNF defines with `::=`, Lark with `:`.
fn dialect(text: String) -> Source {
    if text.contains("::=") { Source::Gbnf(text) } else { Source::Lark(text) }
}

/// A schema, or its JSON text.
fn schema(param: &'static str, value: &Value) -> Result<FieldValue<Source>, RequestError> {
    let schema = match value {
        Value::Object(_) | Value::Bool(_) => value.clone(),
        Value::String(text) => serde_json::from_str(text)
            .map_err(|error| RequestError::invalid(param, format!("`{param}` is a text that is no JSON: {error}")))?,
        other => {
            let message = format!("`{param}` must be a JSON schema (an object), not {}", kind(other));
            return Err(RequestError::invalid(param, message));
        }
    };
    Ok(FieldValue { param, value: Source::JsonSchema(schema) })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// `response_format`, in OpenAI's nesting (`json_schema.schema`) and in llama.cpp's (`schema`).
fn format(value: &Value) -> Asked {
    let param = "response_format";
    let Some(map) = value.as_object() else {
        return Err(RequestError::invalid(param, format!("`{param}` must be an object, not {}", kind(value))));
    };
    let at = |key: &str| map.get(key).filter(|value| !value.is_null());
    let named = |value| Ok(Some(FieldValue { param, value }));
    match map.get("type").and_then(Value::as_str) {
        Some("text") => Ok(None),
        Some("json_object") => match at("schema") {
            Some(value) => schema(param, value).map(Some),
            None => named(Source::JsonObject),
        },
        Some("json_schema") => {
            let inner = at("json_schema").and_then(|inner| inner.get("schema")).or_else(|| at("schema"));
            let inner = inner.ok_or_else(|| {
                let path = "response_format.json_schema.schema";
                RequestError::invalid(
                    path,
                    format!("`{path}` is missing: it is the schema that the answer must follow"),
                )
            })?;
            schema(param, inner).map(Some)
        }
        Some(kind @ ("grammar" | "regex")) => {
            let text = at(kind).or_else(|| at("value")).and_then(Value::as_str).ok_or_else(|| {
                let path = format!("response_format.{kind}");
                RequestError::invalid(&*path, format!("`{path}` must be a string"))
            })?;
            named(if kind == "regex" { Source::Regex(text.to_owned()) } else { dialect(text.to_owned()) })
        }
        _ => {
            let message = "`response_format.type` must be \"text\", \"json_object\", \"json_schema\", \"grammar\" or \
                           \"regex\"";
            Err(RequestError::invalid("response_format.type", message))
        }
    }
}

/// vLLM's object.
fn structured(map: &Map<String, Value>) -> Asked {
    let param = "structured_outputs";
    let mut found: Option<(&str, Source)> = None;
    for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        let path = format!("{param}.{key}");
        let wrong = |wanted: &str| RequestError::invalid(&*path, format!("`{path}` must be {wanted}"));
        let text = || value.as_str().map(str::to_owned).ok_or_else(|| wrong("a string"));
        let source = match key.as_str() {
            "json" => schema(param, value)?.value,
            "json_object" => match value {
                Value::Bool(true) => Source::JsonObject,
                Value::Bool(false) => continue,
                _ => return Err(wrong("true or false")),
            },
            "regex" => Source::Regex(text()?),
            "grammar" => dialect(text()?),
            "choice" => Source::Choice(strings(value).ok_or_else(|| wrong("a list of strings"))?),
            key if WITHOUT_EFFECT.contains(&key) => continue,
            _ => return Err(RequestError::unsupported(&*path, format!("`{path}` is not served; leave it out"))),
        };
        if let Some((other, _)) = &found {
            let message = format!("`{param}.{other}` and `{path}` both constrain the answer; send one of them");
            return Err(RequestError::invalid(path, message));
        }
        found = Some((key, source));
    }
    Ok(found.map(|(_, value)| FieldValue { param, value }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chat::fields::Members;

    fn read_json(body: Value) -> Result<Option<Source>, RequestError> {
        let Members { known, .. } = serde_json::from_value(body).unwrap();
        read(known, &mut Vec::new()).map(|constraint| constraint.source.map(|source| source.value))
    }

    #[test]
    fn every_spelling_is_read() {
        let schema = json!({ "type": "object" });
        let json = Some(Source::JsonSchema(schema.clone()));
        let regex = Some(Source::Regex("a+".into()));
        let gbnf = Some(Source::Gbnf("root ::= \"a\"".into()));
        let choice = Some(Source::Choice(vec!["a".into(), "b".into()]));
        for (body, expected) in [
            (json!({}), None),
            (json!({"response_format": {"type": "text"}}), None),
            (json!({"grammar": ""}), None),
            (json!({"structured_outputs": {"json_object": false, "backend": "auto"}}), None),
            (json!({"response_format": {"type": "json_object"}}), Some(Source::JsonObject)),
            (json!({"response_format": {"type": "json_object", "schema": schema}}), json.clone()),
            (
                json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}}),
                json.clone(),
            ),
            (json!({"response_format": {"type": "json_schema", "schema": schema}}), json.clone()),
            (json!({"response_format": {"type": "regex", "regex": "a+"}}), regex.clone()),
            (json!({"response_format": {"type": "grammar", "grammar": "root ::= \"a\""}}), gbnf.clone()),
            (json!({"json_schema": schema}), json.clone()),
            (json!({"guided_json": schema.to_string()}), json.clone()),
            (json!({"structured_outputs": {"json": schema}}), json),
            (json!({"regex": "a+"}), regex.clone()),
            (json!({"guided_regex": "a+"}), regex.clone()),
            (json!({"structured_outputs": {"regex": "a+"}}), regex),
            (json!({"grammar": "root ::= \"a\""}), gbnf.clone()),
            (json!({"ebnf": "root ::= \"a\""}), gbnf.clone()),
            (json!({"guided_grammar": "root ::= \"a\""}), gbnf.clone()),
            (json!({"structured_outputs": {"grammar": "root ::= \"a\""}}), gbnf),
            (json!({"grammar": "start: \"a\""}), Some(Source::Lark("start: \"a\"".into()))),
            (json!({"guided_choice": ["a", "b"]}), choice.clone()),
            (json!({"structured_outputs": {"choice": ["a", "b"]}}), choice),
        ] {
            assert_eq!(read_json(body.clone()).unwrap(), expected, "{body}");
        }
    }

    #[test]
    fn members_without_effect_are_named() {
        let body = json!({"structured_outputs": {"regex": "a", "backend": "auto", "whitespace_pattern": null}});
        let Members { known, .. } = serde_json::from_value(body).unwrap();
        let mut ignored = Vec::new();
        read(known, &mut ignored).unwrap();
        assert_eq!(ignored, ["structured_outputs.backend"]);
    }

    #[test]
    fn faults_name_their_field() {
        for (body, param) in [
            (json!({"response_format": "json"}), "response_format"),
            (json!({"response_format": {"type": "xml"}}), "response_format.type"),
            (json!({"response_format": {"type": "json_schema"}}), "response_format.json_schema.schema"),
            (json!({"response_format": {"type": "json_schema", "schema": 5}}), "response_format"),
            (json!({"response_format": {"type": "regex"}}), "response_format.regex"),
            (json!({"json_schema": []}), "json_schema"),
            (json!({"guided_json": "{"}), "guided_json"),
            (json!({"structured_outputs": {"choice": [1]}}), "structured_outputs.choice"),
            (json!({"structured_outputs": {"json_object": 1}}), "structured_outputs.json_object"),
            (json!({"structured_outputs": {"structural_tag": "x"}}), "structured_outputs.structural_tag"),
            (json!({"structured_outputs": {"regex": "a", "json": {}}}), "structured_outputs.json"),
            (json!({"grammar": "root ::= \"a\"", "regex": "a"}), "regex"),
            (json!({"constraint_scope": "all"}), "constraint_scope"),
        ] {
            let error = read_json(body.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}: {error}");
        }
    }
}
