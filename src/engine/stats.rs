//! A picture of the engine for `/sequences`, `/health` and metrics, published by the engine thread through a watch channel.

/// One sequence slot.
#[derive(Clone, Debug, PartialEq)]
pub struct SequenceStats {
    pub seq: u32,
    /// Request id; `None` when the slot is idle (it may still hold reusable state).
    pub request: Option<String>,
    pub phase: Phase,
    pub n_prompt: usize,
    pub n_prompt_done: usize,
    pub n_cached: usize,
    pub n_generated: usize,
    /// Tokens of this slot in the KV cache.
    pub n_fill: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Idle,
    Prefill,
    Decode,
}

/// Published once a step at most; a reader may miss steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineStats {
    pub sequences: Vec<SequenceStats>,
    pub n_queued: usize,
    /// Tokens in the KV cache of `n_ctx`.
    pub n_fill: usize,
    pub n_ctx: usize,
    pub n_steps: u64,
}
