//! Runs one step: propose drafts, have the model compute the rows, process its outputs; and reports
//! what came of it.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::checkpoint::Checkpoints;
use super::proposer::Proposer;
use super::restore::{Device, StartPlan};
use super::slot_memory::{clear, clear_unknown};
use super::vision_encode::{NotEncoded, VisionEncoder};
use crate::engine::request::error::{EngineError, RunnerError, RunnerErrorKind};
use crate::engine::runner::ModelRunner;
use crate::engine::scheduler::encoding::EncodePlan;
use crate::engine::scheduler::plan::StepPlan;
use crate::engine::scheduler::slots::{Slot, Slots};
use crate::engine::sequence::Sequence;
use crate::engine::sequence::clock::Ending;
use crate::engine::sequence::context::EngineContext;
use crate::telemetry::Metrics;

/// A sequence that is over.
pub(in crate::engine) struct Ended {
    pub slot: usize,
    pub ending: Ending,
}

/// A call into the model that failed, over these parts of the plan.
pub(in crate::engine) struct FailedCall {
    pub parts: Range<usize>,
    pub error: RunnerError,
}

/// What a step has come to. Used again from step to step.
#[derive(Default)]
pub(in crate::engine) struct StepOutput {
    /// In the order of their rows. What is to be kept of them is in the prefix cache.
    pub ended: Vec<Ended>,
    /// In the order of the calls.
    pub failed: Vec<FailedCall>,
}

/// What an executor is made of.
pub(in crate::engine) struct ExecutorParts {
    pub runner: Box<dyn ModelRunner>,
    pub context: Arc<EngineContext>,
    pub checkpoints: Checkpoints,
    pub encoder: VisionEncoder,
    pub metrics: Metrics,
}

/// Owns the model and everything that is kept from step to step for it.
pub(in crate::engine) struct Executor {
    batch: Batch,
    proposer: Proposer,
    pub checkpoints: Checkpoints,
    pub encoder: VisionEncoder,
    n_steps: u64,
    /// How long the last step took.
    step_time: Duration,
    metrics: Metrics,
    context: Arc<EngineContext>,
    runner: Box<dyn ModelRunner>,
}

impl Executor {
    pub fn new(parts: ExecutorParts) -> Executor {
        let ExecutorParts { runner, context, checkpoints, encoder, metrics } = parts;
        Executor {
            batch: Batch::default(),
            proposer: Proposer::new(Arc::clone(&context)),
            checkpoints,
            encoder,
            n_steps: 0,
            step_time: Duration::ZERO,
            metrics,
            context,
            runner,
        }
    }

    /// Steps so far.
    pub fn n_steps(&self) -> u64 {
        self.n_steps
    }

    /// Empties a slot's state. An occupant stays and starts over.
    pub fn clear(&mut self, slot: &mut Slot) {
        clear(self.runner.as_mut(), slot);
    }

    /// Empties a slot whose state in the model is unknown.
    pub fn clear_unknown(&mut self, slot: &mut Slot) {
        clear_unknown(self.runner.as_mut(), slot);
    }

    /// Saves the state at the end of an answer, or of what there is of it.
    pub fn checkpoint_answer(&mut self, slot: &Slot) {
        self.checkpoints.answer(slot, self.runner.as_mut());
    }

    /// How the head of the queue would start. `None`: not now, as all slots are taken or its state
    /// is on its way from disk.
    pub fn plan_start(&mut self, head: &Sequence, slots: &Slots) -> Option<StartPlan> {
        self.checkpoints.plan_start(head, slots)
    }

    /// Brings the slot of the plan into the state that the sequence starts from. An error is the
    /// end of the engine.
    pub fn start(&mut self, plan: StartPlan, sequence: &mut Sequence, slots: &mut Slots) -> Result<(), RunnerError> {
        let device = Device { runner: self.runner.as_mut(), n_steps: self.n_steps };
        self.checkpoints.start(plan, sequence, slots, device)
    }

    /// Encodes the image that is needed first, if one is.
    pub fn encode(&mut self, plan: &EncodePlan, slots: &mut Slots) -> Result<bool, NotEncoded> {
        self.encoder.run(plan, slots, self.runner.as_mut())
    }

    /// Fills the drafts of all sequences that decode, as far as the plan allows.
    pub fn propose(&mut self, plan: &StepPlan, slots: &mut Slots) -> Result<(), RunnerError> {
        self.proposer.propose(slots, self.runner.as_mut(), plan.drafts)
    }

    /// Computes the rows of the plan and samples their outputs. An error is the end of the engine;
    /// all others are in the report.
    pub fn execute(&mut self, plan: &StepPlan, slots: &mut Slots, output: &mut StepOutput) -> Result<(), RunnerError> {
        if plan.drop_drafts {
            slots.occupants_mut().for_each(|(_, sequence)| sequence.drafts.draft.clear());
        }
        plan.evict.iter().for_each(|&slot| clear(self.runner.as_mut(), &mut slots[slot]));
        self.batch.lay_out(plan, slots);
        let all = 0..self.batch.parts.len();
        match self.run(all.clone(), slots, output) {
            Err(error) if error.kind == RunnerErrorKind::InvalidBatch && all.len() > 1 => {
                self.run_each(all, slots, output)
            }
            outcome => report(outcome, all, output),
        }
    }

