//! What the calls of a tool look like.

use serde_json::Value;

/// Calls of one tool.
#[derive(Clone, Debug, PartialEq)]
pub struct CallShape {
    pub name: String,
    /// The schema of the arguments.
    pub schema: Value,
    pub body: CallBody,
    /// Path of the schema in the request, for what is relaxed.
    pub path: String,
}

/// How a call is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBody {
    Xml {
        /// Names alone are held to the schema, and values are free.
        free: bool,
    },
    Json,
}
