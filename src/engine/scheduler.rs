//! Who waits, who is in which slot, who gives way: everything about sequences but the step itself (`step`).
//!
//! Lives on the engine thread and owns the runner. It knows nothing of commands and threads (`thread`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::admission::{Choice, Slots, reserve_tokens};
use super::batch::Batch;
use super::clock::Ending;
use super::draft::Round;
use super::error::{RunnerError, RunnerErrorKind};
use super::gallery::Gallery;
use super::handle::Fixed;
use super::prefix::CacheView;
use super::prefix::cache::PrefixCache;
use super::pulse::Pulse;
use super::request::{FinishReason, Restored, Tier};
use super::resume::Entry;
use super::runner::ModelRunner;
use super::sequence::{Extent, Sequence};
use super::sink::{Sink, Terminal};
use super::stats::EngineStats;
use super::{EngineError, stats};
use crate::telemetry::{EngineGauges, Metrics};

/// How long an engine without work waits for the disk before it looks at its commands again.
const DISK_WAIT: Duration = Duration::from_millis(5);

/// What lack of memory has led to; forgotten when a sequence ends and its memory comes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pressure {
    /// The cache had no room although the sums said so: nobody is admitted beside others.
    pub hold_admission: bool,
    pub prefill_cap: usize,
    /// Rows of drafts are the first to go.
    pub hold_drafts: bool,
}

impl Pressure {
    pub const NONE: Pressure = Pressure { hold_admission: false, prefill_cap: usize::MAX, hold_drafts: false };
}

/// Where the engine shows how it is.
pub(super) struct Shown {
    pub stats: watch::Sender<EngineStats>,
    pub cache: watch::Sender<Arc<CacheView>>,
    pub pulse: Arc<Pulse>,
}

/// The state of the engine. Sequences come before the runner: if all is dropped, clients hear of it first.
pub(super) struct Scheduler {
    pub slots: Slots,
    pub(super) waiting: VecDeque<Box<Sequence>>,
    /// Terminal events that go out after the picture of the engine has been published.
    ended: Vec<(Sink, Terminal)>,
    pub batch: Batch,
    pub round: Round,
    pub pressure: Pressure,
    pub prefill_chunk: usize,
    pub prefix: PrefixCache,
    pub gallery: Gallery,
    pub n_steps: u64,
    /// How long the last step took.
    pub step_time: Duration,
    n_arrived: u64,
    stopping: bool,
    pub(super) shown: Shown,
    pub metrics: Metrics,
    pub fixed: Arc<Fixed>,
    pub runner: Box<dyn ModelRunner>,
}

impl Scheduler {
    pub fn new(
        runner: Box<dyn ModelRunner>,
        fixed: Arc<Fixed>,
        (prefill_chunk, prefix, gallery): (usize, PrefixCache, Gallery),
        metrics: Metrics,
        shown: Shown,
    ) -> Scheduler {
        Scheduler {
            slots: Slots::new(fixed.facts.n_seq_max),
            waiting: VecDeque::new(),
            ended: Vec::new(),
            batch: Batch::default(),
            round: Round::new(Arc::clone(&fixed)),
            pressure: Pressure::NONE,
            prefill_chunk,
            prefix,
            gallery,
            n_steps: 0,
            step_time: Duration::ZERO,
            n_arrived: 0,
            stopping: false,
            shown,
            metrics,
            fixed,
            runner,
        }
    }

