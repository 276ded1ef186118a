//! The words of the scripted model, and what a script answers.

use crate::engine::request::error::{RunnerError, RunnerErrorKind};
use crate::units::Token;

/// `<|im_end|>`: ends a generation.
pub const IM_END: Token = Token(257);
/// `<|endoftext|>`: ends a generation too.
pub const END_OF_TEXT: Token = Token(262);
/// Tokens of the byte tokenizer.
pub(super) const N_VOCAB: usize = 266;

/// Bytes of a saved point.
pub(super) const POINT_BYTES: usize = 24;

/// Rows of images are tokens from here on for a script; what they are depends on image and
/// place.
pub const IMAGES: u32 = 1 << 31;

/// Logit of the token that a script chooses, and of its second choice; all others are 0.
const CHOSEN: f32 = 20.0;
const SECOND: f32 = 10.0;

/// What a script answers for one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The token with the highest logit; the rest are equal.
    Token(Token),
    /// The whole row, 266 floats.
    Row(Vec<f32>),
}

/// Decides the next token from everything that the sequence holds.
pub type Script = Box<dyn FnMut(&[Token]) -> Next + Send>;

pub(super) fn error(kind: RunnerErrorKind) -> RunnerError {
    RunnerError { call: "fake step", kind, code: None }
}

pub(super) fn peaked(first: Token, second: Option<Token>) -> Vec<f32> {
    let mut row = vec![0.0; N_VOCAB];
    second.into_iter().for_each(|token| row[token.index()] = SECOND);
    row[first.index()] = CHOSEN;
    row
}
