//! What the sequences of a step could draft, and what each of them drafts.

use super::acceptance::Acceptance;
use crate::engine::request::draft::DraftSource;

/// What one sequence could draft in this step.
pub(in crate::engine) struct Offer<'a> {
    pub acceptance: &'a Acceptance,
    /// Most tokens of the MTP head; 0: no MTP for it.
    pub mtp_max: usize,
    pub text: Option<TextOffer>,
}

/// Text that is there without a pass of the MTP head.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct TextOffer {
    /// Not the MTP head.
    pub source: DraftSource,
    pub n_tokens: usize,
    /// Length of the match, `Found::n_match`; of no meaning for what is forced.
    pub n_match: usize,
}

/// What one sequence drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct DraftChoice {
    pub source: DraftSource,
    /// 0: no draft of its own, its rows only pad.
    pub n: usize,
}
