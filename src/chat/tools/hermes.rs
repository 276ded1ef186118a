//! Tool calls in Hermes' form: `<tool_call>`, a JSON object with `name` and `arguments`,
//! `</tool_call>`.
//!
//! Such a call is held until its JSON is whole: a quote that the model forgot to escape shows only
//! later, and half a value must not reach a tool. An object that lacks nothing but its last brace
//! is taken; anything else that is broken or cut off stays text. The text is kept by the caller,
//! who passes the same text, grown at its end, every time.

use std::ops::Range;

use serde_json::{Map, Value};

use super::qwen_xml::is_blank;
use super::tool::Tool;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Key {
    /// Before the colon.
    #[default]
    Unknown,
    Name,
    Arguments,
    Other,
}

/// Where the scan of one call stands; offsets are into the caller's text.
#[derive(Clone, Debug, Default)]
pub struct JsonScan {
    object_at: usize,
    at: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
    /// The last string at the top level of the object, without its quotes.
    string: Range<usize>,
    key: Key,
    value_at: usize,
    arguments: Option<Range<usize>>,
}

/// What the text holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JsonCall {
    More,
    No,
    /// A call of `tools[tool]` in the first `len` bytes of the text.
    Whole {
        tool: usize,
        arguments: String,
        len: usize,
    },
}

impl JsonScan {
    /// `object_at`: where the opening brace stands.
    pub fn new(object_at: usize) -> JsonScan {
        JsonScan { object_at, at: object_at, ..JsonScan::default() }
    }

    /// Goes on where it stopped; each byte is looked at once.
    pub fn scan(&mut self, text: &str, tools: &[Tool], end: bool) -> JsonCall {
        while let Some(&byte) = text.as_bytes().get(self.at) {
            let at = self.at;
            if self.in_string {
                self.at += 1;
                if !self.string_byte(byte, at) && self.is_undeclared(text, tools) {
                    return JsonCall::No;
                }
                continue;
            }
            if byte == b'<' {
                return self.without_last_brace(text, tools);
            }
            self.at += 1;
            if !self.structure(byte, at, text) {
                return JsonCall::No;
            }
            if self.depth == 0 {
                return self.read(&text[self.object_at..self.at], text, tools);
            }
        }
        if end { self.without_last_brace(text, tools) } else { JsonCall::More }
    }

    /// Is the string still open after this byte?
    fn string_byte(&mut self, byte: u8, at: usize) -> bool {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_string = false;
                if self.depth == 1 {
                    self.string.end = at;
                }
                return false;
            }
            _ => {}
        }
        true
    }

    /// Has the name just been read, and is it nobody's?
    fn is_undeclared(&self, text: &str, tools: &[Tool]) -> bool {
        let name = &text[self.string.clone()];
        self.depth == 1 && self.key == Key::Name && !name.contains('\\') && tools.iter().all(|tool| tool.name != name)
    }

    /// A byte outside strings; false when no object of this kind can have it here.
    fn structure(&mut self, byte: u8, at: usize, text: &str) -> bool {
        match byte {
            b'"' => {
                self.in_string = true;
                if self.depth == 1 {
                    self.string = at + 1..at + 1;
                }
            }
            b'{' | b'[' if self.depth == 0 || self.key != Key::Unknown => self.depth += 1,
            b':' if self.depth == 1 => {
                self.key = match &text[self.string.clone()] {
                    "name" => Key::Name,
                    "arguments" => Key::Arguments,
                    _ => Key::Other,
                };
                self.value_at = at + 1;
            }
            b',' if self.depth == 1 => self.end_value(at),
            b'}' | b']' => {
                if self.depth == 1 {
                    self.end_value(at);
                }
                self.depth -= 1;
            }
            other => return self.key != Key::Unknown || is_blank(other),
        }
        true
    }

    fn end_value(&mut self, at: usize) {
        if self.key == Key::Arguments {
            self.arguments = Some(self.value_at..at);
        }
        self.key = Key::Unknown;
    }

    fn without_last_brace(&mut self, text: &str, tools: &[Tool]) -> JsonCall {
        if self.depth != 1 || self.in_string {
            return JsonCall::No;
        }
        self.end_value(self.at);
        if self.arguments.is_none() {
            return JsonCall::No;
        }
        let object = format!("{}}}", &text[self.object_at..self.at]);
        self.read(&object, text, tools)
    }

    fn read(&self, object: &str, text: &str, tools: &[Tool]) -> JsonCall {
        let Ok(call) = serde_json::from_str::<Map<String, Value>>(object) else { return JsonCall::No };
        let name = call.get("name").and_then(Value::as_str);
        let Some(tool) = tools.iter().position(|tool| Some(tool.name.as_str()) == name) else { return JsonCall::No };
        let arguments = match call.get("arguments") {
            None | Some(Value::Null) => "{}",
            // The model's own text: numbers that no Rust type holds stay as they are.
            Some(Value::Object(_)) => self.arguments.clone().map_or("{}", |span| text[span].trim_ascii()),
            Some(Value::String(inner)) if inner.trim_ascii().is_empty() => "{}",
            Some(Value::String(inner)) if serde_json::from_str::<Map<String, Value>>(inner).is_ok() => {
                inner.trim_ascii()
            }
            Some(_) => return JsonCall::No,
        };
        JsonCall::Whole { tool, arguments: arguments.to_owned(), len: self.at }
    }
}
