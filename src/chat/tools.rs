//! Tools: what the client declared, and the tool calls in generated text (Qwen XML and Hermes
//! JSON).
//!
//! Deliberately absent: running tools, and holding the model to their shapes (the engine's, by a
//! grammar made of `calls`).

mod calls;
mod declared;
pub(super) mod hermes;
pub(super) mod json_text;
pub(super) mod qwen_xml;
mod tool;
pub(super) mod value;

pub use calls::{CallForm, call_shapes, path as schema_path};
pub use declared::{ToolLimits, ToolSettings};
pub use tool::{Tool, ToolChoice};
