//! What can be wrong with a constraint, and with a token under one.

use std::fmt;

use crate::units::Token;

/// A place in a grammar's text. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// A constraint that cannot hold. Never a reason to generate without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// The text is not in the language of its front end, or says something impossible. `message` ends with the fix.
    #[error("{at}: {message}")]
    Text { at: Position, message: String },
    /// A part of a schema is malformed or no value can satisfy it. `pointer` is a JSON pointer; empty for the whole schema.
    #[error("schema{}{pointer}: {message}", if pointer.is_empty() { "" } else { " at " })]
    Schema { pointer: String, message: String },
    /// Valid, but larger than what is compiled for one request.
    #[error("{what}: {found} is more than {limit}")]
    Limit { what: &'static str, limit: u64, found: u64 },
    /// The whole is refused, with the reason.
    #[error("{0}")]
    Refused(String),
}

impl GrammarError {
    pub fn text(at: Position, message: impl Into<String>) -> GrammarError {
        GrammarError::Text { at, message: message.into() }
    }

    pub fn schema(pointer: &str, message: impl Into<String>) -> GrammarError {
        GrammarError::Schema { pointer: pointer.to_owned(), message: message.into() }
    }

    /// `Ok` when `found` is within `limit`.
    pub fn within(what: &'static str, found: usize, limit: usize) -> Result<(), GrammarError> {
        if found <= limit {
            return Ok(());
        }
        Err(GrammarError::Limit { what, limit: limit as u64, found: found as u64 })
    }
}

/// A generation that cannot go on under its constraint. Ends this generation, nothing else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MatchError {
    #[error("token {} is not allowed here by the constraint", .0.0)]
    NotAllowed(Token),
    /// The constraint was ended by an end-of-generation token; nothing may follow.
    #[error("the constrained text has ended")]
    Ended,
    /// No token of this vocabulary can continue the text, and it may not end here.
    #[error("no token of the vocabulary can continue the constrained text")]
    DeadEnd,
    /// A limit of the matcher was reached, or it failed.
    #[error("the constraint cannot be followed any further: {0}")]
    Failed(String),
}

/// The library's message without its traces.
pub(super) fn first_lines(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let text = text.split("\n<").next().unwrap_or_default();
    text.chars().take(600).collect()
}
