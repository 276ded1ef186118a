//! Request fields of `/v1/completions` alone.

use serde::Deserialize;
use serde_json::Value;

use super::Int;

/// Absent and null are the same, except that `prompt` must be there.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct CompletionBody {
    pub prompt: Option<Value>,
    pub echo: Option<bool>,
    pub best_of: Option<Int>,
    pub logprobs: Option<Int>,
    pub special: Option<bool>,
    pub skip_special_tokens: Option<bool>,
}
