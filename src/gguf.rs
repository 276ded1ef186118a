//! Reads GGUF headers in Rust, before any C++ parser sees the file: every count, length, type and offset is checked.
//!
//! Deliberately absent: tensor data. Weights are read by llama.cpp alone, from a file that passed these checks. Values that
//! make llama.cpp's loader abort the process (rather than fail) are refused here by name.

pub mod embedded;
mod facts;
mod ggml_type;
mod metadata;
mod projector;
mod reader;
mod recurrent;
mod split;
mod vocab;

pub use facts::{ModelFacts, TensorBytes};
pub use ggml_type::GgmlType;
pub use projector::ProjectorFacts;
pub use reader::{Gguf, GgufError, TensorInfo, Value};
pub use recurrent::RecurrentFacts;
pub use vocab::{TokenKind, VocabFacts};
