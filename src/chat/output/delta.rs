//! Pieces of a message.

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

pub(super) fn reasoning(out: &mut Vec<OutputDelta>, text: &str) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(OutputDelta::Reasoning(last)) => last.push_str(text),
        _ => out.push(OutputDelta::Reasoning(text.to_owned())),
    }
}

pub(super) fn content(out: &mut Vec<OutputDelta>, text: &str) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(OutputDelta::Content(last)) => last.push_str(text),
        _ => out.push(OutputDelta::Content(text.to_owned())),
    }
}

pub(super) fn arguments(out: &mut Vec<OutputDelta>, call: usize, text: &str) {
    match out.last_mut() {
        _ if text.is_empty() => {}
        Some(OutputDelta::Arguments { index, json }) if *index == call => json.push_str(text),
        _ => out.push(OutputDelta::Arguments { index: call, json: text.to_owned() }),
    }
}
