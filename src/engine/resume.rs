//! What a request begins from: the state that an idle sequence holds, or a saved one put back, whichever goes further.
//!
//! A saved state takes the attention rows that some sequence has in the KV cache already from there, without copying them, and
//! only the rest from where it is saved.

use std::time::Instant;

use super::admission::Choice;
use super::error::{RunnerError, RunnerErrorKind};
use super::prefix::Story;
use super::prefix::cache::Planned;
use super::prefix::store::Fetch;
use super::prefix::tree::{NodeId, Span, Walk};
use super::request::{PromptItem, Restored, Tier, Why, whole};
use super::runner::{Restore, SavedRows};
use super::scheduler::Scheduler;
use super::sequence::{Extent, Sequence};
use crate::units::Pos;

/// How a request gets its slot.
pub(super) struct Entry {
    pub choice: Choice,
    /// `None`: with what the slot holds.
    pub planned: Option<Planned>,
    pub walk: Walk,
}

/// A slot that has the first rows of a prompt.
#[derive(Clone, Copy)]
struct Donor {
    slot: usize,
    n_items: usize,
}

impl Scheduler {
    /// How the head of the queue gets in. `None`: not now, as all slots are taken or its state is on its way from disk.
    pub fn entry(&mut self) -> Option<Entry> {
        let head = self.waiting.front()?;
        let plain = self.slots.choose(head, self.fixed.facts.hybrid)?;
        if !head.cache_prompt || !self.prefix.is_on() {
            return Some(Entry { choice: plain, planned: None, walk: Walk::default() });
        }
        let limit = head.items.len().saturating_sub(1);
        let donor = self.donor(&head.items, limit);
        let kept = donor.map_or(0, |donor| Extent::of(&head.items[..donor.n_items]).pos().0);
        let (mut walk, nodes) = self.prefix.find(&head.items, limit, kept);
        walk.n_common = walk.n_common.max(donor.map_or(0, |donor| donor.n_items));
        let better = |end: Extent| end.n_items > plain.n_common;
        for node in nodes {
            let end = self.prefix.end_of(node);
            if !better(end) {
                break;
            }
            match self.prefix.fetch(node, kept.min(end.pos().0)) {
                Fetch::Ready(state) => {
                    let slot = donor.map(|d| d.slot).filter(|slot| self.slots[*slot].is_idle()).unwrap_or(plain.slot);
                    let planned = Some(Planned { node, end, state, donor: donor.map_or(slot, |donor| donor.slot) });
                    return Some(Entry { choice: Choice { slot, n_common: end.n_items }, planned, walk });
                }
                Fetch::Waiting => return None,
                Fetch::Gone => {}
            }
        }
        Some(Entry { choice: plain, planned: None, walk })
    }

    /// The slot with the most of the prompt's first rows; an idle one rather than a busy one.
    fn donor(&self, items: &[PromptItem], limit: usize) -> Option<Donor> {
        let same = |held: &[PromptItem]| held.iter().zip(items).take_while(|(a, b)| a == b).count();
        let common = |held: &[PromptItem]| whole(items, same(held).min(limit));
        let donors = self.slots.iter().enumerate().map(|(slot, place)| {
            let n_items = common(place.held());
            ((n_items, place.is_idle()), Donor { slot, n_items })
        });
        donors.filter(|(_, donor)| donor.n_items > 0).max_by_key(|(rank, _)| *rank).map(|(_, donor)| donor)
    }

