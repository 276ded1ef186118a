//! Tools: what the client declared, and the tool calls in generated text (Qwen XML and Hermes JSON).
//!
//! Deliberately absent: running tools, and holding the model to their shapes (the engine's, by a grammar made of `calls`).

mod calls;
mod declared;
pub(super) mod hermes;
pub(super) mod json_text;
pub(super) mod qwen_xml;
pub(super) mod value;

use serde_json::Value;

pub use calls::{CallForm, call_shapes, path as schema_path};
pub use declared::{ToolFields, ToolLimits, ToolSettings};

/// A declared function. `parameters` is its JSON schema (an object; `{}` when the client sent none).
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    pub parameters: Value,
    /// `false`: the values of a call are free, only names are held to; else the schema holds.
    pub strict: Option<bool>,
    /// The tool as the client sent it, for the template.
    pub raw: Value,
}

/// `tool_choice`, apart from the names that it allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolChoice {
    #[default]
    Auto,
    /// The answer is a call.
    Required,
    /// Tools stay in the prompt, calls are not parsed: text stays content.
    None,
}
