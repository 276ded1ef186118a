//! Request fields of `/v1/chat/completions` alone.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::Int;

/// Absent and null are the same, except that `messages` must be there.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(deny_unknown_fields, default)]
pub struct ChatBody {
    pub messages: Option<Vec<Value>>,
    pub tools: Option<Value>,
    pub tool_choice: Option<Value>,
    pub parallel_tool_calls: Option<Value>,
    pub logprobs: Option<bool>,
    pub top_logprobs: Option<Int>,
    pub add_generation_prompt: Option<bool>,
    pub continue_final_message: Option<bool>,
    pub chat_template_kwargs: Option<Map<String, Value>>,
    pub enable_thinking: Option<bool>,
    pub thinking: Option<Value>,
    pub reasoning_effort: Option<String>,
    pub reasoning: Option<Map<String, Value>>,
    pub thinking_budget: Option<Int>,
    pub thinking_budget_tokens: Option<Int>,
    pub reasoning_budget: Option<Int>,
    pub reasoning_budget_tokens: Option<Int>,
    pub reasoning_budget_message: Option<String>,
}
