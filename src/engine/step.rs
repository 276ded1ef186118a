//! One step of all active sequences: plan, run, sample; and what happens when the model says no.

use std::ops::Range;
use std::time::Instant;

use super::EngineError;
use super::batch::RowLimits;
use super::clock::Ending;
use super::error::{RunnerError, RunnerErrorKind};
use super::request::FinishReason;
use super::scheduler::Scheduler;

/// Chunks get no smaller for want of memory: below it prefill would take a step a token and save nothing.
const MIN_CHUNK_TOKENS: usize = 32;

impl Scheduler {
    /// Advances all active sequences. An error is the end of the engine; all others are dealt with here.
    pub fn step(&mut self) -> Result<(), RunnerError> {
        self.grow_reserves();
        let room = if self.pressure.hold_drafts { 0 } else { self.fixed.facts.n_ctx - self.slots.n_fill_active() };
        self.round.draft(&mut self.slots, self.runner.as_mut(), room)?;
        let limits = RowLimits {
            n_batch: self.fixed.facts.n_batch,
            n_ubatch: self.fixed.facts.n_ubatch,
            prefill_chunk: self.prefill_chunk,
            prefill_cap: self.pressure.prefill_cap,
        };
        self.batch.plan(&self.slots, &self.gallery, limits);
        let all = 0..self.batch.parts.len();
        if all.is_empty() {
            return Ok(());
        }
        self.evict_for(self.batch.rows.len());
        match self.run(all.clone()) {
            Ok(()) => Ok(()),
            Err(error) if error.kind == RunnerErrorKind::InvalidBatch && all.len() > 1 => self.run_each(all),
            Err(error) => self.recover(error, all),
        }
    }

    /// Raises the promises of elastic sequences to what they need now. When all promises exceed the cache, the newest
    /// elastic sequence goes back to the queue.
    fn grow_reserves(&mut self) {
        for slot in 0..self.slots.len() {
            if let Some(sequence) = &mut self.slots[slot].occupant {
                sequence.reserve = sequence.reserve.max(sequence.n_tokens);
            }
        }
        while self.slots.committed() > self.fixed.facts.n_ctx {
            let Some(slot) = self.slots.newest_elastic() else { break };
            self.preempt(slot);
        }
    }

    /// Drops what finished sequences left, the oldest first, until `n_rows` more tokens fit.
    fn evict_for(&mut self, n_rows: usize) {
        while self.slots.n_fill() + n_rows > self.fixed.facts.n_ctx {
            let Some(slot) = self.slots.oldest_idle() else { break };
            self.clear(slot);
        }
    }

    /// Runs the rows of `parts` in one call and samples their outputs.
    fn run(&mut self, parts: Range<usize>) -> Result<(), RunnerError> {
        let rows = self.batch.parts[parts.start].rows.start..self.batch.parts[parts.end - 1].rows.end;
        let started = Instant::now();
        self.runner.step_seeing(&self.batch.rows[rows.clone()], &self.gallery)?;
        self.foresee(parts.clone(), started);
        self.runner.wait();
        self.n_steps += 1;
        let now = Instant::now();
        self.step_time = now.saturating_duration_since(started);
        if self.batch.parts[parts.clone()].iter().all(|part| part.outputs == part.rows) {
            self.round.stepped(rows.len(), self.step_time.as_secs_f64());
            if let Some(gain) = self.round.gain() {
                self.metrics.set_draft_gain(gain);
            }
        }
        for part in parts {
            self.harvest(part, rows.start, started, now)?;
        }
        Ok(())
    }

    /// Works out masks that the outputs of `parts` will need while the device computes: those that are needed whatever comes,
    /// then those behind drafts, which may turn out wrong.
    fn foresee(&mut self, parts: Range<usize>, started: Instant) {
        if !self.fixed.facts.asynchronous {
            return;
        }
        // Half of the last step: masks that make a step longer than the device does must not be given more time for it.
        let end = started + self.step_time / 2;
        for drafts_too in [false, true] {
            for part in self.batch.parts[parts.clone()].iter().filter(|part| !part.outputs.is_empty()) {
                if let Some(sequence) = &mut self.slots[part.slot].occupant {
                    sequence.foresee(&self.fixed.tokenizer, || drafts_too && Instant::now() < end);
                }
            }
        }
    }

    /// Runs the rows of each part alone: the batch was refused, and only the one that is to blame shall fail.
    fn run_each(&mut self, parts: Range<usize>) -> Result<(), RunnerError> {
        for part in parts {
            match self.run(part..part + 1) {
                Ok(()) => {}
                Err(error) if error.kind == RunnerErrorKind::InvalidBatch => self.recover(error, part..part + 1)?,
                // Something else stands in the way; the parts that did not run are planned again.
                Err(error) => return self.recover(error, part..part + 1),
            }
        }
        Ok(())
    }

