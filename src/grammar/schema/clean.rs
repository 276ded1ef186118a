//! The schema between the passes, and what they share.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::grammar::relaxed::Relaxed;

/// Schemas inside one another.
pub(super) const MAX_DEPTH: usize = 64;

/// A schema of simple keywords alone. References are `#/$defs/N`.
pub(super) struct Clean {
    pub root: Value,
    /// The targets of references, with the pointer that each has in the schema as sent.
    pub defs: Vec<(String, Value)>,
    /// Where parts come from: a definition or the root and a pointer in it, and the pointer in the schema as sent.
    pub origins: HashMap<(Option<usize>, String), String>,
    pub relaxed: Vec<Relaxed>,
    /// Strings are written without `\u`.
    pub no_escapes: bool,
}

impl Clean {
    pub(super) fn new() -> Clean {
        Clean { root: Value::Null, defs: Vec::new(), origins: HashMap::new(), relaxed: Vec::new(), no_escapes: false }
    }

    /// The whole as one schema.
    pub(super) fn document(&self) -> Value {
        self.with_defs(&self.root)
    }

    /// A part as a schema of its own.
    pub(super) fn with_defs(&self, part: &Value) -> Value {
        let mut whole = match part {
            Value::Object(map) => Value::Object(map.clone()),
            Value::Bool(false) => json!({"anyOf": [false]}),
            _ => json!({}),
        };
        if !self.defs.is_empty() {
            let defs = self.defs.iter().enumerate().map(|(index, (_, value))| (index.to_string(), value.clone()));
            whole["$defs"] = Value::Object(defs.collect());
        }
        whole["x-guidance"] = self.options();
        whole
    }

    /// How JSON is written: `"a": 1`, `"a":1` or over lines, and never an endless run of blanks.
    fn options(&self) -> Value {
        let mut options = json!({
            "whitespace_pattern": r"\x20|\n[\x20\t]{0,40}",
            "coerce_one_of": true,
        });
        if self.no_escapes {
            options["json_allowed_escapes"] = "nrbtf\\\"".into();
        }
        options
    }

    pub(super) fn note(&mut self, pointer: &str, what: impl Into<String>, to: impl Into<String>) {
        self.tell(&[Relaxed { pointer: pointer.to_owned(), what: what.into(), to: to.into() }]);
    }

    /// Says each once.
    pub(super) fn tell(&mut self, notes: &[Relaxed]) {
        for note in notes {
            if !self.relaxed.contains(note) {
                self.relaxed.push(note.clone());
            }
        }
    }
}

/// A JSON pointer one step further.
pub(super) fn join(pointer: &str, step: &str) -> String {
    format!("{pointer}/{}", step.replace('~', "~0").replace('/', "~1"))
}
