//! One step as a plan: who gives way, how much may be drafted, which rows it computes.
//!
//! A pure function of the state of the slots. It has two halves because a draft is made between
//! them: `begin` says how much may be drafted, `share_rows` what becomes of the drafts.

use super::shares::share;
use super::state::{Limits, Pressure, SlotState, newest_elastic, oldest_idle, running};

/// Rows that drafts may take, those of the last tokens of all decoding sequences included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) struct DraftBudget {
    /// Tokens of the KV cache that are free for them.
    pub n_free: usize,
    /// Rows of the step.
    pub n_rows: usize,
}

/// What a step takes of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct PlannedPart {
    pub slot: usize,
    /// Items of prompt and answer.
    pub n_items: usize,
    /// Tokens of its draft, behind its last item.
    pub n_drafted: usize,
}

impl PlannedPart {
    pub fn n_rows(&self) -> usize {
        self.n_items + self.n_drafted
    }
}

/// The plan of a step. Used again from step to step: nothing is allocated once it is warm.
#[derive(Debug, Default)]
pub(in crate::engine) struct StepPlan {
    /// Sequences that go back to the queue, in this order.
    pub preempt: Vec<usize>,
    pub drafts: DraftBudget,
    /// Drafts are left out after all: with them the rows would not fit.
    pub drop_drafts: bool,
    /// Idle slots whose rows give way, in this order.
    pub evict: Vec<usize>,
    /// Decoding sequences first, then prefill in the order of arrival.
    pub parts: Vec<PlannedPart>,
    prefilling: Vec<usize>,
    needs: Vec<usize>,
    shares: Vec<usize>,
}

impl StepPlan {
    /// The first half. When all promises exceed the cache, the newest elastic sequences give way.
    /// What is free then may be drafted, but for a row that prefill gets in any case.
    pub fn begin(&mut self, slots: &[SlotState], limits: Limits, pressure: Pressure) {
        self.preempt.clear();
        let mut committed: usize = running(slots).map(|(_, running)| running.reserve).sum();
        while committed > limits.n_ctx {
            let Some(slot) = newest_elastic(slots, &self.preempt) else { break };
            committed -= slots[slot].running.map_or(0, |running| running.reserve);
            self.preempt.push(slot);
        }
        let staying = || running(slots).filter(|(slot, _)| !self.preempt.contains(slot));
        let n_fill: usize = staying().map(|(slot, _)| slots[slot].n_fill).sum();
        let prefills = staying().any(|(_, running)| running.n_pending > 1);
        self.drafts = DraftBudget {
            n_free: if pressure.hold_drafts { 0 } else { limits.n_ctx.saturating_sub(n_fill) },
            n_rows: limits.n_batch - usize::from(prefills),
        };
    }

    /// The second half. A sequence with one item to go has its row in every step, so prefill never
    /// holds up decoding.
    pub fn share_rows(&mut self, slots: &[SlotState], limits: Limits, pressure: Pressure) {
        let running_fill: usize = running(slots).map(|(slot, _)| slots[slot].n_fill).sum();
        self.drop_drafts = false;
        self.lay_out(slots, limits, pressure);
        let n_rows = self.n_rows();
        let drafted = self.parts.iter().any(|part| part.n_drafted > 0);
        if drafted && (n_rows > limits.n_batch || running_fill + n_rows > limits.n_ctx) {
            self.drop_drafts = true;
            self.lay_out(slots, limits, pressure);
        }
        self.make_room(slots, limits.n_ctx);
    }

    /// Rows of all parts.
    pub fn n_rows(&self) -> usize {
        self.parts.iter().map(PlannedPart::n_rows).sum()
    }

    fn lay_out(&mut self, slots: &[SlotState], limits: Limits, pressure: Pressure) {
        self.parts.clear();
        self.prefilling.clear();
        for (slot, running) in running(slots) {
            if running.n_pending == 1 {
                let n_drafted = if self.drop_drafts { 0 } else { running.n_drafted };
                self.parts.push(PlannedPart { slot, n_items: 1, n_drafted });
            } else {
                self.prefilling.push(slot);
            }
        }
        let of = |slot: usize| slots[slot].running.unwrap_or_default();
        self.prefilling.sort_unstable_by_key(|&slot| of(slot).serial);
        self.needs.clear();
        self.needs.extend(self.prefilling.iter().map(|&slot| of(slot).n_ready));
        share(prefill_budget(self.n_rows(), limits, pressure), &self.needs, &mut self.shares);
        let chunks = self.prefilling.iter().zip(&self.shares).filter(|(_, n_items)| **n_items > 0);
        self.parts.extend(chunks.map(|(&slot, &n_items)| PlannedPart { slot, n_items, n_drafted: 0 }));
    }

    /// What finished sequences left goes, the oldest first, until the rows fit.
    fn make_room(&mut self, slots: &[SlotState], n_ctx: usize) {
        self.evict.clear();
        let mut n_used = slots.iter().map(|slot| slot.n_fill).sum::<usize>() + self.n_rows();
        while n_used > n_ctx {
            let Some(slot) = oldest_idle(slots, &self.evict) else { break };
            n_used -= slots[slot].n_fill;
            self.evict.push(slot);
        }
    }
}

/// The rows for prefill beside the decode rows that are planned: at least one.
fn prefill_budget(n_decode: usize, limits: Limits, pressure: Pressure) -> usize {
    let n_step = if n_decode == 0 { limits.n_ubatch } else { limits.prefill_chunk };
    n_step.min(limits.n_batch).saturating_sub(n_decode).min(pressure.prefill_cap).max(1)
}
