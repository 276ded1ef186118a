//! What a request starts from: the state that an idle sequence holds, or a saved one put back,
//! whichever goes further.
//!
//! A saved state takes the attention rows that some sequence has in the KV cache already from
//! there, without copying them, and only the rest from where it is saved.

use std::time::Instant;

use super::checkpoint::Checkpoints;
use super::slot_memory::clear;
use crate::engine::prefix::cache::RecentRequest;
use crate::engine::prefix::store::{Fetch, SavedState};
use crate::engine::prefix::tree::{NodeId, PrefixMatch, Span};
use crate::engine::request::error::{RunnerError, RunnerErrorKind};
use crate::engine::request::event::{MissReason, Restored, Tier};
use crate::engine::request::item::{Extent, PromptItem, whole};
use crate::engine::runner::{ModelRunner, Restore, SavedRows};
use crate::engine::scheduler::slots::{SlotChoice, Slots};
use crate::engine::sequence::Sequence;
use crate::units::Pos;

/// How a request gets its slot and its state.
pub(in crate::engine) struct StartPlan {
    pub choice: SlotChoice,
    /// `None`: with what the slot holds.
    restore: Option<RestorePlan>,
    matched: PrefixMatch,
}

/// A saved state that is to be restored.
struct RestorePlan {
    slot: usize,
    node: NodeId,
    end: Extent,
    state: SavedState,
    /// Slot that has the rows before the first saved ones of `state`.
    donor: usize,
}

/// A slot that has the first rows of a prompt.
#[derive(Clone, Copy)]
struct Donor {
    slot: usize,
    n_items: usize,
}

/// The model, and its steps so far.
pub(super) struct Device<'a> {
    pub runner: &'a mut dyn ModelRunner,
    pub n_steps: u64,
}

impl Checkpoints {
    /// How the head of the queue would start. `None`: not now, as all slots are taken or its state
    /// is on its way from disk.
    pub fn plan_start(&mut self, head: &Sequence, slots: &Slots) -> Option<StartPlan> {
        let plain = slots.choose(head, self.context.facts.hybrid)?;
        if !head.cache_prompt || !self.prefix.is_on() {
            return Some(StartPlan { choice: plain, restore: None, matched: PrefixMatch::default() });
        }
        let limit = head.items.len().saturating_sub(1);
        let donor = donor(slots, &head.items, limit);
        let kept = donor.map_or(0, |donor| Extent::of(&head.items[..donor.n_items]).pos().0);
        let (mut matched, nodes) = self.prefix.find(&head.items, limit, kept);
        matched.n_common = matched.n_common.max(donor.map_or(0, |donor| donor.n_items));
        let better = |end: Extent| end.n_items > plain.n_common;
        for node in nodes {
            let end = self.prefix.end_of(node);
            if !better(end) {
                break;
            }
            match self.prefix.fetch(node, kept.min(end.pos().0)) {
                Fetch::Ready(state) => {
                    let idle = donor.map(|d| d.slot).filter(|slot| slots[*slot].is_idle());
                    let slot = idle.unwrap_or(plain.slot);
                    let donor = donor.map_or(slot, |donor| donor.slot);
                    let restore = Some(RestorePlan { slot, node, end, state, donor });
                    let choice = SlotChoice { slot, n_common: end.n_items };
                    return Some(StartPlan { choice, restore, matched });
                }
                Fetch::Waiting => return None,
                Fetch::Gone => {}
            }
        }
        // What was read for a state that is gone after all must not stay beyond the budget.
        self.prefix.release();
        Some(StartPlan { choice: plain, restore: None, matched })
    }

    /// Brings the slot of the plan into the state that the sequence starts from.
    pub(super) fn start(
        &mut self,
        plan: StartPlan,
        sequence: &mut Sequence,
        slots: &mut Slots,
        device: Device<'_>,
    ) -> Result<(), RunnerError> {
        let StartPlan { choice, restore, matched } = plan;
        let mut restored = Restored::default();
        let n_kept = match restore {
            Some(plan) => self.restore(plan, slots, device, &mut restored)?,
            None => keep_prefix(choice, slots, device.runner)?,
        };
        if n_kept > 0 && restored.tier == Tier::None {
            restored.tier = Tier::Vram;
        }
        let slot = &mut slots[choice.slot];
        slot.left.clear();
        slot.fill = Extent::of(&sequence.items[..n_kept]);
        if !sequence.started() {
            self.prefix.tick();
            sequence.clock.admitted = Some(Instant::now());
            sequence.n_cached = slot.fill.n_tokens;
            sequence.n_restored = sequence.image_spans.n_before(n_kept);
            sequence.chunk_boundaries = self.prefix.chunk_boundaries(&sequence.items, &sequence.breakpoints);
            self.explain(sequence, restored, n_kept, &matched);
        }
        Ok(())
    }

