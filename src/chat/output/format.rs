//! How the output of a request is read.

use crate::chat::tools::Tool;

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
    /// `parallel_tool_calls: false`: only the first call is reported, later ones are dropped.
    pub parallel: bool,
    /// A well-formed call to a declared tool inside unclosed thinking ends the thinking.
    pub calls_end_thinking: bool,
}