    /// Runs the rows of each part alone: the batch was refused, and only the one that is to blame
    /// shall fail.
    fn run_each(&mut self, parts: Range<usize>, slots: &mut Slots, output: &mut StepOutput) -> Result<(), RunnerError> {
        for part in parts {
            let outcome = self.run(part..part + 1, slots, output);
            // Something else stands in the way; the parts that did not run are planned again.
            let stop = outcome.as_ref().is_err_and(|error| error.kind != RunnerErrorKind::InvalidBatch);
            report(outcome, part..part + 1, output)?;
            if stop {
                break;
            }
        }
        Ok(())
    }

    /// Runs the rows of `parts` in one call and samples their outputs. An error that is not `Fatal`
    /// is that of the call: nothing was sampled.
    fn run(&mut self, parts: Range<usize>, slots: &mut Slots, output: &mut StepOutput) -> Result<(), RunnerError> {
        let rows = self.batch.parts[parts.start].rows.start..self.batch.parts[parts.end - 1].rows.end;
        let started = Instant::now();
        self.runner.step_with_images(&self.batch.rows[rows.clone()], self.encoder.cache())?;
        self.precompute_masks(parts.clone(), slots, started);
        self.runner.wait();
        self.n_steps += 1;
        let now = Instant::now();
        self.step_time = now.saturating_duration_since(started);
        if self.batch.parts[parts.clone()].iter().all(|part| part.outputs == part.rows) {
            self.proposer.observe_step(rows.len(), self.step_time.as_secs_f64());
            if let Some(gain) = self.proposer.gain() {
                self.metrics.set_draft_gain(gain);
            }
        }
        let step = StepFacts { first_row: rows.start, started, now };
        for part in parts {
            self.process_outputs(part, &step, slots, output)?;
        }
        Ok(())
    }

    /// Works out masks that the outputs of `parts` will need while the device computes: those that
    /// are needed whatever comes, then those behind drafts, which may turn out wrong.
    fn precompute_masks(&mut self, parts: Range<usize>, slots: &mut Slots, started: Instant) {
        if !self.context.facts.asynchronous {
            return;
        }
        // Half of the last step: masks that make a step longer than the device does must not be
        // given more time for it.
        let end = started + self.step_time / 2;
        for drafts_too in [false, true] {
            for part in self.batch.parts[parts.clone()].iter().filter(|part| !part.outputs.is_empty()) {
                if let Some(sequence) = &mut slots[part.slot].occupant {
                    let more = || drafts_too && Instant::now() < end;
                    sequence.precompute_masks(&self.context.tokenizer, more);
                }
            }
        }
    }

    /// Takes what a step gave one sequence.
    fn process_outputs(
        &mut self,
        part: usize,
        step: &StepFacts,
        slots: &mut Slots,
        output: &mut StepOutput,
    ) -> Result<(), RunnerError> {
        let part = &self.batch.parts[part];
        let (index, rows, outputs) = (part.slot, part.rows.clone(), part.outputs.clone());
        let slot = &mut slots[index];
        slot.truncated = false;
        slot.last_used = self.n_steps;
        let Some(sequence) = &mut slot.occupant else { return Ok(()) };
        let n_drafted = sequence.drafts.draft.tokens.len();
        let processed = slot.fill.n_items..slot.fill.n_items + rows.len() - n_drafted;
        sequence.items[processed].iter().for_each(|item| slot.fill.advance(item));
        sequence.clock.prefill_started.get_or_insert(step.started);
        sequence.report_progress(slot.fill.n_tokens, step.now);
        let mut ending = None;
        let mut n_accepted = 0;
        for row in outputs.clone() {
            ending = match self.runner.logits(row - step.first_row) {
                Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
                Err(error) => Some(Ending::Failed(EngineError::Runner(error))),
                Ok(logits) => match sequence.sample(logits, &self.context, step.now, &self.metrics) {
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
            self.roll_back(slot)?;
        }
        if outputs.is_empty() {
            self.checkpoints.at_boundary(slot, self.runner.as_mut())?;
        }
        match (ending, &mut slot.occupant) {
            (None, Some(sequence)) => sequence.sink.flush(),
            (None, None) => {}
            (Some(ending), _) => {
                if matches!(ending, Ending::Finished(_)) {
                    self.checkpoint_answer(slot);
                }
                output.ended.push(Ended { slot: index, ending });
            }
        }
        Ok(())
    }

    /// Cuts the rows of a draft that turned out wrong.
    fn roll_back(&mut self, slot: &mut Slot) -> Result<(), RunnerError> {
        match self.runner.truncate(slot.seq, slot.fill.pos()) {
            Ok(true) => slot.truncated = true,
            Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
            // It is processed again from its beginning.
            Ok(false) | Err(_) => {
                tracing::warn!(seq = slot.seq.0, "a draft could not be rolled back");
                self.clear_unknown(slot);
            }
        }
        Ok(())
    }
}

/// What all parts of a step have in common.
struct StepFacts {
    first_row: usize,
    started: Instant,
    now: Instant,
}

/// Errors that the engine survives go into the report.
fn report(outcome: Result<(), RunnerError>, parts: Range<usize>, output: &mut StepOutput) -> Result<(), RunnerError> {
    match outcome {
        Err(error) if error.kind != RunnerErrorKind::Fatal => {
            output.failed.push(FailedCall { parts, error });
            Ok(())
        }
        outcome => outcome,
    }
}
