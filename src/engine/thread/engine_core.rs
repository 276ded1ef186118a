//! The step loop's body: `scheduler` decides, `execution` carries out, here the two are put
//! together and clients are told.
//!
//! Lives on the engine thread. It knows nothing of commands and start-up (`thread`).

use std::sync::Arc;
use std::time::Duration;

use super::published::Published;
use super::stats;
use crate::engine::execution::checkpoint::Checkpoints;
use crate::engine::execution::executor::{Ended, Executor, ExecutorParts, FailedCall, StepOutput};
use crate::engine::execution::vision_encode::{NotEncoded, VisionEncoder};
use crate::engine::prefix::cache::PrefixCache;
use crate::engine::request::error::{EngineError, RunnerError, RunnerErrorKind};
use crate::engine::request::event::FinishReason;
use crate::engine::runner::ModelRunner;
use crate::engine::scheduler::encoding::EncodePlan;
use crate::engine::scheduler::plan::{PlannedPart, StepPlan};
use crate::engine::scheduler::relief::Relief;
use crate::engine::scheduler::state::Limits;
use crate::engine::scheduler::{Refused, Scheduler};
use crate::engine::sequence::Sequence;
use crate::engine::sequence::clock::Ending;
use crate::engine::sequence::context::EngineContext;
use crate::engine::sequence::sink::{Sink, Terminal};
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::telemetry::{EngineGauges, Metrics};

/// How long an engine without work waits for the disk before it looks at its commands again.
const DISK_WAIT: Duration = Duration::from_millis(5);

/// What the core is made of.
pub(super) struct CoreParts {
    pub runner: Box<dyn ModelRunner>,
    pub limits: Limits,
    pub prefix: PrefixCache,
    pub encoder_cache: EncoderCache,
    pub context: Arc<EngineContext>,
    pub metrics: Metrics,
    pub published: Published,
}

/// The engine without its thread. Sequences come before the model: if all is dropped, clients hear
/// of it first.
pub(super) struct EngineCore {
    scheduler: Scheduler,
    /// Terminal events that go out after the state of the engine has been published.
    ended: Vec<(Sink, Terminal)>,
    executor: Executor,
    /// Reused from step to step.
    plan: StepPlan,
    encode_plan: EncodePlan,
    output: StepOutput,
    n_ctx: usize,
    n_batch: usize,
    sees: bool,
    metrics: Metrics,
    published: Published,
}

impl EngineCore {
    pub fn new(parts: CoreParts) -> EngineCore {
        let CoreParts { runner, limits, prefix, encoder_cache, context, metrics, published } = parts;
        EngineCore {
            scheduler: Scheduler::new(context.facts.n_seq_max, limits),
            ended: Vec::new(),
            plan: StepPlan::default(),
            encode_plan: EncodePlan::default(),
            output: StepOutput::default(),
            n_ctx: limits.n_ctx,
            n_batch: limits.n_batch,
            sees: context.facts.vision.is_some(),
            executor: Executor::new(ExecutorParts {
                runner,
                checkpoints: Checkpoints::new(prefix, Arc::clone(&context), metrics.clone()),
                encoder: VisionEncoder::new(encoder_cache, metrics.clone()),
                context,
                metrics: metrics.clone(),
            }),
            metrics,
            published,
        }
    }

    /// Nobody is in a slot and nobody waits.
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// Takes a new request into the queue.
    pub fn accept(&mut self, sequence: Box<Sequence>) {
        if let Err(Refused { sequence, error }) = self.scheduler.accept(sequence) {
            self.close(sequence, Ending::Failed(error));
        }
    }

    /// Nothing new begins; what has begun goes on.
    pub fn stop_accepting(&mut self) {
        self.scheduler.stop_accepting();
        self.end_waiting(|sequence| !sequence.started(), &Ending::Failed(EngineError::Stopping));
    }

    /// Fails all requests, but for those that a step which broke off had ended already.
    pub fn fail_all(&mut self, error: &EngineError) {
        self.release_ended();
        self.end_waiting(|_| true, &Ending::Failed(error.clone()));
        for slot in 0..self.scheduler.slots.len() {
            self.end(slot, Ending::Failed(error.clone()));
        }
    }

