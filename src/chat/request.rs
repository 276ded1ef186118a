//! A request in the chat layer's own terms: what every wire protocol is lowered to, typed but not yet checked.
//!
//! Deliberately absent: defaults and ranges (`generation`, `sampling`, `thinking`) and the names of HTTP.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::number;
use crate::engine::Picture;

/// A value with the name of the request field that carried it, where several fields say the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Named<T> {
    pub param: &'static str,
    pub value: T,
}

/// One conversation to be continued. Absent and null fields are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatRequest {
    /// Their pictures were taken out (`pictures::take_from_messages`).
    pub messages: Vec<Value>,
    /// In the order in which the messages name them.
    pub pictures: Vec<Arc<Picture>>,
    pub tools: Option<Value>,
    pub tool_choice: Option<Value>,
    pub parallel_tool_calls: Option<Value>,
    pub add_generation_prompt: Option<bool>,
    pub continue_final_message: bool,
    pub template_kwargs: Map<String, Value>,
    pub thinking: ThinkingFields,
    pub generation: GenerationFields,
}

/// Every spelling of "think" and "do not think".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThinkingFields {
    pub enable_thinking: Option<bool>,
    /// `{"type": "enabled" | "adaptive" | "auto" | "disabled"}` or a boolean.
    pub thinking: Option<Value>,
    /// "none" is off; "minimal", "low", "medium", "high", "xhigh" and "max" are on.
    pub reasoning_effort: Option<String>,
    /// `{"enabled": bool, "effort": string, "max_tokens": integer}`.
    pub reasoning: Option<Map<String, Value>>,
    /// Most tokens of the thinking; -1: no bound.
    pub budget: Option<Named<i64>>,
    /// What is written at the end of thinking that is closed at its bound.
    pub message: Option<String>,
}

/// Every spelling of "the answer must look like this", under the names that clients send. Read straight from a body.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct ConstraintFields {
    /// `{"type": "text" | "json_object" | "json_schema" | "grammar" | "regex", ...}`.
    pub response_format: Option<Value>,
    /// A schema.
    pub json_schema: Option<Value>,
    /// GBNF or Lark.
    pub grammar: Option<String>,
    pub ebnf: Option<String>,
    pub regex: Option<String>,
    pub guided_json: Option<Value>,
    pub guided_regex: Option<String>,
    pub guided_choice: Option<Vec<String>>,
    pub guided_grammar: Option<String>,
    /// One of `json`, `json_object`, `regex`, `choice`, `grammar`.
    pub structured_outputs: Option<Map<String, Value>>,
    /// "answer" or "whole".
    pub constraint_scope: Option<String>,
}

/// Raw prompts to be continued.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompletionRequest {
    /// A string, a list of token ids, an object with a string and the number of its pictures (`pictures::take_from_prompt`), or
    /// a list of strings, lists and objects.
    pub prompt: Value,
    /// Of all prompts, in order.
    pub pictures: Vec<Arc<Picture>>,
    pub echo: bool,
    pub show_control: bool,
    pub generation: GenerationFields,
}

/// How long, how often, until where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GenerationFields {
    pub max_tokens: Option<Named<i64>>,
    pub n: Option<i64>,
    /// A string or a list of strings.
    pub stop: Option<Value>,
    pub ignore_eos: bool,
    /// Alternatives per token; `None`: no logprobs.
    pub logprobs: Option<Named<i64>>,
    pub cache_prompt: Option<bool>,
    pub cache: CacheFields,
    pub progress: bool,
    pub speculative: SpeculativeFields,
    pub sampling: SamplingFields,
    pub constraint: ConstraintFields,
}

/// What of the prefix cache a request uses; absent: as `cache_prompt` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFields {
    pub read: Option<bool>,
    pub write: Option<bool>,
}

/// Drafting: how fast the answer comes, never which one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SpeculativeFields {
    pub n_max: Option<i64>,
    pub n_min: Option<i64>,
    pub p_min: Option<f64>,
    pub lookup: Option<bool>,
    pub adaptive: Option<bool>,
}

/// The sampling chain's knobs, under the names that clients send. It is read straight from a body: fields of others in it are
/// passed by.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(default)]
pub struct SamplingFields {
    pub temperature: Option<f64>,
    #[serde(deserialize_with = "number::optional")]
    pub top_k: Option<i64>,
    pub top_p: Option<f64>,
    pub min_p: Option<f64>,
    pub typical_p: Option<f64>,
    pub xtc_probability: Option<f64>,
    pub xtc_threshold: Option<f64>,
    pub dry_multiplier: Option<f64>,
    pub dry_base: Option<f64>,
    #[serde(deserialize_with = "number::optional")]
    pub dry_allowed_length: Option<i64>,
    #[serde(deserialize_with = "number::optional")]
    pub dry_penalty_last_n: Option<i64>,
    pub dry_sequence_breakers: Option<Vec<String>>,
    pub repeat_penalty: Option<f64>,
    /// Another name; `repeat_penalty` wins.
    pub repetition_penalty: Option<f64>,
    #[serde(deserialize_with = "number::optional")]
    pub repeat_last_n: Option<i64>,
    pub presence_penalty: Option<f64>,
    pub frequency_penalty: Option<f64>,
    /// `{"id": bias}` or `[[id or text, bias or false], ...]`.
    pub logit_bias: Option<Value>,
    #[serde(deserialize_with = "number::optional")]
    pub seed: Option<i64>,
}
