//! What a tool is.

use serde_json::Value;

/// A declared function. `parameters` is its JSON schema (an object; `{}` when the client sent
/// none).
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
