//! Request fields that chat and completions share, but for those of sampling (`chat::request::SamplingFields`).

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Int;

/// Absent and null are the same. It is read from a body that holds the fields of sampling too; the table of fields let nothing
/// else through.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct GenerationBody {
    pub model: Option<String>,
    pub stream: Option<bool>,
    pub stream_options: Option<Map<String, Value>>,
    pub return_progress: Option<bool>,
    pub n: Option<Int>,
    pub max_tokens: Option<Int>,
    pub max_completion_tokens: Option<Int>,
    pub n_predict: Option<Int>,
    pub stop: Option<Value>,
    pub ignore_eos: Option<bool>,
    pub cache_prompt: Option<bool>,
    pub n_probs: Option<Int>,
}
