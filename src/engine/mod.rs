//! The engine: one thread that owns the model and advances all sequences together, one step at a time.
//!
//! HTTP, chat templates and llama.cpp are deliberately absent: requests arrive tokenised through `Handle`, the model is
//! reached through the seam `ModelRunner`.

mod accept;
mod admission;
mod batch;
mod clock;
mod draft;
pub mod error;
pub mod fake;
pub mod handle;
mod output;
mod prefill;
mod pulse;
pub mod request;
pub mod runner;
mod scheduler;
mod sequence;
mod sink;
pub mod stats;
mod step;
pub mod thread;

pub use error::{EngineError, EngineStartError, RunnerError, RunnerErrorKind, SubmitError};
pub use fake::FakeRunner;
pub use handle::{EventStream, Handle, Health};
pub use request::{
    DraftCount, DraftSource, DraftTotals, Event, Finish, FinishReason, GenerationRequest, Logprob, MAX_DRAFT_TOKENS,
    PromptItem, SpeculativeParams, Timings, Usage,
};
pub use runner::{BatchRow, DraftRow, ModelRunner, RunnerFacts};
pub use thread::{Engine, EngineSettings, Joiner, Loaded, Shutdown};
