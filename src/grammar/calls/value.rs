//! The value of a parameter between its tags: text as it is, or JSON. It follows what the reader of calls takes a text for, so
//! that what is generated is read back as it was meant.

use std::fmt::Write as _;

use serde_json::Value;

use super::writer::{Writer, quoted, regex};
use crate::grammar::kinds::Kinds;
use crate::grammar::schema::{Arguments, Content, Extent, StateId, has_text};

/// Values of a parameter that are told apart.
const MAX_VALUES: usize = 1_000;
/// The rule for any text, and what ends a text.
const TEXT: &str = "text";
const END: &str = "\"\\n</parameter>\\n\"";
/// Texts in which a reader would see an end before the end.
const ENDS_EARLY: &str = "(?s:.*)<\\/parameter>[ \\t\\r\\n]*(?:<parameter=|<\\/function>|<\\/?tool_call>)(?s:.*)";
const ENDS_FUNCTION: &str = "(?s:.*)\\n<\\/function>(?s:.*)";
const ENDS_HERE: &str = "(?s:.*)\\n<\\/parameter>\\n(?s:.*)";
/// Blanks that readers leave out around JSON.
const BLANKS: &str = "[ \\t\\n\\r\\x0C]*";
const NUMBER: &str = "-?(?:0|[1-9][0-9]{0,14})(?:\\.[0-9]{1,15})?";

pub(super) struct Values<'a> {
    arguments: Arguments,
    path: &'a str,
    free: bool,
}

impl<'a> Values<'a> {
    pub(super) fn new(arguments: Arguments, path: &'a str, free: bool) -> Values<'a> {
        Values { arguments, path, free }
    }

    /// Writes what the value needs of rules, named after `rule`; the value with its closing tag.
    pub(super) fn write(&mut self, writer: &mut Writer, rule: &str, state: StateId, kinds: Kinds) -> String {
        let has_text = kinds.has(Kinds::STRING);
        if self.free {
            return if has_text { TEXT.to_owned() } else { format!("%json {{}} {END}") };
        }
        let content = self.arguments.content(state);
        if has_text && content.is_any {
            return TEXT.to_owned();
        }
        if !has_text {
            let is_read =
                |value: &Value| kinds_of(value).is_some_and(|kind| kinds.has(kind)) || is_number(value, kinds);
            return self.json(writer, state, &is_read).unwrap_or_else(|| TEXT.to_owned());
        }
        let read = Read { kinds, content: &content };
        let text = read.text();
        if text.as_deref() == Some("") {
            writer.tell(self.path, content.notes.clone());
            return TEXT.to_owned();
        }
        let mut options: Vec<String> = Vec::new();
        match text {
            Some(text) => {
                writer.tell(self.path, content.notes.clone());
                let name = rule.to_uppercase();
                let _ = writeln!(writer.out, "TEXT_{name}: {text}");
                let _ = writeln!(writer.out, "t_{rule}[suffix={END}]: TEXT_{name}");
                options.push(format!("t_{rule}"));
            }
            None if content.values.len() > MAX_VALUES => {
                let pointer = self.arguments.pointer(state);
                let what = format!("{} values are more than {MAX_VALUES}", content.values.len());
                writer.note(self.path, pointer, what, "any text");
                return TEXT.to_owned();
            }
            None => {
                let literals = read.literals();
                if !literals.is_empty() {
                    writer.tell(self.path, content.notes.clone());
                    let literals: Vec<String> = literals.iter().map(|text| quoted(text)).collect();
                    options.push(format!("({}) {END}", literals.join(" | ")));
                }
            }
        }
        let is_json = |value: &Value| read.is_json(value);
        if read.has_json() {
            options.extend(self.json(writer, state, &is_json));
        }
        match options.len() {
            0 => {
                let pointer = self.arguments.pointer(state);
                writer.note(
                    self.path,
                    pointer,
                    "no value that fits would be read as it is meant".to_owned(),
                    "any text",
                );
                TEXT.to_owned()
            }
            1 => options.remove(0),
            _ => format!("({})", options.join(" | ")),
        }
    }

    fn json(&mut self, writer: &mut Writer, state: StateId, wanted: &dyn Fn(&Value) -> bool) -> Option<String> {
        match self.arguments.json(state, wanted) {
            Ok((schema, relaxed)) => {
                writer.tell(self.path, relaxed);
                Some(format!("%json {schema} {END}"))
            }
            Err(error) => {
                let pointer = self.arguments.pointer(state);
                writer.note(self.path, pointer, error.to_string(), "any text");
                None
            }
        }
    }
}

fn kinds_of(value: &Value) -> Option<Kinds> {
    match value {
        Value::Null => Some(Kinds::NULL),
        Value::Bool(_) => Some(Kinds::BOOLEAN),
        Value::Array(_) => Some(Kinds::ARRAY),
        Value::Object(_) => Some(Kinds::OBJECT),
        Value::Number(_) | Value::String(_) => None,
    }
}

fn is_number(value: &Value, kinds: Kinds) -> bool {
    value.is_number() && (kinds.has(Kinds::NUMBER) || kinds.has(Kinds::INTEGER))
}

/// How a parameter is read that may be a string.
struct Read<'a> {
    kinds: Kinds,
    content: &'a Content,
}