    /// Puts a saved state into the slot. Returns its items; 0 where it could not be done, which
    /// empties the slot.
    fn restore(
        &mut self,
        plan: RestorePlan,
        slots: &mut Slots,
        device: Device<'_>,
        restored: &mut Restored,
    ) -> Result<usize, RunnerError> {
        let Device { runner, n_steps } = device;
        let RestorePlan { slot, node, end, state, donor } = plan;
        if self.prefix.is_sample() {
            self.prefix.release();
            clear(runner, &mut slots[slot]);
            restored.why = MissReason::Checked;
            return Ok(0);
        }
        self.make_room_for(slot, end.n_tokens, slots, runner);
        if donor != slot {
            clear(runner, &mut slots[slot]);
        }
        let started = Instant::now();
        let rows: Vec<SavedRows<'_>> = state.rows.iter().map(|(span, bytes)| saved_rows(*span, bytes)).collect();
        let kept = rows.first().map_or(end.pos(), |rows| rows.from);
        let outcome = runner.restore(&Restore {
            seq: slots[slot].seq,
            donor: slots[donor].seq,
            kept,
            rows: &rows,
            point: &state.point,
            end: end.pos(),
        });
        self.prefix.release();
        match outcome {
            Ok(()) => {
                let in_vram = rows.is_empty();
                restored.tier = match state.from_disk {
                    true => Tier::Disk,
                    false if in_vram => Tier::Vram,
                    false => Tier::Ram,
                };
                restored.restore_ms = started.elapsed().as_secs_f64() * 1000.0;
                slots[slot].truncated = false;
                slots[slot].last_used = n_steps;
                Ok(end.n_items)
            }
            Err(error) if error.kind == RunnerErrorKind::Fatal => Err(error),
            Err(error) => {
                self.not_restored(node, &error);
                slots[slot].forget();
                restored.why = MissReason::Failed;
                Ok(0)
            }
        }
    }

    fn not_restored(&mut self, node: NodeId, error: &RunnerError) {
        tracing::warn!(%error, "a saved state could not be restored; the prompt is processed from its beginning");
        if error.kind != RunnerErrorKind::NoRoom {
            self.prefix.forget(node);
        }
    }

    /// Drops what finished sequences left, the oldest first, until the slot can hold `n_tokens`.
    fn make_room_for(&self, slot: usize, n_tokens: usize, slots: &mut Slots, runner: &mut dyn ModelRunner) {
        while slots.n_fill() - slots[slot].fill.n_tokens + n_tokens > self.context.facts.n_ctx {
            let Some(victim) = slots.oldest_idle_but(slot) else { break };
            clear(runner, &mut slots[victim]);
        }
    }

    /// Says why not all of the prompt is cached.
    fn explain(&mut self, sequence: &mut Sequence, mut restored: Restored, n_kept: usize, matched: &PrefixMatch) {
        if restored.why == MissReason::Unknown {
            restored.why = self.miss_reason(sequence, n_kept, matched);
        }
        self.prefix.remember(RecentRequest {
            id: sequence.id().to_owned(),
            n_prompt: sequence.n_prompt,
            n_cached: sequence.n_cached,
            restored: restored.clone(),
        });
        self.metrics.restored(restored.tier.as_str(), sequence.n_cached, restored.restore_ms);
        sequence.restored = restored;
    }

    fn miss_reason(&self, sequence: &Sequence, n_kept: usize, matched: &PrefixMatch) -> MissReason {
        let limit = sequence.items.len().saturating_sub(1);
        let common = matched.n_common.max(n_kept).min(limit);
        let tokens = |n: usize| Extent::of(&sequence.items[..n]).n_tokens;
        let text = |item: &PromptItem| match item {
            PromptItem::Token(token) => self.context.tokenizer.text(*token),
            PromptItem::Image(_) => "<image>".to_owned(),
        };
        match (sequence.cache_prompt, common, n_kept) {
            (false, ..) => MissReason::NotAsked,
            (true, 0, _) => MissReason::Unknown,
            (true, common, kept) if kept >= common => MissReason::New {
                at: tokens(common),
                known: matched.next.as_ref().filter(|_| matched.n_common == common).map(text),
                prompt: sequence.items.get(common).map(text),
            },
            (true, common, kept) if self.prefix.lost_beyond(matched, kept) => {
                MissReason::Evicted { common: tokens(common) }
            }
            (true, common, _) => MissReason::NoState { common: tokens(common) },
        }
    }
}

/// The slot with the most of the prompt's first rows; an idle one rather than a busy one.
fn donor(slots: &Slots, items: &[PromptItem], limit: usize) -> Option<Donor> {
    let same = |held: &[PromptItem]| held.iter().zip(items).take_while(|(a, b)| a == b).count();
    let common = |held: &[PromptItem]| whole(items, same(held).min(limit));
    let donors = slots.iter().enumerate().map(|(slot, place)| {
        let n_items = common(place.held());
        ((n_items, place.is_idle()), Donor { slot, n_items })
    });
    donors.filter(|(_, donor)| donor.n_items > 0).max_by_key(|(rank, _)| *rank).map(|(_, donor)| donor)
}

/// Cuts the slot's state back to the common items, or empties it where that cannot be. Returns the
/// items kept.
fn keep_prefix(choice: SlotChoice, slots: &mut Slots, runner: &mut dyn ModelRunner) -> Result<usize, RunnerError> {
    let slot = &mut slots[choice.slot];
    if choice.n_common > 0 && choice.n_common == slot.left.len() {
        return Ok(choice.n_common);
    }
    if choice.n_common > 0 && !slot.truncated {
        let from = Extent::of(&slot.left[..choice.n_common]).pos();
        match runner.truncate(slot.seq, from) {
            Ok(true) => {
                slot.truncated = true;
                return Ok(choice.n_common);
            }
            Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
            Ok(false) | Err(_) => {}
        }
    }
    clear(runner, slot);
    Ok(0)
}

fn saved_rows(span: Span, bytes: &[u8]) -> SavedRows<'_> {
    SavedRows { bytes, start: Pos(span.start), from: Pos(span.from), to: Pos(span.to) }
}
