//! Steps inside and right after a think block.

use super::{Deltas, OpenJson, OutputParser, State};
use crate::chat::output::delta::reasoning;
use crate::chat::output::format::Thinking;
use crate::chat::reasoning::{Mark, after_end, at_end, at_start, newlines_after};
use crate::chat::tools::hermes::JsonScan;
use crate::chat::tools::qwen_xml::{Opener, opener};

impl OutputParser {
    pub(super) fn start(&mut self, end: bool) -> bool {
        match at_start(self.rest(), end) {
            Mark::More => return false,
            Mark::Open(len) => {
                self.at += len;
                self.begin_thought();
            }
            _ if self.format.thinking == Thinking::Open => self.begin_thought(),
            _ => self.state = State::Content,
        }
        true
    }

    fn begin_thought(&mut self) {
        self.thoughts.open(self.n_decided());
        self.state = State::ThinkStart;
    }

    pub(super) fn think(&mut self, end: bool, out: &mut Deltas) -> bool {
        let (n, newline) = self.plain();
        let mark_at = self.at + n + newline;
        if n > 0 || (mark_at == self.buf.len() && end) {
            return self.reason(if n > 0 { n } else { newline }, out);
        }
        let text = &self.buf[mark_at..];
        if text.is_empty() {
            return false;
        }
        match at_end(text, end) {
            Mark::More => return false,
            Mark::Close(len) => {
                self.at = mark_at + len;
                self.thoughts.close(self.n_dropped + mark_at);
                self.state = State::ThinkEnd;
                self.drop_close = true;
                return true;
            }
            Mark::No | Mark::Open(_) => {}
        }
        let tools = if self.format.calls_end_thinking { self.format.tools.as_slice() } else { &[] };
        match opener(text, tools, false, end) {
            Opener::Function { tool, len } => {
                self.at = mark_at + len;
                self.thoughts.close(self.n_dropped + mark_at);
                self.drop_close = true;
                self.begin_call(tool, out);
                true
            }
            Opener::Json { len } if !tools.is_empty() => {
                self.at = mark_at;
                self.state = State::Json;
                self.json = OpenJson { scan: JsonScan::new(len), in_thinking: true, newline: newline > 0 };
                true
            }
            Opener::More if !tools.is_empty() => false,
            _ => self.reason(newline + 1, out),
        }
    }

    /// Sends the next `n` bytes as reasoning.
    pub(super) fn reason(&mut self, n: usize, out: &mut Deltas) -> bool {
        reasoning(out, &self.buf[self.at..self.at + n]);
        self.at += n;
        self.any_reasoning = true;
        true
    }

    pub(super) fn think_end(&mut self, end: bool, out: &mut Deltas) -> bool {
        self.take_blanks();
        match after_end(self.rest(), end) {
            Mark::More => return false,
            Mark::Close(len) if self.drop_close => {
                self.at += len;
                self.blanks.clear();
                self.drop_close = false;
            }
            Mark::Open(len) => {
                self.at += len;
                self.blanks.clear();
                self.begin_thought();
                if self.any_reasoning {
                    reasoning(out, "\n");
                }
            }
            Mark::Close(_) | Mark::No => self.begin_content(),
        }
        true
    }

    pub(super) fn begin_content(&mut self) {
        self.blanks.drain(..newlines_after(&self.blanks));
        self.drop_close = false;
        self.state = State::Content;
    }
}
