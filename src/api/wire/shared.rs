//! Request fields of both completions that only HTTP needs.

use serde_json::{Map, Value};

use crate::chat::fields::fields;

fields! {
    /// Which model, and how the answer is to be sent.
    pub struct ResponseFields {
        model: String,
        stream: bool,
        stream_options: Map<String, Value>,
        return_progress: bool,
    }
}
