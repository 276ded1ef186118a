//! The think tags in generated text, recognised in text that may still go on.
//!
//! Qwen's templates print a think block as `<think>`, newline, text, newline, `</think>`, two
//! newlines. The newlines are the template's and belong to nobody: one after the opening tag, one
//! before the closing tag and up to two after it are dropped.
//!
//! Deliberately absent: what happens with the text; `output` sends it on.

use super::tools::qwen_xml::{Seen, blanks, seen};

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

/// Newlines after the closing tag that are the template's.
const NEWLINES_AFTER: usize = 2;

/// What a place in the text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    More,
    No,
    /// `<think>` in the first so many bytes.
    Open(usize),
    /// `</think>` in the first so many bytes.
    Close(usize),
}

/// Does the generation start with `<think>`, blanks aside?
pub fn at_start(text: &str, end: bool) -> Mark {
    let Some(n) = blanks(text) else { return Mark::No };
    match seen(&text[n..], OPEN) {
        Seen::Whole(len) => Mark::Open(n + len),
        Seen::Part if !end => Mark::More,
        Seen::Part | Seen::No => Mark::No,
    }
}

/// Is this `<` in a think block its end?
pub fn at_end(text: &str, end: bool) -> Mark {
    match seen(text, CLOSE) {
        Seen::Whole(len) => Mark::Close(len),
        Seen::Part if !end => Mark::More,
        Seen::Part | Seen::No => Mark::No,
    }
}

/// What follows a think block, blanks aside: after a forced end models close once more, or open
/// again.
pub fn after_end(text: &str, end: bool) -> Mark {
    match (at_end(text, end), seen(text, OPEN)) {
        (Mark::No, Seen::Whole(len)) => Mark::Open(len),
        (Mark::No, Seen::Part) if !end => Mark::More,
        (mark, _) => mark,
    }
}

/// How many bytes at the start of the blanks after a think block are the template's.
pub fn newlines_after(blanks: &str) -> usize {
    blanks.bytes().take(NEWLINES_AFTER).take_while(|b| *b == b'\n').count()
}
