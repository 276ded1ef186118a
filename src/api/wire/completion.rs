//! The body of `/v1/completions`.

use serde_json::Value;

use super::shared::ResponseFields;
use crate::chat::fields::{ConstraintFields, GenerationFields, SamplingFields, fields, groups};
use crate::chat::number::Int;

groups! {
    /// Everything that a raw completion may ask for.
    pub struct CompletionBody {
        completion: CompletionOwnFields,
        response: ResponseFields,
        generation: GenerationFields,
        sampling: SamplingFields,
        constraint: ConstraintFields,
    }
}

fields! {
    /// What is named or typed in this way here alone. `prompt` must be there.
    pub struct CompletionOwnFields {
        prompt: Value,
        echo: bool,
        best_of: Int,
        logprobs: Int,
        special: bool,
        skip_special_tokens: bool,
    }
}
