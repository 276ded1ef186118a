//! Tools: what the client declared, and the tool calls in generated text (Qwen XML and Hermes JSON).
//!
//! Deliberately absent: running tools, and forcing calls (`tool_choice: required`): that needs a grammar.

mod declared;
pub(super) mod hermes;
pub(super) mod json_text;
pub(super) mod qwen_xml;
pub(super) mod schema;
pub(super) mod value;

use serde_json::Value;

pub use declared::{ToolFields, ToolLimits, ToolSettings};

/// A declared function. `parameters` is its JSON schema (an object; `{}` when the client sent none).
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    pub name: String,
    pub description: Option<String>,
    pub parameters: Value,
    /// The tool as the client sent it, for the template.
    pub raw: Value,
}

/// `tool_choice` as far as it is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChoice {
    Auto,
    /// Tools stay in the prompt, calls are not parsed: text stays content.
    None,
}
