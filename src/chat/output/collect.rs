//! A whole message from its deltas: what an answer that is not streamed holds.

use super::delta::OutputDelta;
use super::format::OutputFormat;
use super::parser::OutputParser;

/// A tool call; `arguments` is the text of one JSON object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectedCall {
    pub id: String,
    pub name: String,
    pub arguments: String,
}

/// A message; empty strings where the model wrote nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    pub reasoning: String,
    pub content: String,
    pub calls: Vec<CollectedCall>,
}

impl Collected {
    /// Adds a delta. Deltas come in the order in which the parser gives them.
    pub fn add(&mut self, delta: OutputDelta) {
        match delta {
            OutputDelta::Reasoning(text) => self.reasoning.push_str(&text),
            OutputDelta::Content(text) => self.content.push_str(&text),
            OutputDelta::ToolCall { id, name, .. } => {
                self.calls.push(CollectedCall { id, name, arguments: String::new() });
            }
            OutputDelta::Arguments { index, json } => {
                if let Some(call) = self.calls.get_mut(index) {
                    call.arguments.push_str(&json);
                }
            }
        }
    }
}

/// Parses a whole text, with the parser that streams.
pub fn collect(format: OutputFormat, text: &str) -> Collected {
    let mut parser = OutputParser::new(format);
    let mut deltas = Vec::new();
    parser.push(text, &mut deltas);
    parser.finish(&mut deltas);
    let mut collected = Collected::default();
    deltas.into_iter().for_each(|delta| collected.add(delta));
    collected
}
