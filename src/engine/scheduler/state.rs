//! What decisions are made from: numbers of slots, limits of the context, and what lack of memory
//! has led to.
//!
//! Nothing here points at a request, so a test writes a state down and looks at the plan.

use super::slots::Slot;
use crate::engine::vision::encoder_cache::EncoderCache;

/// Bounds of every step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Limits {
    /// Tokens that the KV cache holds for all sequences.
    pub n_ctx: usize,
    /// Rows of a step.
    pub n_batch: usize,
    /// Prefill rows of a step while nothing decodes: one device pass, so that a cancel or a new
    /// request waits no longer.
    pub n_ubatch: usize,
    /// Rows of a step, those of decoding sequences included, while anything decodes.
    pub prefill_chunk: usize,
}

/// What lack of memory has led to; forgotten when a sequence ends and its memory comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Pressure {
    /// The cache had no room although the sums said so: nobody is admitted beside others.
    pub hold_admission: bool,
    /// Bound of the prefill rows of a step.
    pub prefill_cap: usize,
    /// Rows of drafts are the first to go.
    pub hold_drafts: bool,
}

impl Pressure {
    pub const NONE: Pressure = Pressure { hold_admission: false, prefill_cap: usize::MAX, hold_drafts: false };
}

/// One slot of the context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct SlotState {
    /// Tokens in the KV cache: of the sequence in it, or of the one that was.
    pub n_fill: usize,
    /// Step of the last row.
    pub last_used: u64,
    /// `None`: the slot is idle.
    pub running: Option<Running>,
}

/// A sequence in a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct Running {
    /// Order of arrival.
    pub serial: u64,
    /// Tokens of the KV cache that are promised to it.
    pub reserve: usize,
    /// It grows as it needs; the others have said how far they may go.
    pub elastic: bool,
    /// It has generated a token.
    pub begun: bool,
    /// Items that it must still have processed; 1: it decodes.
    pub n_pending: usize,
    /// Those of them that its next chunk may take. Of no meaning while it decodes.
    pub n_ready: usize,
    /// Tokens of its draft.
    pub n_drafted: usize,
}

impl SlotState {
    /// `encoded`: the images whose rows can be computed.
    pub fn of(slot: &Slot, encoded: &EncoderCache) -> SlotState {
        let running = slot.occupant.as_deref().map(|sequence| {
            let n_pending = slot.n_pending();
            Running {
                serial: sequence.serial,
                reserve: slot.reserve,
                elastic: sequence.is_elastic(),
                begun: sequence.n_generated > 0,
                n_pending,
                n_ready: if n_pending == 1 { 1 } else { slot.n_ready(encoded) },
                n_drafted: sequence.drafts.draft.tokens.len(),
            }
        });
        SlotState { n_fill: slot.fill.n_tokens, last_used: slot.last_used, running }
    }
}

/// The slots with a sequence in them.
pub(super) fn running(slots: &[SlotState]) -> impl Iterator<Item = (usize, Running)> + '_ {
    slots.iter().enumerate().filter_map(|(i, slot)| Some((i, slot.running?)))
}

/// The idle slot with state that was not used for longest, `but` those left out.
pub(super) fn oldest_idle(slots: &[SlotState], but: &[usize]) -> Option<usize> {
    let idle = slots.iter().enumerate().filter(|(_, slot)| slot.running.is_none() && slot.n_fill > 0);
    idle.filter(|(i, _)| !but.contains(i)).min_by_key(|(_, slot)| slot.last_used).map(|(i, _)| i)
}

/// The elastic sequence that came last, `but` those left out: the first to give way.
pub(super) fn newest_elastic(slots: &[SlotState], but: &[usize]) -> Option<usize> {
    let elastic = running(slots).filter(|(i, running)| running.elastic && !but.contains(i));
    elastic.max_by_key(|(_, running)| running.serial).map(|(i, _)| i)
}
