//! `continue_final_message`: a mark behind the text that the model is to continue, and the prompt
//! cut there.
//!
//! Deliberately absent: whether the model then thinks (`thinking`).

use serde_json::Value;

use crate::chat::error::RequestError;
use crate::chat::markers::CONTINUE_MARK;

const FIELD: &str = "continue_final_message";

/// The message that is being continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Continued {
    /// What the client sent of its content.
    pub text: String,
    /// It ends inside its reasoning.
    pub in_reasoning: bool,
}

/// Marks the end of the text that is to be continued: the last message's content or, where that is
/// empty, its reasoning. A message without either is begun where the template puts its content.
/// Render the messages without a generation prompt, then `cut_at_mark`.
///
/// # Errors
/// The last message is not from the assistant, or calls tools.
pub fn mark_final(messages: &mut [Value]) -> Result<Continued, RequestError> {
    let last = messages.last_mut().filter(|last| last["role"] == "assistant").and_then(Value::as_object_mut);
    let Some(last) = last else {
        let message = "there is nothing to continue: the last message is not the assistant's";
        return Err(RequestError::invalid(FIELD, message));
    };
    if last.contains_key("tool_calls") {
        return Err(RequestError::invalid(FIELD, "a message with tool calls cannot be continued; send their results"));
    }
    let text_of = |key: &str| match last.get(key) {
        Some(Value::String(text)) => text.clone(),
        _ => String::new(),
    };
    let (text, reasoning) = (text_of("content"), text_of("reasoning_content"));
    let in_reasoning = text.is_empty() && !reasoning.is_empty();
    let (key, marked) = if in_reasoning { ("reasoning_content", &reasoning) } else { ("content", &text) };
    last.insert(key.to_owned(), Value::String(format!("{marked}{CONTINUE_MARK}")));
    Ok(Continued { text, in_reasoning })
}

/// The prompt up to the mark of `mark_final`: it ends exactly there, whatever the template puts
/// behind it. Other marks (a client's, or those of a template that prints the message twice) are
/// taken out.
///
/// # Errors
/// The template does not print the last message's text.
pub fn cut_at_mark(rendered: &str) -> Result<String, RequestError> {
    match rendered.rfind(CONTINUE_MARK) {
        Some(at) => Ok(rendered[..at].replace(CONTINUE_MARK, "")),
        None => {
            let message = "the model's template does not print the last message, so it cannot be continued";
            Err(RequestError::unsupported(FIELD, message))
        }
    }
}
