//! The state machine over the text: thinking, content, calls.
//!
//! `buf[at..]` is the text that is not decided yet. A step looks at its start and either takes some
//! of it or says that more text is needed; what is looked at again is bounded, except by scans that
//! remember where they stopped.

mod calls;
mod think;
mod thoughts;

use std::collections::HashSet;

use super::delta::{OutputDelta, content};
use super::format::{OutputFormat, Thinking};
use crate::chat::tools::hermes::JsonScan;
use crate::chat::tools::qwen_xml::{Opener, is_blank, opener};
use crate::chat::tools::value::ValueWriter;
use thoughts::Thoughts;

/// Hex digits of a call's id.
const ID_DIGITS: usize = 24;

type IdSource = Box<dyn FnMut() -> String + Send>;
type Deltas = Vec<OutputDelta>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// `<think>` may come.
    Start,
    /// Right after `<think>`.
    ThinkStart,
    Think,
    /// After `</think>`, nothing but blanks so far (in `blanks`).
    ThinkEnd,
    Content,
    /// A call as JSON starts at `at`.
    Json,
    /// In a call, no parameter open.
    Body,
    /// Right after `<parameter=...>`.
    ValueStart,
    Value,
    /// After a call, nothing but blanks so far (in `blanks`).
    CallEnd,
}

/// The call that is being written.
#[derive(Default)]
struct OpenCall {
    tool: usize,
    /// Dropped because only one call may be reported.
    muted: bool,
    keys: HashSet<String>,
    value: ValueWriter,
}

/// A call as JSON, and what to do should it turn out to be none.
#[derive(Default)]
struct OpenJson {
    scan: JsonScan,
    in_thinking: bool,
    /// The newline before it in thinking, not sent yet.
    newline: bool,
}

/// Streaming parser of one generation.
pub struct OutputParser {
    format: OutputFormat,
    ids: IdSource,
    state: State,
    buf: String,
    at: usize,
    /// Bytes of the whole text before `buf`.
    n_dropped: usize,
    thoughts: Thoughts,
    /// Blanks of the content that are sent only if more content follows.
    blanks: String,
    call: OpenCall,
    json: OpenJson,
    n_calls: usize,
    any_reasoning: bool,
    /// Content since the last call.
    any_content: bool,
    /// Only blanks since the last newline.
    line_start: bool,
    /// A `</think>` without its `<think>` is to be dropped if it comes next.
    drop_close: bool,
    /// The `</tool_call>` of the last call has not come yet.
    drop_call_end: bool,
}

impl OutputParser {
    pub fn new(format: OutputFormat) -> OutputParser {
        let random = || format!("call_{}", &uuid::Uuid::new_v4().simple().to_string()[..ID_DIGITS]);
        OutputParser::with_ids(format, Box::new(random))
    }

    /// With a source of ids of its own, each unique and not empty.
    pub fn with_ids(format: OutputFormat, ids: Box<dyn FnMut() -> String + Send>) -> OutputParser {
        let state = if format.thinking == Thinking::Off { State::Content } else { State::Start };
        OutputParser {
            format,
            ids,
            state,
            buf: String::new(),
            at: 0,
            n_dropped: 0,
            thoughts: Thoughts::default(),
            blanks: String::new(),
            call: OpenCall::default(),
            json: OpenJson::default(),
            n_calls: 0,
            any_reasoning: false,
            any_content: false,
            line_start: true,
            drop_close: false,
            drop_call_end: false,
        }
    }

    /// Feeds generated text; appends what is decided to `out`.
    pub fn push(&mut self, text: &str, out: &mut Vec<OutputDelta>) {
        self.buf.push_str(text);
        self.run(false, out);
    }

    /// The text is at its end: whatever was held is decided. Never fails: what does not parse is
    /// content.
    pub fn finish(&mut self, out: &mut Vec<OutputDelta>) {
        self.run(true, out);
        match self.state {
            State::ValueStart | State::Value => {
                self.end_value(out);
                self.end_call(out);
            }
            State::Body => self.end_call(out),
            State::ThinkEnd => self.begin_content(),
            _ => {}
        }
        if self.n_calls == 0 || self.any_content {
            content(out, &self.blanks);
        }
        self.blanks.clear();
    }

