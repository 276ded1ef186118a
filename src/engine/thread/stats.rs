//! The engine as it is, for `/sequences`, `/health` and metrics, published by the engine thread
//! through a watch channel.

use crate::engine::runner::RunnerFacts;
use crate::engine::scheduler::slots::{Slot, Slots};

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

impl EngineStats {
    /// Before the first step.
    pub(in crate::engine) fn of(facts: &RunnerFacts) -> EngineStats {
        EngineStats {
            sequences: (0..facts.n_seq_max as u32).map(SequenceStats::idle).collect(),
            n_ctx: facts.n_ctx,
            ..EngineStats::default()
        }
    }
}

impl SequenceStats {
    fn idle(seq: u32) -> SequenceStats {
        SequenceStats {
            seq,
            request: None,
            phase: Phase::Idle,
            n_prompt: 0,
            n_prompt_done: 0,
            n_cached: 0,
            n_generated: 0,
            n_fill: 0,
        }
    }

    fn update(&mut self, slot: &Slot) {
        self.n_fill = slot.fill.n_tokens;
        let Some(sequence) = slot.occupant.as_deref() else {
            *self = SequenceStats { n_fill: self.n_fill, ..SequenceStats::idle(self.seq) };
            return;
        };
        if self.request.as_deref() != Some(sequence.id()) {
            self.request = Some(sequence.id().to_owned());
        }
        let decodes = sequence.n_generated > 0 && slot.n_pending() == 1;
        self.phase = if decodes { Phase::Decode } else { Phase::Prefill };
        self.n_prompt = sequence.n_prompt;
        self.n_prompt_done = slot.fill.n_tokens.min(sequence.n_prompt);
        self.n_cached = sequence.n_cached;
        self.n_generated = sequence.n_generated;
    }
}

/// Brings `stats` up to date in place: nothing is allocated while the same requests go on.
pub(super) fn update(stats: &mut EngineStats, slots: &Slots, n_queued: usize, n_steps: u64) {
    for (sequence, slot) in stats.sequences.iter_mut().zip(slots.iter()) {
        sequence.update(slot);
    }
    stats.n_queued = n_queued;
    stats.n_fill = slots.n_fill();
    stats.n_steps = n_steps;
}
