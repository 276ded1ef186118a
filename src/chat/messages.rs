//! Messages as clients send them -> messages as templates expect them.

use serde_json::Value;

use super::RequestError;

/// What `normalise` needs to know.
pub struct NormaliseOptions<'a> {
    /// Wrapper of a system message after the first user message; `{}` stands for its text.
    pub late_system_wrapper: &'a str,
    /// Makes client text safe (`Tokenizer::guard`); applied to every string that a template may print.
    pub guard: &'a dyn Fn(&str) -> String,
    pub max_messages: usize,
}

/// Validates and rewrites the `messages` array: `developer` is `system`; leading system messages are joined with a blank line;
/// later ones become user text in the wrapper; `content` null, missing, "" and [] are the same; text parts are joined, an
/// unknown part is refused by its index; string `arguments` of tool calls are parsed; `reasoning` is `reasoning_content`.
pub fn normalise(messages: &[Value], options: &NormaliseOptions<'_>) -> Result<Vec<Value>, RequestError> {
    let _ = (messages, options);
    unimplemented!()
}