    /// Forgets all saved states, and what idle sequences hold.
    pub fn clear_cache(&mut self) {
        self.executor.checkpoints.prefix.clear();
        for slot in self.scheduler.slots.iter_mut().filter(|slot| slot.is_idle()) {
            self.executor.clear(slot);
        }
    }

    /// One turn: the gone leave, the next come in, all advance by a step. An error is the end of
    /// the engine.
    pub fn advance(&mut self) -> Result<(), RunnerError> {
        self.drop_cancelled();
        self.executor.checkpoints.prefix.poll();
        self.admit()?;
        self.encode()?;
        self.published.watchdog.set_oldest_queued(self.scheduler.oldest_arrival());
        if self.scheduler.slots.n_active() > 0 {
            let watchdog = Arc::clone(&self.published.watchdog);
            let _running = watchdog.step();
            self.step()?;
        } else if self.scheduler.n_waiting() > 0 {
            // The head waits for the disk, and nothing else is to be done.
            self.executor.checkpoints.prefix.wait(DISK_WAIT);
        }
        self.publish();
        Ok(())
    }

    /// Admits from the head of the queue.
    fn admit(&mut self) -> Result<(), RunnerError> {
        while let Some(reserve) = self.scheduler.admissible() {
            let Scheduler { slots, .. } = &self.scheduler;
            let start = self.scheduler.head().and_then(|head| self.executor.plan_start(head, slots));
            let Some(start) = start else { break };
            let Some(mut sequence) = self.scheduler.take_head() else { break };
            let slot = start.choice.slot;
            self.executor.start(start, &mut sequence, &mut self.scheduler.slots)?;
            self.scheduler.place(slot, sequence, reserve);
        }
        Ok(())
    }

