//! Drafting: what a request asks of it, and what came of it.

/// Longest draft of a sequence in a step.
pub const MAX_DRAFT_TOKENS: usize = 16;

/// Drafting for one request. It changes how fast the answer comes, never which one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeculativeParams {
    /// Most tokens that the MTP head drafts in a step; 0: none.
    pub mtp_max: u32,
    /// Most tokens that lookup drafts in a step; 0: none.
    pub lookup_max: u32,
    /// Draft only as much as pays; else always the most.
    pub adaptive: bool,
    /// A draft of fewer tokens is dropped.
    pub n_min: u32,
    /// The MTP head stops where its best token is less probable, 0..=1.
    pub p_min: f32,
}

impl SpeculativeParams {
    /// No drafts.
    pub const OFF: SpeculativeParams =
        SpeculativeParams { mtp_max: 0, lookup_max: 0, adaptive: true, n_min: 0, p_min: 0.0 };
}

/// Where a draft comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftSource {
    /// The model's MTP head.
    Mtp,
    /// What followed the same words earlier.
    Lookup,
    /// What the constraint leaves no choice about.
    Forced,
}

/// Drafted tokens and those of them that the model said too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftCount {
    pub drafted: u32,
    pub accepted: u32,
}

/// What drafting came to in one generation. Positions count from 0, the first drafted token of a
/// step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DraftTotals {
    /// Steps that gave tokens, with a draft or without.
    pub n_steps: u32,
    pub mtp: DraftCount,
    pub lookup: DraftCount,
    pub forced: DraftCount,
    pub by_position: [DraftCount; MAX_DRAFT_TOKENS],
}

impl DraftTotals {
    /// Drafted and accepted tokens of all sources.
    pub fn all(&self) -> DraftCount {
        DraftCount {
            drafted: self.mtp.drafted + self.lookup.drafted + self.forced.drafted,
            accepted: self.mtp.accepted + self.lookup.accepted + self.forced.accepted,
        }
    }
}