    /// Books the rows of a part that ran and samples its outputs. `first_row` is the first row of the call.
    fn harvest(&mut self, part: usize, first_row: usize, started: Instant, now: Instant) -> Result<(), RunnerError> {
        let part = &self.batch.parts[part];
        let (index, rows, outputs) = (part.slot, part.rows.clone(), part.outputs.clone());
        let slot = &mut self.slots[index];
        slot.cut = false;
        slot.last_used = self.n_steps;
        let Some(sequence) = &mut slot.occupant else { return Ok(()) };
        let n_drafted = sequence.drafts.draft.tokens.len();
        let processed = slot.fill.n_items..slot.fill.n_items + rows.len() - n_drafted;
        sequence.items[processed].iter().for_each(|item| slot.fill.advance(item));
        sequence.clock.prefill_started.get_or_insert(started);
        sequence.report_progress(slot.fill.n_tokens, now);
        let mut ending = None;
        let mut n_accepted = 0;
        for row in outputs.clone() {
            ending = match self.runner.logits(row - first_row) {
                Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
                Err(error) => Some(Ending::Failed(EngineError::Runner(error))),
                Ok(logits) => match sequence.sample(logits, &self.fixed, now, &self.metrics) {
                    Err(error) => Some(Ending::Failed(error)),
                    Ok(reason) => reason.map(Ending::Finished),
                },
            };
            // The next row is of use only if it was computed for the token that has come.
            let right = sequence.drafts.draft.tokens.get(n_accepted) == sequence.last_token().as_ref();
            if ending.is_some() || !right {
                break;
            }
            slot.fill.advance(&sequence.items[slot.fill.n_items]);
            n_accepted += 1;
        }
        if !outputs.is_empty() {
            sequence.drafts.verified(n_accepted, ending.is_none() && n_accepted < n_drafted);
        }
        if n_accepted < n_drafted {
            self.roll_back(index)?;
        }
        if outputs.is_empty() {
            self.save_at_cut(index)?;
        }
        match (ending, &mut self.slots[index].occupant) {
            (Some(ending), _) => self.end(index, ending),
            (None, Some(sequence)) => sequence.sink.flush(),
            (None, None) => {}
        }
        Ok(())
    }

    /// Cuts the rows of a draft that turned out wrong.
    fn roll_back(&mut self, slot: usize) -> Result<(), RunnerError> {
        let place = &mut self.slots[slot];
        match self.runner.truncate(place.seq, place.fill.pos()) {
            Ok(true) => place.cut = true,
            Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
            // It is processed again from its beginning.
            Ok(false) | Err(_) => {
                tracing::warn!(seq = place.seq.0, "a draft could not be rolled back");
                self.forget_fill(slot);
            }
        }
        Ok(())
    }

    /// Deals with a failed call over `parts`.
    fn recover(&mut self, error: RunnerError, parts: Range<usize>) -> Result<(), RunnerError> {
        match error.kind {
            RunnerErrorKind::Fatal => return Err(error),
            RunnerErrorKind::NoRoom => self.make_room(error),
            // Nothing was changed, so what the sequences have in the cache stays good.
            RunnerErrorKind::InvalidBatch => self.fail_parts(&error, parts, false),
            RunnerErrorKind::Aborted => self.fail_parts(&error, parts, true),
            RunnerErrorKind::OutOfMemory => self.start_over(&error, parts),
        }
        Ok(())
    }

    /// The cache has no room although the sums said so (its cells are handed out in blocks, for instance). In this order:
    /// drop idle state, draft no more, set back the newest sequence, prefill in smaller chunks, end the last one as having no context left.
    fn make_room(&mut self, error: RunnerError) {
        if let Some(slot) = self.slots.oldest_idle() {
            return self.clear(slot);
        }
        if self.slots.active().any(|(_, sequence)| !sequence.drafts.draft.tokens.is_empty()) {
            self.pressure.hold_drafts = true;
            return;
        }
        let newest = self.slots.newest_elastic().or_else(|| self.slots.newest());
        let Some(slot) = newest else { return };
        if self.slots.n_active() > 1 {
            // Without this the sums would let it in again at once.
            self.pressure.hold_admission = true;
            return self.preempt(slot);
        }
        let n_rows = self.batch.rows.len();
        if n_rows > 1 {
            self.pressure.prefill_cap = n_rows / 2;
            return;
        }
        let begun = self.slots[slot].occupant.as_ref().is_some_and(|sequence| sequence.n_generated > 0);
        let ending = if begun {
            Ending::Finished(FinishReason::ContextFull)
        } else {
            Ending::Failed(EngineError::Runner(error))
        };
        self.end(slot, ending);
    }

    fn fail_parts(&mut self, error: &RunnerError, parts: Range<usize>, clear: bool) {
        for part in parts {
            let slot = self.batch.parts[part].slot;
            if clear {
                self.forget_fill(slot);
            }
            self.end(slot, Ending::Failed(EngineError::Runner(error.clone())));
        }
    }

    /// Memory ran out: the state of the batch's sequences is unknown, so they are processed again from their beginning, in
    /// smaller chunks. When that happens a second time to the newest of them, it fails for the sake of the others.
    fn start_over(&mut self, error: &RunnerError, parts: Range<usize>) {
        let n_rows = self.batch.parts[parts.clone()].iter().map(|part| part.rows.len()).sum::<usize>();
        let smaller = (n_rows / 2).max(MIN_CHUNK_TOKENS);
        let slots: Vec<usize> = self.batch.parts[parts].iter().map(|part| part.slot).collect();
        let newest = slots.iter().copied().max_by_key(|&slot| self.slots[slot].occupant.as_ref().map(|s| s.serial));
        let again = newest.is_some_and(|slot| self.slots[slot].occupant.as_ref().is_some_and(|s| s.out_of_memory));
        for &slot in &slots {
            self.forget_fill(slot);
            if let Some(sequence) = &mut self.slots[slot].occupant {
                sequence.out_of_memory = true;
            }
        }
        if let Some(slot) = newest.filter(|_| again) {
            self.end(slot, Ending::Failed(EngineError::Runner(error.clone())));
        }
        self.pressure.prefill_cap = self.pressure.prefill_cap.min(smaller);
    }

    /// Empties a slot whose state in the model is unknown.
    fn forget_fill(&mut self, slot: usize) {
        self.runner.clear(self.slots[slot].seq);
        self.slots[slot].forget();
    }
}
