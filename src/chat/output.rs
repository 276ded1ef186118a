//! Generated text -> reasoning, content and tool-call deltas. For every way of cutting the text
//! into pieces the joined deltas are the same, and the time is linear in the text.
//!
//! Text is sent on byte for byte but for: the newlines of the think block (`reasoning`), blanks
//! between content and a call and between calls, and content after a call that is nothing but
//! blanks. What does not parse as a call is text.
//!
//! A call in Qwen's XML is streamed. Once its opening tags are certain it is a call whatever
//! follows: parameters come in any order, the first of two with one name counts, text between
//! parameters becomes content, and where the text breaks off the JSON is closed (what may be the
//! beginning of a closing tag is taken for one), so that the arguments are one valid object always.
//! A call in Hermes' JSON is sent when it is whole.
//!
//! Deliberately absent: stop strings and token borders (the engine's), and deciding the finish
//! reason.

mod collect;
mod delta;
mod format;
mod parser;

pub use collect::{Collected, CollectedCall, collect};
pub use delta::OutputDelta;
pub use format::{OutputFormat, Thinking};
pub use parser::OutputParser;
