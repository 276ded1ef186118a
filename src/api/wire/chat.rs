//! The body of `/v1/chat/completions`.

use serde_json::Value;

use super::shared::ResponseFields;
use crate::chat::fields::{
    ConstraintFields, GenerationFields, SamplingFields, TemplateFields, ThinkingFields, ToolFields, fields, groups,
};
use crate::chat::number::Int;

groups! {
    /// Everything that a chat may ask for.
    pub struct ChatBody {
        chat: ChatOwnFields,
        template: TemplateFields,
        tools: ToolFields,
        thinking: ThinkingFields,
        response: ResponseFields,
        generation: GenerationFields,
        sampling: SamplingFields,
        constraint: ConstraintFields,
    }
}

fields! {
    /// What is named or typed in this way here alone. `messages` must be there.
    pub struct ChatOwnFields {
        messages: Vec<Value>,
        logprobs: bool,
        top_logprobs: Int,
    }
}
