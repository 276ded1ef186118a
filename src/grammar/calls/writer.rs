//! What is written of the grammar so far, and what of schemas is relaxed.

use serde_json::Value;

use crate::grammar::error::GrammarError;
use crate::grammar::relaxed::Relaxed;

/// Faulty parts of one schema that are made free, one by one.
const MAX_REPAIRS: usize = 64;

#[derive(Default)]
pub(super) struct Writer {
    pub out: String,
    pub relaxed: Vec<Relaxed>,
}

impl Writer {
    /// Says what is relaxed in the schema at `path`, each once.
    pub(super) fn tell(&mut self, path: &str, relaxed: Vec<Relaxed>) {
        for note in relaxed {
            let note = Relaxed { pointer: format!("{path}{}", note.pointer), ..note };
            if !self.relaxed.contains(&note) {
                self.relaxed.push(note);
            }
        }
    }

    pub(super) fn note(&mut self, path: &str, pointer: String, what: String, to: &str) {
        self.tell(path, vec![Relaxed { pointer, what, to: to.to_owned() }]);
    }
}

/// Lowers a schema; where that fails for one of its properties, without a rule for that one. Nothing where all of it fails.
pub(super) fn repaired<T>(
    writer: &mut Writer,
    schema: &Value,
    path: &str,
    lower: impl Fn(&Value) -> Result<T, GrammarError>,
) -> Option<T> {
    let mut schema = schema.clone();
    for _ in 0..MAX_REPAIRS {
        let error = match lower(&schema) {
            Ok(lowered) => return Some(lowered),
            Err(error) => error,
        };
        let (pointer, message) = match &error {
            GrammarError::Schema { pointer, message } => (property(pointer), message.clone()),
            other => (None, other.to_string()),
        };
        let at = pointer.as_deref().and_then(|pointer| schema.pointer_mut(pointer));
        match at.filter(|at| **at != Value::Bool(true)) {
            Some(part) => *part = Value::Bool(true),
            None => {
                writer.note(path, String::new(), error.to_string(), "any JSON object");
                return None;
            }
        }
        writer.note(path, pointer.unwrap_or_default(), message, "any value");
    }
    writer.note(path, String::new(), "too many faulty parts".to_owned(), "any JSON object");
    None
}

/// The pointer of the property that a place is in.
fn property(pointer: &str) -> Option<String> {
    let name = pointer.strip_prefix("/properties/")?.split('/').next()?;
    Some(format!("/properties/{name}"))
}

/// A literal of the grammar language, which writes strings as JSON does.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// A regular expression of the grammar language.
pub(super) fn regex(expression: &str) -> String {
    format!("/{expression}/")
}