    /// Encodes the image that is needed first, if one is. Who left meanwhile has no part in the
    /// step that follows.
    fn encode(&mut self) -> Result<(), RunnerError> {
        if !self.sees {
            return Ok(());
        }
        let watchdog = Arc::clone(&self.published.watchdog);
        let _running = watchdog.step();
        self.encode_plan.fill(&self.scheduler.slots, self.executor.encoder.cache(), self.n_batch);
        match self.executor.encode(&self.encode_plan, &mut self.scheduler.slots) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(NotEncoded { error, .. }) if error.kind == RunnerErrorKind::Fatal => return Err(error),
            // That request fails, and nothing else.
            Err(NotEncoded { slot, error }) => self.end(slot, Ending::Failed(EngineError::Encode(error))),
        }
        self.drop_cancelled();
        Ok(())
    }

    /// Advances all active sequences. An error is the end of the engine; all others are dealt with.
    fn step(&mut self) -> Result<(), RunnerError> {
        self.scheduler.begin_step(self.executor.encoder.cache(), &mut self.plan);
        for i in 0..self.plan.preempt.len() {
            self.preempt(self.plan.preempt[i]);
        }
        self.executor.propose(&self.plan, &mut self.scheduler.slots)?;
        self.scheduler.plan_rows(self.executor.encoder.cache(), &mut self.plan);
        if self.plan.parts.is_empty() {
            return Ok(());
        }
        let outcome = self.executor.execute(&self.plan, &mut self.scheduler.slots, &mut self.output);
        self.release_ended();
        outcome?;
        let mut failed = std::mem::take(&mut self.output.failed);
        failed.drain(..).for_each(|call| self.recover(call));
        self.output.failed = failed;
        Ok(())
    }

    /// Takes those out of their slots that ended in the last step.
    fn release_ended(&mut self) {
        let mut ended = std::mem::take(&mut self.output.ended);
        ended.drain(..).for_each(|Ended { slot, ending }| self.release(slot, ending));
        self.output.ended = ended;
    }

    /// Deals with a failed call.
    fn recover(&mut self, call: FailedCall) {
        let FailedCall { parts, error } = call;
        match error.kind {
            RunnerErrorKind::NoRoom => self.make_room(error),
            // Nothing was changed, so what the sequences have in the cache stays good.
            RunnerErrorKind::InvalidBatch => parts.for_each(|part| self.fail_part(part, &error)),
            RunnerErrorKind::Aborted | RunnerErrorKind::Fatal => {
                for part in parts {
                    self.executor.clear_unknown(&mut self.scheduler.slots[self.plan.parts[part].slot]);
                    self.fail_part(part, &error);
                }
            }
            RunnerErrorKind::OutOfMemory => {
                let n_rows = self.plan.parts[parts.clone()].iter().map(PlannedPart::n_rows).sum();
                for part in &self.plan.parts[parts.clone()] {
                    self.executor.clear_unknown(&mut self.scheduler.slots[part.slot]);
                }
                // They are processed again from their beginning.
                if let Some(slot) = self.scheduler.ran_out_of_memory(&self.plan.parts[parts]) {
                    self.end(slot, Ending::Failed(EngineError::Runner(error)));
                }
                self.scheduler.shrink_chunks(n_rows);
            }
        }
    }

    fn fail_part(&mut self, part: usize, error: &RunnerError) {
        self.end(self.plan.parts[part].slot, Ending::Failed(EngineError::Runner(error.clone())));
    }

    fn make_room(&mut self, error: RunnerError) {
        match self.scheduler.relieve(self.plan.n_rows()) {
            Relief::Evict(slot) => self.executor.clear(&mut self.scheduler.slots[slot]),
            Relief::Preempt(slot) => self.preempt(slot),
            Relief::End { slot, begun: true } => self.end(slot, Ending::Finished(FinishReason::ContextFull)),
            Relief::End { slot, begun: false } => self.end(slot, Ending::Failed(EngineError::Runner(error))),
            Relief::DropDrafts | Relief::SmallerChunks(_) | Relief::Nothing => {}
        }
    }

    /// Sets the sequence in `slot` back to the head of the queue.
    fn preempt(&mut self, slot: usize) {
        let place = &mut self.scheduler.slots[slot];
        // It comes back soon, and goes on from here.
        self.executor.checkpoint_answer(place);
        self.executor.clear(place);
        if let Some(sequence) = self.scheduler.preempt(slot) {
            tracing::debug!(id = sequence.id(), tokens = sequence.n_tokens, "set back to the queue to make room");
            self.metrics.preempted();
        }
    }

    fn drop_cancelled(&mut self) {
        let cancelled = Ending::Finished(FinishReason::Cancelled);
        self.end_waiting(|sequence| sequence.sink.is_closed(), &cancelled);
        for slot in 0..self.scheduler.slots.len() {
            let occupant = &self.scheduler.slots[slot].occupant;
            if occupant.as_ref().is_some_and(|sequence| sequence.sink.is_closed()) {
                self.end(slot, cancelled.clone());
            }
        }
    }

    fn end_waiting(&mut self, leaves: impl Fn(&Sequence) -> bool, ending: &Ending) {
        while let Some(sequence) = self.scheduler.take_waiting(&leaves) {
            self.close(sequence, ending.clone());
        }
    }

    /// Ends the sequence in `slot`, if there is one.
    fn end(&mut self, slot: usize, ending: Ending) {
        if matches!(ending, Ending::Finished(_)) {
            self.executor.checkpoint_answer(&self.scheduler.slots[slot]);
        }
        self.release(slot, ending);
    }

    /// As `end`, where the state of the sequence is saved already. What it has in the cache stays
    /// for others, unless its client asked for no cache.
    fn release(&mut self, slot: usize, ending: Ending) {
        let Some(sequence) = self.scheduler.release(slot) else { return };
        if !sequence.cache_prompt {
            self.executor.clear(&mut self.scheduler.slots[slot]);
        }
        self.close(sequence, ending);
    }

    fn close(&mut self, sequence: Box<Sequence>, ending: Ending) {
        self.ended.push(sequence.end(ending, &self.metrics));
    }

    /// Shows the state of the engine, then sends the terminal events: who reads one finds the state
    /// up to date.
    pub fn publish(&mut self) {
        let (slots, n_queued) = (&self.scheduler.slots, self.scheduler.n_waiting());
        let (n_steps, n_ctx) = (self.executor.n_steps(), self.n_ctx);
        self.published.stats.send_modify(|shown| stats::update(shown, slots, n_queued, n_steps));
        let gauges = EngineGauges { n_queued, n_active: slots.n_active(), n_fill: slots.n_fill(), n_ctx };
        self.metrics.set_engine(gauges);
        if let Some(view) = self.executor.checkpoints.view() {
            self.published.cache.send_replace(Arc::new(view));
        }
        self.ended.drain(..).for_each(|(sink, terminal)| sink.end(terminal));
    }
}