    /// Nobody is in a slot and nobody waits.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.slots.n_active() == 0
    }

    /// Takes a new request into the queue.
    pub fn accept(&mut self, mut sequence: Box<Sequence>) {
        sequence.serial = self.n_arrived;
        self.n_arrived += 1;
        if self.stopping {
            self.close(sequence, Ending::Failed(EngineError::Stopping));
        } else if sequence.items.is_empty() {
            let error = RunnerError { call: "empty prompt", kind: RunnerErrorKind::InvalidBatch, code: None };
            self.close(sequence, Ending::Failed(EngineError::Runner(error)));
        } else {
            self.waiting.push_back(sequence);
        }
    }

    /// Nothing new begins; what has begun goes on.
    pub fn stop_accepting(&mut self) {
        self.stopping = true;
        self.end_waiting(|sequence| !sequence.started(), &Ending::Failed(EngineError::Stopping));
    }

    /// Fails all requests.
    pub fn fail_all(&mut self, error: &EngineError) {
        self.end_waiting(|_| true, &Ending::Failed(error.clone()));
        for slot in 0..self.slots.len() {
            self.end(slot, Ending::Failed(error.clone()));
        }
    }

    /// One round: the gone leave, the next come in, all advance by a step. An error is the end of the engine.
    pub fn advance(&mut self) -> Result<(), RunnerError> {
        self.drop_cancelled();
        self.prefix.poll();
        self.admit()?;
        self.encode()?;
        self.shown.pulse.set_oldest_queued(self.waiting.iter().map(|sequence| sequence.clock.arrived).min());
        if self.slots.n_active() > 0 {
            let pulse = Arc::clone(&self.shown.pulse);
            let _running = pulse.step();
            self.step()?;
        } else if !self.waiting.is_empty() {
            // The head waits for the disk, and nothing else is to be done.
            self.prefix.wait(DISK_WAIT);
        }
        self.publish();
        Ok(())
    }

    /// Encodes the picture that is needed first, if one is. Who left meanwhile has no part in the step that follows.
    fn encode(&mut self) -> Result<(), RunnerError> {
        let pulse = Arc::clone(&self.shown.pulse);
        let _running = pulse.step();
        if self.encode_next()? {
            self.metrics.set_picture_cache(self.gallery.bytes());
            self.drop_cancelled();
        }
        Ok(())
    }

    fn drop_cancelled(&mut self) {
        let cancelled = Ending::Finished(FinishReason::Cancelled);
        self.end_waiting(|sequence| sequence.sink.is_closed(), &cancelled);
        for slot in 0..self.slots.len() {
            if self.slots[slot].occupant.as_ref().is_some_and(|sequence| sequence.sink.is_closed()) {
                self.end(slot, cancelled.clone());
            }
        }
    }

    fn end_waiting(&mut self, leaves: impl Fn(&Sequence) -> bool, ending: &Ending) {
        let mut i = 0;
        while i < self.waiting.len() {
            if !leaves(&self.waiting[i]) {
                i += 1;
            } else if let Some(sequence) = self.waiting.remove(i) {
                self.close(sequence, ending.clone());
            }
        }
    }

    /// Admits from the head of the queue. Nobody overtakes a head that does not fit, so it is never starved.
    fn admit(&mut self) -> Result<(), RunnerError> {
        let n_ctx = self.fixed.facts.n_ctx;
        while let Some(head) = self.waiting.front() {
            let reserve = reserve_tokens(head, n_ctx);
            let held = self.pressure.hold_admission && self.slots.n_active() > 0;
            if held || self.slots.committed() + reserve > n_ctx {
                break;
            }
            let Some(entry) = self.entry() else { break };
            if let Some(mut sequence) = self.waiting.pop_front() {
                sequence.reserve = reserve;
                self.place(sequence, entry)?;
            }
        }
        Ok(())
    }

    fn place(&mut self, mut sequence: Box<Sequence>, entry: Entry) -> Result<(), RunnerError> {
        let Entry { choice, planned, walk } = entry;
        let first = !sequence.started();
        let mut restored = Restored::default();
        let n_kept = match planned {
            Some(planned) => self.restore(choice, planned, &mut restored)?,
            None => self.keep_prefix(choice)?,
        };
        if n_kept > 0 && restored.tier == Tier::None {
            restored.tier = Tier::Vram;
        }
        let slot = &mut self.slots[choice.slot];
        slot.left.clear();
        slot.fill = Extent::of(&sequence.items[..n_kept]);
        if first {
            self.prefix.tick();
            sequence.clock.admitted = Some(Instant::now());
            sequence.n_cached = slot.fill.n_tokens;
            sequence.n_restored = sequence.n_pictures_before(n_kept);
            sequence.cuts = self.prefix.cuts(&sequence.items, &sequence.marks);
            self.explain(&mut sequence, restored, n_kept, &walk);
        }
        self.slots[choice.slot].occupant = Some(sequence);
        Ok(())
    }

    /// Cuts the slot's state back to the common items, or empties it where that cannot be. Returns the items kept.
    fn keep_prefix(&mut self, choice: Choice) -> Result<usize, RunnerError> {
        let slot = &mut self.slots[choice.slot];
        if choice.n_common > 0 && choice.n_common == slot.left.len() {
            return Ok(choice.n_common);
        }
        if choice.n_common > 0 && !slot.cut {
            let from = Extent::of(&slot.left[..choice.n_common]).pos();
            match self.runner.truncate(slot.seq, from) {
                Ok(true) => {
                    slot.cut = true;
                    return Ok(choice.n_common);
                }
                Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
        self.clear(choice.slot);
        Ok(0)
    }

    /// Empties a slot's state, in the model and here. An occupant stays and starts over.
    pub fn clear(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        if slot.fill.n_tokens > 0 || slot.cut {
            self.runner.clear(slot.seq);
        }
        slot.forget();
    }

    /// Sets the sequence in `slot` back to the head of the queue, with its answer so far as part of what it needs.
    pub fn preempt(&mut self, slot: usize) {
        // It comes back soon, and goes on from here.
        self.save_answer(slot);
        self.clear(slot);
        if let Some(sequence) = self.slots[slot].occupant.take() {
            tracing::debug!(id = sequence.id(), tokens = sequence.n_tokens, "set back to the queue to make room");
            self.metrics.preempted();
            self.waiting.push_front(sequence);
        }
    }

    /// Ends the sequence in `slot`, if there is one. What it has in the cache stays for others, unless its client asked for
    /// no cache.
    pub fn end(&mut self, slot: usize, ending: Ending) {
        if matches!(ending, Ending::Finished(_)) {
            self.save_answer(slot);
        }
        let Some(mut sequence) = self.slots[slot].occupant.take() else { return };
        if sequence.cache_prompt {
            let place = &mut self.slots[slot];
            place.left = std::mem::take(&mut sequence.items);
            place.left.truncate(place.fill.n_items);
        } else {
            self.clear(slot);
        }
        self.pressure = Pressure::NONE;
        self.close(sequence, ending);
    }

    fn close(&mut self, sequence: Box<Sequence>, ending: Ending) {
        self.ended.push(sequence.end(ending, &self.metrics));
    }

    /// Shows the state of the engine, then sends the terminal events: who reads one finds the picture up to date.
    pub fn publish(&mut self) {
        let (slots, n_queued, n_steps) = (&self.slots, self.waiting.len(), self.n_steps);
        let n_ctx = self.fixed.facts.n_ctx;
        self.shown.stats.send_modify(|picture| stats::draw(picture, slots, n_queued, n_steps));
        let gauges = EngineGauges { n_queued, n_active: slots.n_active(), n_fill: slots.n_fill(), n_ctx };
        self.metrics.set_engine(gauges);
        self.publish_cache();
        self.ended.drain(..).for_each(|(sink, terminal)| sink.end(terminal));
    }
}
