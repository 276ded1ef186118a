//! Steps inside and right after a call.

use super::{Deltas, OpenCall, OutputParser, State};
use crate::chat::output::delta::{OutputDelta, arguments, reasoning};
use crate::chat::reasoning::{Mark, at_end};
use crate::chat::tools::hermes::JsonCall;
use crate::chat::tools::json_text::quote_into;
use crate::chat::tools::qwen_xml::{BodyTag, CALL_END, Opener, Seen, ValueEnd, body_tag, opener, seen, value_end};
use crate::chat::tools::value::ValueWriter;
use crate::grammar::Kinds;

impl OutputParser {
    pub(super) fn json_call(&mut self, end: bool, out: &mut Deltas) -> bool {
        match self.json.scan.scan(&self.buf[self.at..], &self.format.tools, end) {
            JsonCall::More => return false,
            JsonCall::Whole { tool, arguments: json, len } => {
                if self.json.in_thinking {
                    self.thoughts.close(self.n_decided());
                }
                self.at += len;
                self.drop_close |= self.json.in_thinking;
                self.begin_call(tool, out);
                self.argue(&json, out);
                self.after_call();
            }
            JsonCall::No if self.json.in_thinking => {
                self.state = State::Think;
                if self.json.newline {
                    reasoning(out, "\n");
                }
                self.reason(1, out);
            }
            JsonCall::No => {
                self.state = State::Content;
                self.say(1, out);
            }
        }
        true
    }

    pub(super) fn begin_call(&mut self, tool: usize, out: &mut Deltas) {
        let muted = !self.format.parallel && self.n_calls > 0;
        self.call = OpenCall { tool, muted, ..OpenCall::default() };
        self.blanks.clear();
        self.state = State::Body;
        if !muted {
            let name = self.format.tools[tool].name.clone();
            out.push(OutputDelta::ToolCall { index: self.n_calls, id: (self.ids)(), name });
            self.n_calls += 1;
        }
    }

    /// Appends to the arguments of the open call.
    pub(super) fn argue(&self, json: &str, out: &mut Deltas) {
        if !self.call.muted {
            arguments(out, self.n_calls - 1, json);
        }
    }

    pub(super) fn body(&mut self, end: bool, out: &mut Deltas) -> bool {
        self.take_blanks();
        match body_tag(self.rest(), end) {
            BodyTag::More => return false,
            BodyTag::Cut => self.at = self.buf.len(),
            BodyTag::Parameter { key_at, len } => {
                let key = self.rest()[key_at..len - 1].to_owned();
                self.at += len;
                self.begin_value(key, out);
            }
            BodyTag::FunctionEnd(len) => {
                self.at += len;
                self.end_call(out);
            }
            BodyTag::CallEnd(len) => {
                self.at += len;
                self.end_call(out);
                self.drop_call_end = false;
            }
            BodyTag::Other => return self.stray(end, out),
        }
        true
    }

    /// Text between parameters: the next call, where the end of this one was forgotten, or content.
    pub(super) fn stray(&mut self, end: bool, out: &mut Deltas) -> bool {
        let rest = self.rest();
        if rest.is_empty() {
            return false;
        }
        let n = rest.find('<').unwrap_or(rest.len());
        if n > 0 {
            return self.say_words(n, out);
        }
        match opener(rest, &self.format.tools, true, end) {
            Opener::More => return false,
            Opener::Function { .. } | Opener::Json { .. } => self.end_call(out),
            Opener::No => return self.say(1, out),
        }
        true
    }

    pub(super) fn begin_value(&mut self, key: String, out: &mut Deltas) {
        self.blanks.clear();
        self.state = State::ValueStart;
        let mut json = String::from(if self.call.keys.is_empty() { "{" } else { "," });
        quote_into(&mut json, &key);
        json.push(':');
        let kinds = Kinds::of_parameter(&self.format.tools[self.call.tool].parameters, &key);
        if self.call.keys.insert(key) {
            self.call.value = ValueWriter::new(kinds);
            self.argue(&json, out);
        } else {
            self.call.value = ValueWriter::dropped();
        }
    }

    pub(super) fn value(&mut self, end: bool, out: &mut Deltas) -> bool {
        let (n, newline) = self.plain();
        let mark_at = self.at + n + newline;
        if n > 0 {
            return self.feed_value(n, out);
        }
        let text = &self.buf[mark_at..];
        let answer = match text.is_empty() {
            true if end => ValueEnd::Here(0),
            true => ValueEnd::More,
            false => value_end(text, newline > 0, end),
        };
        match answer {
            ValueEnd::More => return false,
            ValueEnd::No => return self.feed_value(newline + 1, out),
            ValueEnd::Here(len) => {
                self.at = mark_at + len;
                self.end_value(out);
            }
        }
        true
    }

    pub(super) fn feed_value(&mut self, n: usize, out: &mut Deltas) -> bool {
        let mut json = String::new();
        self.call.value.feed(&self.buf[self.at..self.at + n], &mut json);
        self.argue(&json, out);
        self.at += n;
        true
    }

    pub(super) fn end_value(&mut self, out: &mut Deltas) {
        let mut json = String::new();
        self.call.value.end(&mut json);
        self.argue(&json, out);
        self.state = State::Body;
    }

    pub(super) fn end_call(&mut self, out: &mut Deltas) {
        self.argue(if self.call.keys.is_empty() { "{}" } else { "}" }, out);
        self.after_call();
    }

    pub(super) fn after_call(&mut self) {
        self.blanks.clear();
        self.any_content = false;
        self.line_start = true;
        self.drop_call_end = true;
        self.state = State::CallEnd;
    }

    pub(super) fn call_end(&mut self, end: bool) -> bool {
        self.take_blanks();
        if self.drop_call_end {
            match seen(self.rest(), CALL_END) {
                Seen::Whole(len) => {
                    self.at += len;
                    self.blanks.clear();
                    self.drop_call_end = false;
                    return true;
                }
                Seen::Part if !end => return false,
                Seen::Part => {
                    self.at = self.buf.len();
                    return true;
                }
                Seen::No => {}
            }
        }
        match at_end(self.rest(), end) {
            Mark::More if self.drop_close => return false,
            Mark::Close(len) if self.drop_close => {
                self.at += len;
                self.blanks.clear();
                self.drop_close = false;
                self.state = State::ThinkEnd;
            }
            _ => self.state = State::Content,
        }
        true
    }
}