    /// Tool calls reported so far (decides `finish_reason: tool_calls`).
    pub fn n_calls(&self) -> usize {
        self.n_calls
    }

    /// Is byte `at` of the whole text inside a think block? `None` while that is not decided.
    pub fn thinks_at(&self, at: usize) -> Option<bool> {
        (at < self.n_decided()).then(|| self.thoughts.cover(at))
    }

    /// Bytes of the whole text that are decided.
    fn n_decided(&self) -> usize {
        self.n_dropped + self.at
    }

    fn run(&mut self, end: bool, out: &mut Deltas) {
        while self.at < self.buf.len() && self.step(end, out) {}
        if self.at > 0 {
            self.buf.drain(..self.at);
            self.n_dropped += self.at;
            self.at = 0;
        }
    }

    /// One decision; false when it takes more text. At the end of the text every step takes some of
    /// it or changes the state.
    fn step(&mut self, end: bool, out: &mut Deltas) -> bool {
        match self.state {
            State::Start => self.start(end),
            State::ThinkStart => self.skip_newline(State::Think),
            State::Think => self.think(end, out),
            State::ThinkEnd => self.think_end(end, out),
            State::Content => self.content(end, out),
            State::Json => self.json_call(end, out),
            State::Body => self.body(end, out),
            State::ValueStart => self.skip_newline(State::Value),
            State::Value => self.value(end, out),
            State::CallEnd => self.call_end(end),
        }
    }

    fn rest(&self) -> &str {
        &self.buf[self.at..]
    }

    /// Moves blanks at the start of the rest into `blanks`.
    fn take_blanks(&mut self) {
        let n = self.rest().bytes().take_while(|b| is_blank(*b)).count();
        self.blanks.push_str(&self.buf[self.at..self.at + n]);
        self.at += n;
    }

    fn skip_newline(&mut self, next: State) -> bool {
        self.at += usize::from(self.rest().starts_with('\n'));
        self.state = next;
        true
    }

    /// Length of the text up to the next `<`, and the newline right before it (or before the end)
    /// that stays undecided.
    fn plain(&self) -> (usize, usize) {
        let n = self.rest().find('<').unwrap_or(self.rest().len());
        let newline = usize::from(self.rest()[..n].ends_with('\n'));
        (n - newline, newline)
    }
}

/// Content.
impl OutputParser {
    fn content(&mut self, end: bool, out: &mut Deltas) -> bool {
        if self.format.tools.is_empty() {
            return self.say(self.rest().len(), out);
        }
        let n = self.rest().find('<').unwrap_or(self.rest().len());
        if n > 0 {
            return self.say_words(n, out);
        }
        match opener(self.rest(), &self.format.tools, self.line_start, end) {
            Opener::More => return false,
            Opener::No => return self.say(1, out),
            Opener::Function { tool, len } => {
                self.at += len;
                self.begin_call(tool, out);
            }
            Opener::Json { len } => {
                self.state = State::Json;
                self.json = OpenJson { scan: JsonScan::new(len), ..OpenJson::default() };
            }
        }
        true
    }

    /// Sends the next `n` bytes as content, but keeps blanks at their end back.
    fn say_words(&mut self, n: usize, out: &mut Deltas) -> bool {
        let text = &self.buf[self.at..self.at + n];
        let words = text.trim_end_matches([' ', '\t', '\n', '\r']).len();
        let new_line = text[words..].contains('\n');
        if words > 0 {
            self.say(words, out);
        }
        self.line_start |= new_line;
        self.blanks.push_str(&self.buf[self.at..self.at + n - words]);
        self.at += n - words;
        true
    }

    /// Sends the next `n` bytes as content, after the blanks that were kept back.
    fn say(&mut self, n: usize, out: &mut Deltas) -> bool {
        content(out, &self.blanks);
        self.blanks.clear();
        content(out, &self.buf[self.at..self.at + n]);
        self.at += n;
        self.any_content = true;
        self.line_start = false;
        self.drop_close = false;
        true
    }
}
