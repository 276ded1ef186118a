//! From a chat request to tokens, and from generated text back to reasoning, content and tool calls. Knows neither HTTP nor
//! the engine thread; everything here is a pure function of its input.

mod breakers;
pub mod constraint;
pub mod error;
pub mod generation;
pub mod jinja;
mod marks;
pub mod messages;
pub mod number;
pub mod output;
pub mod pictures;
pub mod prepare;
mod prompt;
pub mod reasoning;
pub mod request;
pub mod sampling;
mod speculative;
pub mod template;
pub mod thinking;
pub mod tools;

pub use error::{RequestError, RequestErrorKind};
pub use messages::normalise;
pub use output::{Collected, CollectedCall, OutputDelta, OutputFormat, OutputParser, Thinking, collect};
pub use prepare::{Prepare, Prepared, Rendered};
pub use request::{ChatRequest, CompletionRequest};
pub use template::{ChatTemplate, RenderInput, TemplateError, TemplateOrigin};
pub use tools::{Tool, ToolChoice, ToolFields, ToolLimits, ToolSettings};
