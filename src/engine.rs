//! The engine: one thread that owns the model and advances all sequences together, one step at a
//! time.
//!
//! HTTP, chat templates and llama.cpp are deliberately absent: requests arrive tokenised through
//! `Handle`, the model is reached through the seam `ModelRunner`. Folders in the order in which
//! they may name each other, the later the earlier: `vision`, `constraint`, `request`, `runner`,
//! `speculative`, `prefix`, `sequence`, `scheduler`, `execution`, `thread`.

mod constraint;
mod execution;
mod lost;
pub mod prefix;
mod request;
mod runner;
mod scheduler;
mod sequence;
mod speculative;
mod thread;
mod vision;

pub use constraint::rules::{AnswerRule, CallRule, Constraint, ThinkingRule};
pub use lost::Lost;
pub use prefix::cache::PrefixSettings;
pub use request::breakpoint::{Breakpoint, BreakpointKind, CacheUse};
pub use request::draft::{DraftCount, DraftSource, DraftTotals, MAX_DRAFT_TOKENS, SpeculativeParams};
pub use request::error::{EngineError, EngineStartError, RunnerError, RunnerErrorKind, SubmitError};
pub use request::event::{Event, Finish, FinishReason, Logprob, MissReason, Restored, Tier, Timings, Usage};
pub use request::generation::GenerationRequest;
pub use request::item::{PromptItem, whole};
pub use runner::fake::{self, FakeRunner};
pub use runner::state_bytes::{DeviceMemory, StateBytes};
pub use runner::{BatchRow, DraftRow, Loaded, ModelRunner, Restore, RunnerFacts, Saved, SavedRows};
pub use sequence::sink::EventStream;
pub use thread::handle::{Handle, Health};
pub use thread::stats;
pub use thread::{Engine, EngineSettings, Joiner, Shutdown};
pub use vision::encoder_cache::EncoderCache;
pub use vision::image::{Embedding, Grid, Image, ImageKey, ImageRow, VisionFacts};
