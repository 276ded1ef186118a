//! Request fields that chat and completions share.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Int;

/// Absent and null are the same.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
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
    pub seed: Option<Int>,
    pub temperature: Option<f64>,
    pub top_k: Option<Int>,
    pub top_p: Option<f64>,
    pub min_p: Option<f64>,
    pub typical_p: Option<f64>,
    pub xtc_probability: Option<f64>,
    pub xtc_threshold: Option<f64>,
    pub dry_multiplier: Option<f64>,
    pub dry_base: Option<f64>,
    pub dry_allowed_length: Option<Int>,
    pub dry_penalty_last_n: Option<Int>,
    pub dry_sequence_breakers: Option<Vec<String>>,
    pub repeat_penalty: Option<f64>,
    pub repetition_penalty: Option<f64>,
    pub repeat_last_n: Option<Int>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    pub logit_bias: Option<Value>,
}
