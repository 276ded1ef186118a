//! Requests of the small endpoints.

use serde::Deserialize;

use crate::chat::number::Int;

/// `/tokenize`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizeBody {
    pub content: String,
    /// Put the model's BOS in front where it has one.
    #[serde(default)]
    pub add_special: bool,
    /// Read texts of control tokens as those tokens; true when absent.
    pub parse_special: Option<bool>,
    /// Answer with `{"id", "piece"}` instead of ids.
    #[serde(default)]
    pub with_pieces: bool,
}

/// `/detokenize`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DetokenizeBody {
    pub tokens: Vec<Int>,
}
