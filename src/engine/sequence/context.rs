//! What does not change while the engine lives.

use crate::engine::request::draft::{MAX_DRAFT_TOKENS, SpeculativeParams};
use crate::engine::runner::RunnerFacts;
use crate::text::Tokenizer;

/// The loaded model as requests see it.
pub(in crate::engine) struct EngineContext {
    pub facts: RunnerFacts,
    pub tokenizer: Tokenizer,
}

impl EngineContext {
    /// What of the wanted drafting this model can do.
    pub fn draftable(&self, wanted: SpeculativeParams) -> SpeculativeParams {
        let most = (self.facts.n_outputs_seq - 1).min(MAX_DRAFT_TOKENS) as u32;
        SpeculativeParams {
            mtp_max: if self.facts.mtp { wanted.mtp_max.min(most) } else { 0 },
            lookup_max: wanted.lookup_max.min(most),
            ..wanted
        }
    }
}
