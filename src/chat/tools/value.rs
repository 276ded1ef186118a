//! The text of one parameter -> its JSON value, streamed where it is a string.
//!
//! - Only strings admitted: text is a string, passed on as it comes.
//! - Strings and other types declared: text is a string, unless it is a whole JSON object, array or
//!   `null` of a declared type.
//! - No type told: a whole JSON object, array, number, boolean or `null` is itself, everything else
//!   a string.
//! - No strings admitted: JSON of an admitted type, also `True`, `False` and `None`, also JSON
//!   wrapped once more into a JSON string; what is none of these is passed on as a string rather
//!   than lost.

use serde_json::Value;

use super::json_text::{escape_into, quote_into};
use crate::grammar::Kinds;

/// A number, a literal or leading blanks longer than this are taken for a string (where strings are
/// admitted).
const MAX_SCALAR_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// The text so far may still become something else than a string.
    #[default]
    Undecided,
    /// Only the whole text decides.
    Held,
    /// A string whose opening quote is written.
    Text,
    /// The key was given before.
    Dropped,
}

/// Writes one value.
#[derive(Clone, Debug, Default)]
pub struct ValueWriter {
    kinds: Kinds,
    mode: Mode,
    held: String,
}

enum Verdict {
    Text,
    Wait,
    Hold,
}

impl ValueWriter {
    pub fn new(kinds: Kinds) -> ValueWriter {
        ValueWriter { kinds, ..ValueWriter::default() }
    }

    /// A writer that writes nothing.
    pub fn dropped() -> ValueWriter {
        ValueWriter { mode: Mode::Dropped, ..ValueWriter::default() }
    }

    /// Takes more of the value's text; appends the JSON that is certain.
    pub fn feed(&mut self, text: &str, json: &mut String) {
        match self.mode {
            Mode::Dropped => {}
            Mode::Text => escape_into(json, text),
            Mode::Held => self.held.push_str(text),
            Mode::Undecided => {
                self.held.push_str(text);
                match verdict(self.kinds, &self.held) {
                    Verdict::Wait => {}
                    Verdict::Hold => self.mode = Mode::Held,
                    Verdict::Text => {
                        self.mode = Mode::Text;
                        json.push('"');
                        escape_into(json, &self.held);
                        self.held = String::new();
                    }
                }
            }
        }
    }

    /// The value is whole: appends the rest of it.
    pub fn end(&mut self, json: &mut String) {
        match self.mode {
            Mode::Dropped => {}
            Mode::Text => json.push('"'),
            Mode::Undecided | Mode::Held => convert(self.kinds, &self.held, json),
        }
        self.held = String::new();
    }
}

/// Can text that begins so be anything but a string? `Wait` is never said of more than
/// `MAX_SCALAR_BYTES`, and the other answers hold for all text that goes on from here.
fn verdict(kinds: Kinds, text: &str) -> Verdict {
    if !kinds.has(Kinds::STRING) {
        return Verdict::Hold;
    }
    if kinds == Kinds::STRING {
        return Verdict::Text;
    }
    if text.len() - text.trim_ascii_start().len() > MAX_SCALAR_BYTES {
        return Verdict::Text;
    }
    let body = text.trim_ascii();
    match body.bytes().next() {
        Some(b'{') if kinds.has(Kinds::OBJECT) => return Verdict::Hold,
        Some(b'[') if kinds.has(Kinds::ARRAY) => return Verdict::Hold,
        _ => {}
    }
    let null = kinds.has(Kinds::NULL) && "null".starts_with(body);
    let untyped = kinds == Kinds::ANY && ("true".starts_with(body) || "false".starts_with(body) || may_be_number(body));
    let wait = text.len() <= MAX_SCALAR_BYTES && (body.is_empty() || null || untyped);
    if wait { Verdict::Wait } else { Verdict::Text }
}

fn may_be_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.' | b'e' | b'E'))
}

fn convert(kinds: Kinds, text: &str, json: &mut String) {
    let body = text.trim_ascii();
    if let Some(literal) = python_literal(kinds, body) {
        return json.push_str(literal);
    }
    match serde_json::from_str::<Value>(body) {
        Ok(value) if admits(kinds, &value) => json.push_str(body),
        Ok(Value::String(inner)) if !kinds.has(Kinds::STRING) && is_admitted(kinds, &inner) => {
            json.push_str(inner.trim_ascii());
        }
        _ => quote_into(json, text),
    }
}

fn is_admitted(kinds: Kinds, text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|value| admits(kinds, &value))
}

fn python_literal(kinds: Kinds, body: &str) -> Option<&'static str> {
    if kinds.has(Kinds::STRING) {
        return None;
    }
    match body {
        "True" if kinds.has(Kinds::BOOLEAN) => Some("true"),
        "False" if kinds.has(Kinds::BOOLEAN) => Some("false"),
        "None" if kinds.has(Kinds::NULL) => Some("null"),
        _ => None,
    }
}

/// Is this value to stand as it is, rather than as a string?
fn admits(kinds: Kinds, value: &Value) -> bool {
    let scalars = kinds == Kinds::ANY || !kinds.has(Kinds::STRING);
    match value {
        Value::Null => kinds.has(Kinds::NULL),
        Value::Object(_) => kinds.has(Kinds::OBJECT),
        Value::Array(_) => kinds.has(Kinds::ARRAY),
        Value::String(_) => false,
        Value::Bool(_) => scalars && kinds.has(Kinds::BOOLEAN),
        Value::Number(number) => {
            let whole = number.as_f64().is_some_and(|value| value.fract() == 0.0);
            scalars && (kinds.has(Kinds::NUMBER) || (kinds.has(Kinds::INTEGER) && whole))
        }
    }
}
