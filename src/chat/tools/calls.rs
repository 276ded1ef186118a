//! The shapes of the calls that may be made, from the declarations.

use serde_json::json;

use super::declared::ToolSettings;
use super::tool::Tool;
use crate::chat::template::ChatTemplate;
use crate::grammar::{CallBody, CallShape};

/// How a model writes calls, by its template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallForm {
    /// Qwen's XML.
    Xml,
    /// Hermes' JSON.
    Json,
    /// The template does not tell.
    Either,
}

impl CallForm {
    pub fn of(template: &ChatTemplate) -> CallForm {
        match (template.mentions("<function="), template.mentions("\"arguments\"")) {
            (true, _) => CallForm::Xml,
            (false, true) => CallForm::Json,
            (false, false) => CallForm::Either,
        }
    }
}

/// A shape for every way of calling every tool that may be called.
pub fn call_shapes(tools: &ToolSettings, form: CallForm) -> Vec<CallShape> {
    let callable = tools.callable();
    let declared = tools.tools.iter().enumerate();
    let called = declared.filter(|(_, tool)| callable.iter().any(|callable| callable.name == tool.name));
    let forms: &[bool] = match form {
        CallForm::Xml => &[true],
        CallForm::Json => &[false],
        CallForm::Either => &[true, false],
    };
    called.flat_map(|(i, tool)| forms.iter().map(move |xml| shape(tool, i, *xml))).collect()
}

fn shape(tool: &Tool, index: usize, xml: bool) -> CallShape {
    let free = tool.strict == Some(false);
    let schema = if free && !xml { json!({"type": "object"}) } else { tool.parameters.clone() };
    let body = if xml { CallBody::Xml { free } } else { CallBody::Json };
    CallShape { name: tool.name.clone(), schema, body, path: path(index) }
}

/// Where the schema of a tool stands in the request.
pub fn path(index: usize) -> String {
    format!("tools[{index}].function.parameters")
}
