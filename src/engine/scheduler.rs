//! Who waits, who is in which slot, who gives way, and what the next step computes.
//!
//! The scheduler only decides. It holds the queue and the slots, makes a `StepPlan` out of their
//! numbers, and is told what became of it; it knows no model, no thread and no clock. `execution`
//! carries plans out.

pub(in crate::engine) mod admission;
pub(in crate::engine) mod encoding;
pub(in crate::engine) mod plan;
pub(in crate::engine) mod relief;
mod shares;
pub(in crate::engine) mod slots;
pub(in crate::engine) mod state;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Instant;

use crate::engine::request::error::{EngineError, RunnerError, RunnerErrorKind};
use crate::engine::sequence::Sequence;
use crate::engine::vision::encoder_cache::EncoderCache;
use admission::{Demand, admissible};
use plan::{PlannedPart, StepPlan};
use relief::{Relief, relieve};
use slots::Slots;
use state::{Limits, Pressure, SlotState};

/// Chunks get no smaller for want of memory: below it prefill would take a step a token and save
/// nothing.
const MIN_CHUNK_TOKENS: usize = 32;

/// A request that is not taken in, and why.
pub(in crate::engine) struct Refused {
    pub sequence: Box<Sequence>,
    pub error: EngineError,
}

/// The queue, the slots, and the decisions about them.
pub(in crate::engine) struct Scheduler {
    pub slots: Slots,
    waiting: VecDeque<Box<Sequence>>,
    limits: Limits,
    pressure: Pressure,
    n_arrived: u64,
    stopping: bool,
    /// Reused buffer.
    states: Vec<SlotState>,
}

impl Scheduler {
    pub fn new(n_slots: usize, limits: Limits) -> Scheduler {
        Scheduler {
            slots: Slots::new(n_slots),
            waiting: VecDeque::new(),
            limits,
            pressure: Pressure::NONE,
            n_arrived: 0,
            stopping: false,
            states: Vec::with_capacity(n_slots),
        }
    }

