//! Calls of tools, from behind the token that begins a call to the token that ends it, as a grammar.
//!
//! Two ways of writing: Qwen's XML, where a parameter is text or JSON between tags, and Hermes' JSON. What a parameter may hold
//! comes from outside as a shape; which JSON types mean text is not decided here. A schema that is out of reach is made less
//! strict for its parameter alone, and said so: one bad tool never spoils the others.

use std::fmt::Write as _;

use llguidance::api::TopLevelGrammar;
use serde_json::{Map, Value, json};

use super::error::GrammarError;
use super::schema::{self, Widened};
use crate::units::Token;

/// Up to so many parameters of a tool may come in any order; the grammar has a rule for each set of them that is given. More
/// come in the order in which they are declared.
const MAX_FREE_ORDER: usize = 4;

/// Values of a parameter that are told apart.
const MAX_TEXTS: usize = 1_000;

/// The calls that may be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    pub shapes: Vec<CallShape>,
    /// The token that ends a call.
    pub end: Token,
}

/// Calls of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CallShape {
    pub name: String,
    pub body: CallBody,
    /// Path of the parameters' schema in the request, for what is widened.
    pub path: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum CallBody {
    Xml {
        parameters: Vec<Parameter>,
        /// Parameters that are not declared may be given too, as text.
        open: bool,
    },
    /// A schema of the arguments.
    Json(Value),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub required: bool,
    pub value: ParameterValue,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ParameterValue {
    Text,
    OneOf(Vec<String>),
    /// A schema; it may refer to its own `$defs`.
    Json(Value),
}

impl Calls {
    /// Lowers all shapes.
    ///
    /// # Errors
    /// There is no tool to call.
    pub(super) fn lower(&self) -> Result<(TopLevelGrammar, Vec<Widened>), GrammarError> {
        if self.shapes.is_empty() {
            return Err(GrammarError::Refused("there is no tool to call; declare one".to_owned()));
        }
        let mut writer = Writer { out: String::new(), widened: Vec::new() };
        let names: Vec<String> = (0..self.shapes.len()).map(|i| format!("call_{i}")).collect();
        let _ = writeln!(writer.out, "start: \"\\n\" ({}) \"\\n\" <[{}]>", names.join(" | "), self.end.0);
        let _ = writeln!(writer.out, "text[suffix=\"\\n</parameter>\\n\"]: /(?s:.*)/");
        for (i, shape) in self.shapes.iter().enumerate() {
            match &shape.body {
                CallBody::Json(schema) => writer.json(i, shape, schema),
                CallBody::Xml { parameters, open } => writer.xml(i, shape, parameters, *open),
            }
        }
        Ok((TopLevelGrammar::from_lark(writer.out), writer.widened))
    }
}

struct Writer {
    out: String,
    widened: Vec<Widened>,
}

impl Writer {
    fn json(&mut self, i: usize, shape: &CallShape, schema: &Value) {
        let mut arguments = self.schema(schema, &shape.path, json!({"type": "object"}));
        let mut whole = json!({
            "type": "object",
            "properties": { "name": { "const": shape.name } },
            "required": ["name", "arguments"],
            "additionalProperties": false,
        });
        // References are written against the root, and options hold for the whole.
        if let Value::Object(map) = &mut arguments {
            for key in ["$defs", "x-guidance"] {
                if let Some(value) = map.remove(key) {
                    whole[key] = value;
                }
            }
        }
        whole["properties"]["arguments"] = arguments;
        let _ = writeln!(self.out, "call_{i}: %json {whole}");
    }

    fn xml(&mut self, i: usize, shape: &CallShape, parameters: &[Parameter], open: bool) {
        let sayable: Vec<&Parameter> =
            parameters.iter().filter(|parameter| self.can_be_said(parameter, shape)).collect();
        for (k, parameter) in sayable.iter().enumerate() {
            let opening = quoted(&format!("<parameter={}>\n", parameter.name));
            let value = self.value(parameter, shape);
            let _ = writeln!(self.out, "p_{i}_{k}: {opening} {value}");
        }
        let head = quoted(&format!("<function={}>\n", shape.name));
        if open {
            let _ = writeln!(self.out, "other_{i}: \"<parameter=\" /[A-Za-z_][A-Za-z0-9_.\\-]{{0,63}}/ \">\\n\" text");
        }
        let others = if open { format!(" other_{i}*") } else { String::new() };
        if sayable.len() > MAX_FREE_ORDER {
            let part = |(k, p): (usize, &&Parameter)| format!(" p_{i}_{k}{}", if p.required { "" } else { "?" });
            let parts: String = sayable.iter().enumerate().map(part).collect();
            let _ = writeln!(self.out, "call_{i}: {head}{parts}{others} \"</function>\"");
            return;
        }
        let _ = writeln!(self.out, "call_{i}: {head} s_{i}_0");
        self.any_order(i, &sayable, &others);
    }

    /// A rule for every set of parameters that are given already.
    fn any_order(&mut self, i: usize, parameters: &[&Parameter], others: &str) {
        for set in 0..1_usize << parameters.len() {
            let given = |k: usize| set >> k & 1 == 1;
            let mut options: Vec<String> = (0..parameters.len())
                .filter(|k| !given(*k))
                .map(|k| format!("p_{i}_{k} s_{i}_{}", set | 1 << k))
                .collect();
            if parameters.iter().enumerate().all(|(k, parameter)| given(k) || !parameter.required) {
                options.push(format!("{others} \"</function>\"").trim_start().to_owned());
            }
            let _ = writeln!(self.out, "s_{i}_{set}: {}", options.join(" | "));
        }
    }

    /// A name that cannot stand in a tag cannot be given.
    fn can_be_said(&mut self, parameter: &Parameter, shape: &CallShape) -> bool {
        let fits = !parameter.name.is_empty() && !parameter.name.contains(['>', '<', '\n']);
        if !fits {
            let what = format!("the name {:?} cannot be written in a call", parameter.name);
            self.note(shape, &parameter.name, what, "calls without it");
        }
        fits
    }

    fn value(&mut self, parameter: &Parameter, shape: &CallShape) -> String {
        match &parameter.value {
            ParameterValue::Text => "text".to_owned(),
            ParameterValue::OneOf(texts) if texts.len() > MAX_TEXTS => {
                let what = format!("{} values are more than {MAX_TEXTS}", texts.len());
                self.note(shape, &parameter.name, what, "any text");
                "text".to_owned()
            }
            ParameterValue::OneOf(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
                format!("({}) \"\\n</parameter>\\n\"", texts.join(" | "))
            }
            ParameterValue::Json(schema) => {
                let path = format!("{}/properties/{}", shape.path, parameter.name);
                let schema = self.schema(schema, &path, Value::Object(Map::new()));
                format!("%json {schema} \"\\n</parameter>\\n\"")
            }
        }
    }

    /// Lowers a schema on its own; `widest` where it cannot be.
    fn schema(&mut self, schema: &Value, path: &str, widest: Value) -> Value {
        match schema::lower(schema) {
            Ok((schema, widened)) => {
                let at = |w: Widened| Widened { pointer: format!("{path}{}", w.pointer), ..w };
                self.widened.extend(widened.into_iter().map(at));
                schema
            }
            Err(error) => {
                let to = if widest == json!({}) { "any JSON value" } else { "any JSON object" };
                self.widened.push(Widened { pointer: path.to_owned(), what: error.to_string(), to: to.to_owned() });
                let (schema, _) = schema::lower(&widest).unwrap_or((widest, Vec::new()));
                schema
            }
        }
    }

    fn note(&mut self, shape: &CallShape, name: &str, what: String, to: &str) {
        let pointer = format!("{}/properties/{name}", shape.path);
        self.widened.push(Widened { pointer, what, to: to.to_owned() });
    }
}

/// A literal of the grammar language, which writes strings as JSON does.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
