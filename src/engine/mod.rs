//! The engine: one thread that owns the model and advances all sequences together, one step at a time.
//!
//! HTTP, chat templates and llama.cpp are deliberately absent: requests arrive tokenised through `Handle`, the model is
//! reached through the seam `ModelRunner`.

pub mod error;
pub mod handle;
pub mod request;
pub mod runner;
pub mod stats;

pub use error::{EngineError, RunnerError, RunnerErrorKind, SubmitError};
pub use handle::{EventStream, Handle, Health};
pub use request::{Event, Finish, FinishReason, GenerationRequest, Logprob, PromptItem, Timings, Usage};
pub use runner::{BatchRow, ModelRunner, RunnerFacts};