    /// Nobody is in a slot and nobody waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.n_active() == 0
    }

    pub fn n_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// When the request came that waits for longest.
    pub fn oldest_arrival(&self) -> Option<Instant> {
        self.waiting.iter().map(|sequence| sequence.clock.arrived).min()
    }

    /// Takes a new request into the queue.
    pub fn accept(&mut self, mut sequence: Box<Sequence>) -> Result<(), Refused> {
        sequence.serial = self.n_arrived;
        self.n_arrived += 1;
        if self.stopping {
            return Err(Refused { sequence, error: EngineError::Stopping });
        }
        if sequence.items.is_empty() {
            let error = RunnerError { call: "empty prompt", kind: RunnerErrorKind::InvalidBatch, code: None };
            return Err(Refused { sequence, error: EngineError::Runner(error) });
        }
        self.waiting.push_back(sequence);
        Ok(())
    }

    /// Nothing new begins; what has begun goes on.
    pub fn stop_accepting(&mut self) {
        self.stopping = true;
    }

    /// Takes the first request out of the queue that `leaves`.
    pub fn take_waiting(&mut self, leaves: impl Fn(&Sequence) -> bool) -> Option<Box<Sequence>> {
        let at = self.waiting.iter().position(|sequence| leaves(sequence))?;
        self.waiting.remove(at)
    }

    pub fn head(&self) -> Option<&Sequence> {
        self.waiting.front().map(|sequence| &**sequence)
    }

    /// The promise to the head of the queue, if it may come in now.
    pub fn admissible(&mut self) -> Option<usize> {
        let head = self.waiting.front()?;
        let demand = Demand { max_tokens: head.max_tokens, n_prompt: head.n_prompt, n_tokens: head.n_tokens };
        self.observe(&EncoderCache::EMPTY);
        admissible(demand, &self.states, self.pressure, self.limits.n_ctx)
    }

    pub fn take_head(&mut self) -> Option<Box<Sequence>> {
        self.waiting.pop_front()
    }

    /// The head that was taken is in `slot` now, with a promise of `reserve` tokens.
    pub fn place(&mut self, slot: usize, sequence: Box<Sequence>, reserve: usize) {
        self.slots[slot].reserve = reserve;
        self.slots[slot].occupant = Some(sequence);
    }

    /// Plans a step up to its drafts. Promises to elastic sequences grow to what they need now.
    pub fn begin_step(&mut self, encoded: &EncoderCache, plan: &mut StepPlan) {
        for slot in self.slots.iter_mut() {
            let n_tokens = slot.occupant.as_ref().map_or(0, |sequence| sequence.n_tokens);
            slot.reserve = slot.reserve.max(n_tokens);
        }
        self.observe(encoded);
        plan.begin(&self.states, self.limits, self.pressure);
    }

    /// Plans the rows of the step, with the drafts that were made.
    pub fn plan_rows(&mut self, encoded: &EncoderCache, plan: &mut StepPlan) {
        self.observe(encoded);
        plan.share_rows(&self.states, self.limits, self.pressure);
    }

    /// Sets the sequence in `slot` back to the head of the queue, with its answer so far as part of
    /// what it needs. What it had in the cache is the caller's to clear.
    pub fn preempt(&mut self, slot: usize) -> Option<&Sequence> {
        self.slots[slot].reserve = 0;
        let sequence = self.slots[slot].occupant.take()?;
        self.waiting.push_front(sequence);
        self.head()
    }

    /// Takes the sequence out of `slot`, for good. What it has in the cache stays for others.
    pub fn release(&mut self, slot: usize) -> Option<Box<Sequence>> {
        let place = &mut self.slots[slot];
        let mut sequence = place.occupant.take()?;
        place.reserve = 0;
        place.left = std::mem::take(&mut sequence.items);
        place.left.truncate(place.fill.n_items);
        self.pressure = Pressure::NONE;
        Some(sequence)
    }

    /// What gives way because `n_rows` had no room.
    pub fn relieve(&mut self, n_rows: usize) -> Relief {
        self.observe(&EncoderCache::EMPTY);
        let relief = relieve(&self.states, n_rows);
        match relief {
            Relief::DropDrafts => self.pressure.hold_drafts = true,
            Relief::Preempt(_) => self.pressure.hold_admission = true,
            Relief::SmallerChunks(n) => self.pressure.prefill_cap = n,
            Relief::Evict(_) | Relief::End { .. } | Relief::Nothing => {}
        }
        relief
    }

    /// Memory ran out in a call over `parts`. The newest of them gives way if it was there the last
    /// time too, for the sake of the others.
    pub fn ran_out_of_memory(&mut self, parts: &[PlannedPart]) -> Option<usize> {
        let newest = parts.iter().map(|part| part.slot).max_by_key(|&slot| self.serial(slot));
        let again = |slot: &usize| self.slots[*slot].occupant.as_ref().is_some_and(|s| s.out_of_memory);
        let ends = newest.filter(again);
        for part in parts {
            if let Some(sequence) = &mut self.slots[part.slot].occupant {
                sequence.out_of_memory = true;
            }
        }
        ends
    }

    /// Prefill goes on in smaller chunks than the `n_rows` that were too many.
    pub fn shrink_chunks(&mut self, n_rows: usize) {
        let smaller = (n_rows / 2).max(MIN_CHUNK_TOKENS);
        self.pressure.prefill_cap = self.pressure.prefill_cap.min(smaller);
    }

    fn serial(&self, slot: usize) -> Option<u64> {
        self.slots[slot].occupant.as_ref().map(|sequence| sequence.serial)
    }

    fn observe(&mut self, encoded: &EncoderCache) {
        self.states.clear();
        self.states.extend(self.slots.iter().map(|slot| SlotState::of(slot, encoded)));
    }
}
