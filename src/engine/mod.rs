//! The engine: one thread that owns the model and advances all sequences together, one step at a time.
//!
//! HTTP, chat templates and llama.cpp are deliberately absent: requests arrive tokenised through `Handle`, the model is
//! reached through the seam `ModelRunner`.

mod accept;
mod admission;
mod batch;
mod clock;
pub mod constraint;
mod draft;
pub mod error;
pub mod fake;
pub mod gallery;
mod guide;
pub mod handle;
mod lost;
mod output;
pub mod picture;
mod prefill;
pub mod prefix;
mod pulse;
pub mod request;
mod resume;
pub mod runner;
mod save;
mod scheduler;
mod seeing;
mod sequence;
mod sink;
mod state_bytes;
pub mod stats;
mod step;
pub mod thread;

pub use constraint::{AnswerRule, CallRule, Constraint, ThinkingRule};
pub use error::{EngineError, EngineStartError, RunnerError, RunnerErrorKind, SubmitError};
pub use fake::FakeRunner;
pub use gallery::Gallery;
pub use handle::{EventStream, Handle, Health};
pub use lost::Lost;
pub use picture::{Embedding, Grid, Picture, PictureKey, PictureRow, VisionFacts};
pub use prefix::PrefixSettings;
pub use request::{
    CacheUse, DraftCount, DraftSource, DraftTotals, Event, Finish, FinishReason, GenerationRequest, Logprob,
    MAX_DRAFT_TOKENS, Mark, MarkKind, PromptItem, Restored, SpeculativeParams, Tier, Timings, Usage, Why, whole,
};
pub use runner::{BatchRow, DraftRow, ModelRunner, Restore, RunnerFacts, Saved, SavedRows};
pub use state_bytes::{DeviceMemory, StateBytes};
pub use thread::{Engine, EngineSettings, Joiner, Loaded, Shutdown};
