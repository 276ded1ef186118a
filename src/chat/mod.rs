//! From a chat request to tokens, and from generated text back to reasoning, content and tool calls. Knows neither HTTP nor
//! the engine thread; everything here is a pure function of its input.

pub mod error;
pub mod jinja;
pub mod messages;
pub mod output;
pub mod reasoning;
pub mod template;
pub mod tools;

pub use error::{RequestError, RequestErrorKind};
pub use messages::normalise;
pub use output::{Collected, CollectedCall, OutputDelta, OutputFormat, OutputParser, Thinking, collect};
pub use template::{ChatTemplate, RenderInput, TemplateError};
pub use tools::{Tool, ToolChoice, ToolFields, ToolLimits, ToolSettings};
