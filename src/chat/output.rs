//! Generated text -> reasoning, content and tool-call deltas. For every way of cutting the text into pieces the joined
//! deltas are the same.

use super::tools::Tool;

/// Where the generation starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thinking {
    /// The prompt ends inside a think block.
    Open,
    /// The model may open one itself, at the very start.
    Possible,
    /// Text is never split.
    Off,
}

/// How to read the output of one request.
#[derive(Clone, Debug)]
pub struct OutputFormat {
    pub thinking: Thinking,
    /// Tools whose calls are parsed; empty: `<tool_call>` stays content.
    pub tools: Vec<Tool>,
    /// `parallel_tool_calls: false`: only the first call is reported.
    pub parallel: bool,
    /// A well-formed call to a declared tool inside unclosed thinking ends the thinking.
    pub calls_end_thinking: bool,
}

/// One piece of a message, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputDelta {
    Reasoning(String),
    Content(String),
    /// First delta of a call; `index` from 0, `id` unique and not empty.
    ToolCall {
        index: usize,
        id: String,
        name: String,
    },
    /// A piece of the arguments' JSON text; the pieces of a call join to one valid JSON object.
    Arguments {
        index: usize,
        json: String,
    },
}

/// Streaming parser of one generation.
pub struct OutputParser {
    _format: OutputFormat,
}

impl OutputParser {
    pub fn new(format: OutputFormat) -> OutputParser {
        OutputParser { _format: format }
    }
    /// Feeds generated text; appends what is decided to `out`.
    pub fn push(&mut self, text: &str, out: &mut Vec<OutputDelta>) {
        let _ = (text, out);
        unimplemented!()
    }
    /// The text is at its end: whatever was held is decided. Never fails: what does not parse is content.
    pub fn finish(&mut self, out: &mut Vec<OutputDelta>) {
        let _ = out;
        unimplemented!()
    }
    /// Tool calls reported so far (decides `finish_reason: tool_calls`).
    pub fn n_calls(&self) -> usize {
        unimplemented!()
    }
}