impl Read<'_> {
    /// Is a text that is JSON of this kind read as JSON? Beside strings, numbers and booleans are only where nothing is said.
    fn is_read(&self, value: &Value) -> bool {
        match value {
            Value::Number(_) | Value::Bool(_) => self.kinds == Kinds::ANY,
            Value::String(_) => false,
            other => kinds_of(other).is_some_and(|kind| self.kinds.has(kind)),
        }
    }

    /// Is it written as JSON, beside texts that do not begin like it?
    fn is_json(&self, value: &Value) -> bool {
        match value {
            Value::Array(_) => self.is_read(value) && !self.is_all(value),
            Value::Object(_) => self.is_read(value) && !self.is_all(value),
            _ => false,
        }
    }

    /// All texts, and all values of this kind.
    fn is_all(&self, value: &Value) -> bool {
        let extent = match value {
            Value::Array(_) => self.content.arrays,
            Value::Object(_) => self.content.objects,
            _ => self.content.numbers,
        };
        extent == Extent::All && self.has_all_texts()
    }

    fn has_all_texts(&self) -> bool {
        self.content.texts.iter().any(Vec::is_empty)
    }

    fn has_json(&self) -> bool {
        let array = Value::Array(Vec::new());
        let object = Value::Object(serde_json::Map::new());
        let listed = |wanted: fn(&Value) -> bool| self.content.values.iter().any(wanted);
        (self.is_json(&array) && (self.content.arrays != Extent::None || listed(Value::is_array)))
            || (self.is_json(&object) && (self.content.objects != Extent::None || listed(Value::is_object)))
    }

    /// Values that are written as they are: strings, and what has one way of being written.
    fn literals(&self) -> Vec<String> {
        let own = self.content.values.iter().filter_map(|value| match value {
            Value::String(text) => Some(text.clone()).filter(|text| self.is_string(text)),
            Value::Array(_) | Value::Object(_) => None,
            other => Some(other.to_string()).filter(|_| self.is_read(other)),
        });
        own.filter(|text| !text.contains("</parameter>") && !text.contains("\n</function>")).collect()
    }

    /// Is the text read as a string?
    fn is_string(&self, text: &str) -> bool {
        serde_json::from_str::<Value>(text.trim_ascii()).map_or(true, |value| !self.is_read(&value))
    }

    /// The terminal of the texts; empty for any text, nothing where only single values fit.
    fn text(&self) -> Option<String> {
        let apart = self.apart();
        let numbers = self.kinds == Kinds::ANY && self.content.numbers == Extent::All;
        if self.has_all_texts() && apart.is_empty() {
            return Some(String::new());
        }
        let none = || apart.iter().map(String::as_str).chain([ENDS_EARLY, ENDS_FUNCTION, ENDS_HERE]);
        let mut options: Vec<String> = Vec::new();
        for all in &self.content.texts {
            if !has_text(all.iter().map(String::as_str), none()) {
                continue;
            }
            let parts = all.iter().map(|expression| regex(expression));
            let none = none().map(|expression| format!("~{}", regex(expression)));
            let parts: Vec<String> = [regex("(?s:.*)")].into_iter().chain(parts).chain(none).collect();
            options.push(format!("({})", parts.join(" & ")));
        }
        if options.is_empty() && !numbers {
            return None;
        }
        if numbers {
            options.push(regex(NUMBER));
        }
        options.extend(self.literals().iter().map(|text| quoted(text)));
        Some(options.join(" | "))
    }

    /// What texts must not look like: what would be read as another value, and not every such value fits.
    fn apart(&self) -> Vec<String> {
        let has = |value: Value| self.content.values.contains(&value);
        let mut apart = Vec::new();
        let mut keep_off = |is_read: bool, is_all: bool, expression: &str| {
            if is_read && !(is_all && self.has_all_texts()) {
                apart.push(format!("{BLANKS}{expression}"));
            }
        };
        keep_off(self.is_read(&Value::Null), has(Value::Null), &format!("null{BLANKS}"));
        let booleans = has(true.into()) && has(false.into());
        keep_off(self.is_read(&true.into()), booleans, &format!("(?:true|false){BLANKS}"));
        let numbers = self.content.numbers == Extent::All;
        keep_off(self.is_read(&0.into()), numbers, &format!("-?[0-9]+(?:\\.[0-9]+)?(?:[eE][+-]?[0-9]+)?{BLANKS}"));
        let array = Value::Array(Vec::new());
        keep_off(self.is_read(&array), self.content.arrays == Extent::All, "\\[(?s:.*)");
        let object = Value::Object(serde_json::Map::new());
        keep_off(self.is_read(&object), self.content.objects == Extent::All, "\\{(?s:.*)");
        apart
    }
}