    /// Puts a saved state into the slot. Returns its items; 0 where it could not be done, which empties the slot.
    pub fn restore(&mut self, choice: Choice, planned: Planned, restored: &mut Restored) -> Result<usize, RunnerError> {
        let Planned { node, end, state, donor } = planned;
        if self.prefix.is_sample() {
            self.prefix.release();
            self.clear(choice.slot);
            restored.why = Why::Checked;
            return Ok(0);
        }
        self.make_room_for(choice.slot, end.n_tokens);
        if donor != choice.slot {
            self.clear(choice.slot);
        }
        let started = Instant::now();
        let rows: Vec<SavedRows<'_>> = state.rows.iter().map(|(span, bytes)| saved_rows(*span, bytes)).collect();
        let kept = rows.first().map_or(end.pos(), |rows| rows.from);
        let restore = Restore {
            seq: self.slots[choice.slot].seq,
            donor: self.slots[donor].seq,
            kept,
            rows: &rows,
            point: &state.point,
            end: end.pos(),
        };
        let outcome = self.runner.restore(&restore);
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
                let slot = &mut self.slots[choice.slot];
                slot.cut = false;
                slot.last_used = self.n_steps;
                Ok(end.n_items)
            }
            Err(error) if error.kind == RunnerErrorKind::Fatal => Err(error),
            Err(error) => self.not_restored(choice.slot, node, &error, restored),
        }
    }

    fn not_restored(
        &mut self,
        slot: usize,
        node: NodeId,
        error: &RunnerError,
        restored: &mut Restored,
    ) -> Result<usize, RunnerError> {
        tracing::warn!(%error, "a saved state could not be restored; the prompt is processed from its beginning");
        if error.kind != RunnerErrorKind::NoRoom {
            self.prefix.forget(node);
        }
        self.slots[slot].forget();
        restored.why = Why::Failed;
        Ok(0)
    }

    /// Drops what finished sequences left, the oldest first, until the slot can hold `n_tokens`.
    fn make_room_for(&mut self, slot: usize, n_tokens: usize) {
        let idle = |scheduler: &Scheduler| {
            let others = scheduler.slots.iter().enumerate().filter(|(i, place)| *i != slot && place.is_idle());
            let filled = others.filter(|(_, place)| place.fill.n_tokens > 0);
            filled.min_by_key(|(_, place)| place.last_used).map(|(i, _)| i)
        };
        let others = |scheduler: &Scheduler| scheduler.slots.n_fill() - scheduler.slots[slot].fill.n_tokens;
        while others(self) + n_tokens > self.fixed.facts.n_ctx {
            let Some(victim) = idle(self) else { break };
            self.clear(victim);
        }
    }

    /// Why not all of the prompt is cached.
    pub fn explain(&mut self, sequence: &mut Sequence, mut restored: Restored, n_kept: usize, walk: &Walk) {
        if restored.why == Why::Unknown {
            restored.why = self.why(sequence, n_kept, walk);
        }
        self.prefix.tell(Story {
            id: sequence.id().to_owned(),
            n_prompt: sequence.n_prompt,
            n_cached: sequence.n_cached,
            restored: restored.clone(),
        });
        self.metrics.restored(restored.tier.as_str(), sequence.n_cached, restored.restore_ms);
        sequence.restored = restored;
    }

    fn why(&self, sequence: &Sequence, n_kept: usize, walk: &Walk) -> Why {
        let limit = sequence.items.len().saturating_sub(1);
        let common = walk.n_common.max(n_kept).min(limit);
        let tokens = |n: usize| Extent::of(&sequence.items[..n]).n_tokens;
        let text = |item: &PromptItem| match item {
            PromptItem::Token(token) => self.fixed.tokenizer.text(*token),
            PromptItem::Picture(_) => "<picture>".to_owned(),
        };
        match (sequence.cache_prompt, common, n_kept) {
            (false, ..) => Why::NotAsked,
            (true, 0, _) => Why::Unknown,
            (true, common, kept) if kept >= common => Why::New {
                at: tokens(common),
                known: walk.next.as_ref().filter(|_| walk.n_common == common).map(text),
                prompt: sequence.items.get(common).map(text),
            },
            (true, common, kept) if self.prefix.lost_beyond(walk, kept) => Why::Evicted { common: tokens(common) },
            (true, common, _) => Why::NoState { common: tokens(common) },
        }
    }

    /// Forgets all saved states, and what idle sequences hold.
    pub fn clear_cache(&mut self) {
        self.prefix.clear();
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_idle() {
                self.clear(slot);
            }
        }
    }
}

fn saved_rows(span: Span, bytes: &[u8]) -> SavedRows<'_> {
    SavedRows { bytes, start: Pos(span.start), from: Pos(span.from), to: Pos(span.to) }
}
