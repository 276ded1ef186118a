//! The rows of one step: first one row of every sequence that decodes, then prefill rows of the others.
//!
//! Rows of a sequence are contiguous and its outputs are a range of rows, so several rows of one sequence can have outputs.

use std::ops::Range;

use super::admission::Slots;
use super::gallery::Gallery;
use super::prefill;
use super::request::PromptItem;
use super::runner::BatchRow;
use crate::units::{Pos, Token};

/// What one step takes of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub slot: usize,
    pub rows: Range<usize>,
    /// Those of `rows` whose logits are sampled.
    pub outputs: Range<usize>,
}

/// Bounds of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowLimits {
    pub n_batch: usize,
    /// Prefill rows of a step while nothing decodes: one device pass, so that a cancel or a new request waits no longer.
    pub n_ubatch: usize,
    /// Rows of a step, those of decoding sequences included, while anything decodes.
    pub prefill_chunk: usize,
    /// Bound of the prefill rows in any case: memory is tight.
    pub prefill_cap: usize,
}

/// Reused from step to step.
#[derive(Default)]
pub(super) struct Batch {
    pub rows: Vec<BatchRow>,
    pub parts: Vec<Part>,
    prefilling: Vec<usize>,
    needs: Vec<usize>,
    shares: Vec<usize>,
}

impl Batch {
    /// Plans the next step. A sequence with one item to go has its row in every step; so prefill never holds up decoding.
    /// The rows of a picture come when `gallery` has it.
    pub fn plan(&mut self, slots: &Slots, gallery: &Gallery, limits: RowLimits) {
        self.rows.clear();
        self.parts.clear();
        self.prefilling.clear();
        for (slot, _) in slots.active() {
            if slots[slot].n_pending() == 1 {
                self.push(slots, slot, 1);
            } else {
                self.prefilling.push(slot);
            }
        }
        self.prefilling.sort_by_key(|&slot| slots[slot].occupant.as_ref().map(|sequence| sequence.serial));
        self.needs.clear();
        self.needs.extend(self.prefilling.iter().map(|&slot| slots[slot].n_ready(gallery)));
        let mut shares = std::mem::take(&mut self.shares);
        prefill::share(self.prefill_budget(limits), &self.needs, &mut shares);
        for (i, &n_rows) in shares.iter().enumerate() {
            if n_rows > 0 {
                self.push(slots, self.prefilling[i], n_rows);
            }
        }
        self.shares = shares;
    }

    /// The rows for prefill beside the decode rows that are planned: at least one.
    fn prefill_budget(&self, limits: RowLimits) -> usize {
        let n_decode = self.rows.len();
        let n_step = if n_decode == 0 { limits.n_ubatch } else { limits.prefill_chunk };
        n_step.min(limits.n_batch).saturating_sub(n_decode).min(limits.prefill_cap).max(1)
    }

    fn push(&mut self, slots: &Slots, slot: usize, n_rows: usize) {
        let place = &slots[slot];
        let Some(sequence) = &place.occupant else { return };
        let start = self.rows.len();
        let mut at = place.fill;
        for item in &sequence.items[at.n_items..at.n_items + n_rows] {
            let pos: Pos = at.pos();
            at.advance(item);
            let output = at.n_items == sequence.items.len();
            self.rows.push(BatchRow { seq: place.seq, pos, item: *item, output });
        }
        let mut n_outputs = usize::from(at.n_items == sequence.items.len());
        if n_rows == 1 && n_outputs == 1 {
            // Every row of a draft tells whether the next one is right.
            let drafted = &sequence.drafts.draft.tokens;
            let row = |(&token, pos): (&Token, u32)| BatchRow {
                seq: place.seq,
                pos: Pos(pos),
                item: PromptItem::Token(token),
                output: true,
            };
            self.rows.extend(drafted.iter().zip(at.pos().0..).map(row));
            n_outputs += drafted.len();
        }
        let end = self.rows.len();
        self.parts.push(Part { slot, rows: start..end, outputs: end - n_outputs..end });
    }
}
