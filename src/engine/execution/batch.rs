//! The rows of one step, laid out as the plan says.
//!
//! Rows of a sequence are contiguous and its outputs are a range of rows, so several rows of one
//! sequence can have outputs.

use std::ops::Range;

use crate::engine::request::item::PromptItem;
use crate::engine::runner::BatchRow;
use crate::engine::scheduler::plan::{PlannedPart, StepPlan};
use crate::engine::scheduler::slots::Slots;
use crate::units::{Pos, Token};

/// The rows of one sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub slot: usize,
    pub rows: Range<usize>,
    /// Those of `rows` whose logits are sampled.
    pub outputs: Range<usize>,
}

/// Reused from step to step. Part `i` is that of the plan.
#[derive(Default)]
pub(super) struct Batch {
    pub rows: Vec<BatchRow>,
    pub parts: Vec<Part>,
}

impl Batch {
    pub fn lay_out(&mut self, plan: &StepPlan, slots: &Slots) {
        self.rows.clear();
        self.parts.clear();
        plan.parts.iter().for_each(|part| self.push(*part, slots));
    }

    fn push(&mut self, part: PlannedPart, slots: &Slots) {
        let place = &slots[part.slot];
        let Some(sequence) = &place.occupant else { return };
        let start = self.rows.len();
        let mut at = place.fill;
        for item in &sequence.items[at.n_items..at.n_items + part.n_items] {
            let pos: Pos = at.pos();
            at.advance(item);
            let output = at.n_items == sequence.items.len();
            self.rows.push(BatchRow { seq: place.seq, pos, item: *item, output });
        }
        // Every row of a draft tells whether the next one is right.
        let drafted = &sequence.drafts.draft.tokens[..part.n_drafted];
        let row = |(&token, pos): (&Token, u32)| BatchRow {
            seq: place.seq,
            pos: Pos(pos),
            item: PromptItem::Token(token),
            output: true,
        };
        self.rows.extend(drafted.iter().zip(at.pos().0..).map(row));
        let n_outputs = usize::from(at.n_items == sequence.items.len()) + drafted.len();
        let end = self.rows.len();
        self.parts.push(Part { slot: part.slot, rows: start..end, outputs: end - n_outputs..end });
    }
}
