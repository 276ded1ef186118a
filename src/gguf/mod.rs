//! Reads GGUF headers in Rust, before any C++ parser sees the file: every count, length, type and offset is checked.
//!
//! Deliberately absent: tensor data. Weights are read by llama.cpp alone, from a file that passed these checks.

mod facts;
mod reader;

pub use facts::{ModelFacts, RecurrentFacts, TensorBytes, TokenKind, VocabFacts};
pub use reader::{Gguf, GgufError, TensorInfo, Value};
