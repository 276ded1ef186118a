//! From a chat request to tokens, and from generated text back to reasoning, content and tool
//! calls. Knows neither HTTP nor the engine thread; everything here is a pure function of its
//! input.
//!
//! Path of a request: `fields` (as sent) -> `request` (checked, by `conversation`, `options` and
//! `constraint::sources`) -> `prepare` (the engine's requests).

mod breakers;
mod breakpoints;
pub mod constraint;
pub mod conversation;
pub mod error;
pub mod fields;
pub mod images;
pub mod jinja;
mod json;
mod markers;
pub mod messages;
pub mod number;
pub mod options;
pub mod output;
pub mod prepare;
pub mod prompts;
pub mod reasoning;
pub mod request;
pub mod sampling;
pub mod served;
mod speculative;
pub mod template;
pub mod thinking;
pub mod tools;

pub use error::{RequestError, RequestErrorKind};
pub use messages::normalise;
pub use output::{Collected, CollectedCall, OutputDelta, OutputFormat, OutputParser, Thinking, collect};
pub use prepare::{ChoiceRequests, Notices, Prepared};
pub use request::{ChatRequest, Conversation};
pub use served::ServedModel;
pub use template::{ChatTemplate, RenderInput, TemplateError, TemplateOrigin};
pub use tools::{Tool, ToolChoice, ToolLimits, ToolSettings};
