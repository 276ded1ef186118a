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
    pub cache: Option<CacheMembers>,
    pub n_probs: Option<Int>,
    pub speculative: Option<Map<String, Value>>,
    #[serde(rename = "speculative.n_max")]
    pub speculative_n_max: Option<Int>,
    #[serde(rename = "speculative.n_min")]
    pub speculative_n_min: Option<Int>,
    #[serde(rename = "speculative.p_min")]
    pub speculative_p_min: Option<f64>,
}

/// The object `cache`. Absent and null are the same.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default, deny_unknown_fields)]
pub struct CacheMembers {
    pub read: Option<bool>,
    pub write: Option<bool>,
}

/// The object `speculative`, in a body of its own so that an error has the whole path.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct SpeculativeBody {
    pub speculative: SpeculativeMembers,
}

/// Absent and null are the same.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct SpeculativeMembers {
    pub n_max: Option<Int>,
    pub n_min: Option<Int>,
    pub p_min: Option<f64>,
    pub lookup: Option<bool>,
    pub adaptive: Option<bool>,
}

impl SpeculativeMembers {
    /// Its names.
    pub const NAMES: [&str; 5] = ["n_max", "n_min", "p_min", "lookup", "adaptive"];
}
