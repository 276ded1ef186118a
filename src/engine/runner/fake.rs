//! A scripted model: the runner of all tests that need no weights.
//!
//! It keeps the contract of `ModelRunner` strictly. A broken rule of the caller (a gap in the
//! positions, too many rows, two truncations without a step between them) panics with its name, so
//! a test sees the engine die of it; only what a real context reports as an error is an error here.
//! Its vocabulary is that of the byte tokenizer (`text::ByteCodec`). It has no weights and no
//! notion of time.

mod answers;
mod calls;
mod model;
mod rows;
mod runner;
mod script;

pub use calls::{Call, Calls, Fault, Gate};
pub use model::FakeRunner;
pub use rows::token_of;
pub use script::{END_OF_TEXT, IM_END, IMAGES, Next, Script};
