//! The drafts of one step, for all sequences that decode together: who drafts how much and from
//! where, the passes of the MTP head, and the common number of rows.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::request::draft::DraftSource;
use crate::engine::request::error::{RunnerError, RunnerErrorKind};
use crate::engine::runner::{DraftRow, ModelRunner, RunnerFacts};
use crate::engine::scheduler::plan::DraftBudget;
use crate::engine::scheduler::slots::Slots;
use crate::engine::sequence::context::EngineContext;
use crate::engine::speculative::policy::Policy;
use crate::engine::speculative::policy::offer::{DraftChoice, Offer};
use crate::units::Pos;

/// Kept from step to step.
pub(super) struct Proposer {
    /// One for each number of sequences that decode together: so many rows cost one thing as the
    /// draft of one sequence and another as the next tokens of several.
    policies: Vec<Policy>,
    /// Slots that decode, and the choice for each.
    decoding: Vec<usize>,
    choices: Vec<DraftChoice>,
    /// The rows of a pass, and the slot of each.
    rows: Vec<DraftRow>,
    drafting: Vec<usize>,
    /// The tokeniser, and the tokens that end a generation and so a draft.
    context: Arc<EngineContext>,
}

impl Proposer {
    pub fn new(context: Arc<EngineContext>) -> Proposer {
        let facts = &context.facts;
        Proposer {
            policies: (0..facts.n_seq_max).map(|_| Policy::new(facts.steady_width)).collect(),
            decoding: Vec::new(),
            choices: Vec::new(),
            rows: Vec::new(),
            drafting: Vec::new(),
            context,
        }
    }

    /// Fills the drafts of all sequences that decode, within `budget`.
    pub fn propose(
        &mut self,
        slots: &mut Slots,
        runner: &mut dyn ModelRunner,
        budget: DraftBudget,
    ) -> Result<(), RunnerError> {
        self.begin(slots);
        let n = self.decoding.len();
        let RunnerFacts { n_outputs_seq, hybrid, steady_width, .. } = *runner.facts();
        if n == 0 || n_outputs_seq < 2 {
            return Ok(());
        }
        let each = |total: usize| (total / n).saturating_sub(1);
        let most = (n_outputs_seq - 1).min(each(budget.n_free)).min(each(budget.n_rows));
        let width = self.choose(slots, runner.facts(), most);
        if width == 0 {
            return Ok(());
        }
        self.take_text(slots);
        self.run_mtp_head(slots, runner)?;
        // Sequences with different numbers of rows are computed one after another where there are
        // recurrent layers, and a device that replays steps records a new one for a new number of
        // rows.
        self.finish(slots, width, steady_width || (hybrid && n > 1));
        Ok(())
    }

    /// All decoding sequences are in a step without anything else that took `seconds`.
    pub fn observe_step(&mut self, n_rows: usize, seconds: f64) {
        if let Some(policy) = self.policy() {
            policy.observe_step(n_rows, seconds);
        }
    }

    /// Speed expected now against no drafting.
    pub fn gain(&mut self) -> Option<f64> {
        self.policy().and_then(|policy| policy.gain())
    }

    /// That of the present number of sequences.
    fn policy(&mut self) -> Option<&mut Policy> {
        self.policies.get_mut(self.decoding.len().checked_sub(1)?)
    }

    fn begin(&mut self, slots: &mut Slots) {
        self.decoding.clear();
        for slot in 0..slots.len() {
            let decodes = slots[slot].n_pending() == 1;
            if let Some(sequence) = &mut slots[slot].occupant {
                sequence.drafts.begin();
                if decodes {
                    self.decoding.push(slot);
                }
            }
        }
    }

    fn choose(&mut self, slots: &mut Slots, facts: &RunnerFacts, most: usize) -> usize {
        let always = |slot: &usize| slots[*slot].occupant.as_ref().is_some_and(|s| s.drafts.drafts_most());
        let always = self.decoding.iter().any(always);
        let choices = &mut self.choices;
        let Some(policy) = self.policies.get_mut(self.decoding.len() - 1) else { return 0 };
        let decoding = slots.occupants_mut().filter(|(slot, _)| self.decoding.contains(slot));
        let offers: Vec<Offer<'_>> = decoding
            .map(|(_, sequence)| {
                let room = most.min(sequence.n_draftable(facts.n_ctx));
                sequence.offer(facts.mtp, room, &self.context.tokenizer)
            })
            .collect();
        if always { policy.choose_most(&offers, choices) } else { policy.choose(&offers, choices) }.min(most)
    }

    /// The drafts that need no pass of the head.
    fn take_text(&mut self, slots: &mut Slots) {
        for (&slot, choice) in self.decoding.iter().zip(&self.choices) {
            let Some(sequence) = &mut slots[slot].occupant else { continue };
            match choice.source {
                DraftSource::Mtp => {}
                DraftSource::Lookup => sequence.drafts.look_up(choice.n),
                DraftSource::Forced => sequence.drafts.force(choice.n),
            }
        }
    }

    /// The passes of the MTP head: each adds one token to every draft that wants one more.
    fn run_mtp_head(&mut self, slots: &mut Slots, runner: &mut dyn ModelRunner) -> Result<(), RunnerError> {
        for pass in 0.. {
            self.plan_pass(slots, pass);
            if self.rows.is_empty() {
                break;
            }
            let started = Instant::now();
            match runner.draft(&self.rows) {
                Ok(()) => {}
                Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
                Err(error) => {
                    tracing::debug!(%error, "the MTP head failed: its drafts end here");
                    break;
                }
            }
            for (row, &slot) in self.drafting.iter().enumerate() {
                if let Some(sequence) = &mut slots[slot].occupant {
                    let logits = runner.draft_logits(row)?;
                    sequence.propose(logits, &self.context);
                }
            }
            let n_sequences = self.rows.len();
            if let Some(policy) = self.policy() {
                policy.observe_draft_pass(n_sequences, started.elapsed().as_secs_f64());
            }
        }
        Ok(())
    }

    fn plan_pass(&mut self, slots: &Slots, pass: usize) {
        self.rows.clear();
        self.drafting.clear();
        for (&slot, choice) in self.decoding.iter().zip(&self.choices) {
            let place = &slots[slot];
            let Some(sequence) = &place.occupant else { continue };
            let drafts = &sequence.drafts;
            let wants = choice.source == DraftSource::Mtp && pass < choice.n && drafts.draft.n_mtp == pass;
            let Some(token) = drafts.draft.tokens.last().copied().or(sequence.last_token()).filter(|_| wants) else {
                continue;
            };
            if drafts.wants_more() {
                let pos = Pos(place.fill.pos().0 + pass as u32);
                self.rows.push(DraftRow { seq: place.seq, pos, token });
                self.drafting.push(slot);
            }
        }
    }

    fn finish(&mut self, slots: &mut Slots, width: usize, pad: bool) {
        let mut longest = 0;
        for &slot in &self.decoding {
            if let Some(sequence) = &mut slots[slot].occupant {
                longest = longest.max(sequence.finish_draft(width, &self.context.tokenizer));
            }
        }
        for &slot in self.decoding.iter().filter(|_| pad && longest > 0) {
            if let Some(sequence) = &mut slots[slot].occupant
                && let Some(last) = sequence.last_token()
            {
                sequence.drafts.fill(width, last);
            }
        }
    }
}
