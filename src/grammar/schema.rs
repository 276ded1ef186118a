//! JSON Schema: from what a client sends to what `llguidance` compiles, less strict where that is out of reach.
//!
//! Two passes. `normalise` keeps the keywords that are known to work, resolves references and says which keywords it left
//! out. `weaken` compiles the result and, if that fails, finds the smallest part that fails and makes it less strict. Each
//! loss is listed with its JSON pointer. What cannot be repaired (a malformed schema, a remote reference, a schema without
//! any value) is an error: never an unconstrained whole.
//!
//! Two things are stricter than the standard: an object that lists its properties and says nothing of others has no others,
//! and a schema without `type` has the type that its keywords speak of. Whitespace is a space, or a line break with
//! indentation, between tokens.

mod exclusive;
mod finite;
mod keywords;
mod normalise;
mod refs;
mod weaken;

use serde_json::{Value, json};

use super::error::GrammarError;

/// Bytes of a schema as compact JSON.
const MAX_BYTES: usize = 2 * 1024 * 1024;

/// A part of a schema that holds less strictly than asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widened {
    /// Where: a JSON pointer into the schema as sent.
    pub pointer: String,
    /// What is not enforced, and why.
    pub what: String,
    /// What holds instead.
    pub to: String,
}

/// The schema for `llguidance`, and what it does not enforce.
pub(super) fn lower(schema: &Value) -> Result<(Value, Vec<Widened>), GrammarError> {
    let bytes = serde_json::to_string(schema).map_or(0, |text| text.len());
    GrammarError::within("bytes of the schema", bytes, MAX_BYTES)?;
    let mut clean = normalise::normalise(schema)?;
    finite::check(&clean)?;
    weaken::weaken(&mut clean)?;
    let mut root = clean.document();
    root["x-guidance"] = options();
    Ok((root, clean.widened))
}

/// How JSON is written: `"a": 1`, `"a":1` or over lines, and never an endless run of blanks.
fn options() -> Value {
    json!({
        "whitespace_pattern": r"\x20|\n[\x20\t]{0,40}",
        "coerce_one_of": true,
    })
}

/// A schema of known keywords alone. References are `#/$defs/N`.
struct Clean {
    root: Value,
    /// The targets of references, with the pointer that each has in the schema as sent.
    defs: Vec<(String, Value)>,
    widened: Vec<Widened>,
}

impl Clean {
    /// The whole as one schema.
    fn document(&self) -> Value {
        self.with_defs(&self.root)
    }

    /// A part as a schema of its own.
    fn with_defs(&self, part: &Value) -> Value {
        let mut whole = match part {
            Value::Object(map) => Value::Object(map.clone()),
            Value::Bool(false) => json!({"anyOf": [false]}),
            _ => json!({}),
        };
        if !self.defs.is_empty() {
            let defs = self.defs.iter().enumerate().map(|(index, (_, value))| (index.to_string(), value.clone()));
            whole["$defs"] = Value::Object(defs.collect());
        }
        whole
    }

    fn note(&mut self, pointer: &str, what: impl Into<String>, to: impl Into<String>) {
        self.widened.push(Widened { pointer: pointer.to_owned(), what: what.into(), to: to.into() });
    }
}

/// A JSON pointer one step further.
fn join(pointer: &str, step: &str) -> String {
    format!("{pointer}/{}", step.replace('~', "~0").replace('/', "~1"))
}
