//! Calls of tools, from behind the token that begins a call to the token that ends it, as a grammar.
//!
//! Two ways of writing: Qwen's XML, where a parameter is text or JSON between tags, and Hermes' JSON. What of a schema is out
//! of reach is made less strict for its part alone, and said so: one bad tool never spoils the others.

mod shape;
mod value;
mod writer;
mod xml;

use std::fmt::Write as _;

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use super::error::GrammarError;
use super::relaxed::Relaxed;
use super::schema;
use crate::units::Token;
use writer::{Writer, repaired};

pub use shape::{CallBody, CallShape};

/// The calls that may be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    pub shapes: Vec<CallShape>,
    /// The token that ends a call.
    pub end: Token,
}

impl Calls {
    /// Lowers all shapes.
    ///
    /// # Errors
    /// There is no tool to call.
    pub(super) fn lower(&self) -> Result<(TopLevelGrammar, Vec<Relaxed>), GrammarError> {
        if self.shapes.is_empty() {
            return Err(GrammarError::Refused("there is no tool to call; declare one".to_owned()));
        }
        let mut writer = Writer::default();
        let names: Vec<String> = (0..self.shapes.len()).map(|i| format!("call_{i}")).collect();
        let _ = writeln!(writer.out, "start: \"\\n\" ({}) \"\\n\" <[{}]>", names.join(" | "), self.end.0);
        let _ = writeln!(writer.out, "text[suffix=\"\\n</parameter>\\n\"]: /(?s:.*)/");
        for (i, shape) in self.shapes.iter().enumerate() {
            match shape.body {
                CallBody::Json => json(&mut writer, i, shape),
                CallBody::Xml { free } => xml::call(&mut writer, i, shape, free),
            }
        }
        Ok((TopLevelGrammar::from_lark(writer.out), writer.relaxed))
    }
}

fn json(writer: &mut Writer, i: usize, shape: &CallShape) {
    let lowered = repaired(writer, &shape.schema, &shape.path, schema::lower_object);
    let (mut arguments, relaxed) = lowered.unwrap_or_else(|| (json!({"type": "object"}), Vec::new()));
    writer.tell(&shape.path, relaxed);
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
    let _ = writeln!(writer.out, "call_{i}: %json {whole}");
}
