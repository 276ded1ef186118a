//! The memory of the sequences: which positions each holds, and the only place that removes some.
//!
//! llama.cpp accepts operations that leave a recurrent state silently wrong. `Bookkeeping` knows
//! what is safe, from nothing but the rows that were processed; `Memory` calls llama.cpp only for
//! what it allows:
//! - A rollback uses the snapshots of the last batch. Cutting more tokens than that batch had (less
//!   one) would read snapshots of an older batch, and llama.cpp says yes to it.
//! - A batch without this sequence may move its state to another cell, without the snapshots.
//! - A second rollback before the next batch is refused by llama.cpp, and here before it is asked.
//!
//! Deliberately absent: copying a sequence (wrong while a rollback is pending), shifting positions
//! (aborts with M-RoPE).

#![expect(unsafe_code, reason = "calls the sequence operations")]

use std::rc::Rc;

use super::ffi;
use super::handle::Handle;
use crate::engine::BatchRow;
use crate::units::{Pos, SeqId};

/// What a sequence holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sequence {
    /// The position that comes next; 0: empty. Inside an image that of its rows.
    next: u32,
    /// The last row is one of an image that goes on.
    inside: bool,
    /// Tokens at the end of the last batch, whose snapshots are still good: their positions have no
    /// gaps.
    fresh_rows: u32,
    /// A rollback waits for the next batch.
    pending: bool,
}

/// What cutting a sequence takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing is there to remove.
    Nothing,
    /// All of it goes.
    Whole,
    /// The tail goes.
    Tail,
    /// The recurrent state at that position is gone.
    Impossible,
}

/// Positions and rollbacks, without native code.
#[derive(Clone, Debug)]
pub struct Bookkeeping {
    sequences: Vec<Sequence>,
    /// `Some(n)`: recurrent layers that keep the states after the last `n + 1` tokens of a batch.
    /// `None`: attention only.
    snapshots: Option<u32>,
}

impl Bookkeeping {
    pub fn new(n_seq_max: usize, snapshots: Option<u32>) -> Bookkeeping {
        Bookkeeping { sequences: vec![Sequence::default(); n_seq_max], snapshots }
    }

    /// The position that comes next in `seq`; `None` for a sequence that the context does not have.
    pub fn next(&self, seq: SeqId) -> Option<Pos> {
        self.sequences.get(seq.0 as usize).map(|sequence| Pos(sequence.next))
    }

    /// May a state of `seq` end here: not inside an image.
    pub fn is_whole(&self, seq: SeqId) -> bool {
        self.sequences.get(seq.0 as usize).is_some_and(|sequence| !sequence.inside)
    }

    /// Do the rows continue their sequences without a gap, the rows of one sequence side by side.
    pub fn continues(&self, rows: &[BatchRow]) -> bool {
        let mut seen = vec![false; self.sequences.len()];
        rows.chunk_by(|a, b| a.seq == b.seq).all(|run| {
            let index = run[0].seq.0 as usize;
            let Some(sequence) = self.sequences.get(index) else { return false };
            let first = !std::mem::replace(&mut seen[index], true);
            let mut next = Some(sequence.next);
            first
                && run.iter().all(|row| {
                    let fits = next == Some(row.pos.0);
                    next = next.and_then(|pos| pos.checked_add(row.item.n_pos() as u32));
                    fits
                })
        })
    }

    pub fn cut(&self, seq: SeqId, from: Pos) -> Cut {
        let Some(sequence) = self.sequences.get(seq.0 as usize) else { return Cut::Nothing };
        if from.0 == 0 {
            return Cut::Whole;
        }
        if from.0 >= sequence.next && !sequence.inside {
            return Cut::Nothing;
        }
        let n_cut = sequence.next.saturating_sub(from.0);
        match self.snapshots {
            None => Cut::Tail,
            // Inside an image there is no fresh row.
            Some(limit) if !sequence.pending && n_cut <= limit && n_cut < sequence.fresh_rows => Cut::Tail,
            Some(_) => Cut::Impossible,
        }
    }

    /// The sequence was cut as `cut` allowed.
    fn was_cut(&mut self, seq: SeqId, from: Pos) {
        if let Some(sequence) = self.sequences.get_mut(seq.0 as usize) {
            let pending = from.0 > 0 && self.snapshots.is_some();
            *sequence = Sequence { next: from.0, pending, ..Sequence::default() };
        }
    }

    /// The rows were processed.
    fn stepped(&mut self, rows: &[BatchRow]) {
        for sequence in &mut self.sequences {
            sequence.fresh_rows = 0;
        }
        for run in rows.chunk_by(|a, b| a.seq == b.seq) {
            let (Some(sequence), Some(last)) = (self.sequences.get_mut(run[0].seq.0 as usize), run.last()) else {
                continue;
            };
            let n_fresh = run.iter().rev().take_while(|row| row.item.token().is_some()).count();
            *sequence = Sequence {
                next: last.pos.0 + last.item.n_pos() as u32,
                inside: last.item.n_pos() == 0,
                fresh_rows: u32::try_from(n_fresh).unwrap_or(u32::MAX),
                pending: false,
            };
        }
    }

    fn reached(&mut self, seq: SeqId, next: Pos) {
        debug_assert!(self.snapshots.is_none(), "recurrent states depend on every row");
        if let Some(sequence) = self.sequences.get_mut(seq.0 as usize) {
            *sequence = Sequence { next: next.0, ..Sequence::default() };
        }
    }

    /// A restored state is whole, without snapshots to roll back to.
    fn restored(&mut self, seq: SeqId, next: Pos) {
        if let Some(sequence) = self.sequences.get_mut(seq.0 as usize) {
            *sequence = Sequence { next: next.0, ..Sequence::default() };
        }
    }

    /// A batch died half way: what its sequences hold is unknown, and no snapshot is to be trusted.
    fn lost(&mut self, rows: &[BatchRow]) {
        for sequence in &mut self.sequences {
            sequence.fresh_rows = 0;
        }
        for row in rows {
            if let Some(sequence) = self.sequences.get_mut(row.seq.0 as usize) {
                *sequence = Sequence { next: u32::MAX, pending: true, ..Sequence::default() };
            }
        }
    }
}

/// The memory of one context.
pub struct Memory {
    raw: ffi::llama_memory_t,
    tracker: Bookkeeping,
    /// Whose memory it is.
    _context: Rc<Handle>,
}

impl Memory {
    /// `None` where the model has no memory: it does not generate. To be made once of a context:
    /// two would know half each.
    pub(super) fn new(context: Rc<Handle>, tracker: Bookkeeping) -> Option<Memory> {
        // SAFETY: the context is alive.
        let raw = unsafe { ffi::llama_get_memory(context.raw()) };
        (!raw.is_null()).then(|| Memory { raw, tracker, _context: context })
    }

    pub fn tracker(&self) -> &Bookkeeping {
        &self.tracker
    }

    pub(super) fn stepped(&mut self, rows: &[BatchRow]) {
        self.tracker.stepped(rows);
    }

    pub(super) fn lost(&mut self, rows: &[BatchRow]) {
        self.tracker.lost(rows);
    }

    /// `seq` was processed up to `next`, in a context without recurrent layers, whose past does not
    /// matter.
    pub(super) fn reached(&mut self, seq: SeqId, next: Pos) {
        self.tracker.reached(seq, next);
    }

    /// `seq` was put into a saved state that ends before `next`.
    pub(super) fn restored(&mut self, seq: SeqId, next: Pos) {
        self.tracker.restored(seq, next);
    }

    /// Removes positions `>= from`. `false`: impossible, nothing was changed.
    pub fn truncate(&mut self, seq: SeqId, from: Pos) -> bool {
        match self.tracker.cut(seq, from) {
            Cut::Nothing => return true,
            Cut::Impossible => return false,
            Cut::Whole | Cut::Tail => {}
        }
        let (Ok(id), Ok(first)) = (i32::try_from(seq.0), i32::try_from(from.0)) else { return false };
        // SAFETY: the memory is a part of the context that this value holds, and the bookkeeping
        // knows the sequence, so its id is in range. Removing to the end, p1 = -1, never asserts;
        // the call allocates nothing of note.
        let removed = unsafe { ffi::llama_memory_seq_rm(self.raw, id, first, -1) };
        if removed {
            self.tracker.was_cut(seq, from);
        }
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Grid, ImageKey, ImageRow, PromptItem};
    use crate::units::Token;

    fn rows(seq: u32, positions: std::ops::Range<u32>) -> Vec<BatchRow> {
        let row = |pos| BatchRow { seq: SeqId(seq), pos: Pos(pos), item: PromptItem::Token(Token(1)), output: false };
        positions.map(row).collect()
    }

    fn after(snapshots: Option<u32>, batches: &[Vec<BatchRow>]) -> Bookkeeping {
        let mut tracker = Bookkeeping::new(3, snapshots);
        for batch in batches {
            assert!(tracker.continues(batch));
            tracker.stepped(batch);
        }
        tracker
    }

    #[test]
    fn attention_is_cut_anywhere() {
        let tracker = after(None, &[rows(0, 0..8), rows(0, 8..9)]);
        assert_eq!(tracker.cut(SeqId(0), Pos(3)), Cut::Tail);
        assert_eq!(tracker.cut(SeqId(0), Pos(0)), Cut::Whole);
        assert_eq!(tracker.cut(SeqId(0), Pos(9)), Cut::Nothing);
    }

    #[test]
    fn a_recurrent_state_without_snapshots_is_cut_nowhere() {
        let tracker = after(Some(0), &[rows(0, 0..8)]);
        assert_eq!(tracker.cut(SeqId(0), Pos(7)), Cut::Impossible);
        assert_eq!(tracker.cut(SeqId(0), Pos(8)), Cut::Nothing);
        assert_eq!(tracker.cut(SeqId(0), Pos(0)), Cut::Whole);
    }

    #[test]
    fn a_rollback_stays_inside_the_last_batch() {
        let tracker = after(Some(3), &[rows(0, 0..8)]);
        assert_eq!(tracker.cut(SeqId(0), Pos(5)), Cut::Tail);
        assert_eq!(tracker.cut(SeqId(0), Pos(4)), Cut::Impossible, "more than the snapshots");
        let tracker = after(Some(3), &[rows(0, 0..8), rows(0, 8..10)]);
        assert_eq!(tracker.cut(SeqId(0), Pos(9)), Cut::Tail);
        assert_eq!(tracker.cut(SeqId(0), Pos(8)), Cut::Impossible, "the batch had two rows: one rollback at most");
    }

    #[test]
    fn a_rollback_is_used_once() {
        let mut tracker = after(Some(3), &[rows(0, 0..8)]);
        tracker.was_cut(SeqId(0), Pos(7));
        assert_eq!(tracker.cut(SeqId(0), Pos(6)), Cut::Impossible);
        tracker.stepped(&rows(0, 7..11));
        assert_eq!(tracker.cut(SeqId(0), Pos(10)), Cut::Tail);
    }

    #[test]
    fn a_batch_of_others_ends_the_snapshots() {
        let tracker = after(Some(3), &[rows(0, 0..8), rows(1, 0..8)]);
        assert_eq!(tracker.cut(SeqId(0), Pos(7)), Cut::Impossible);
        assert_eq!(tracker.cut(SeqId(1), Pos(7)), Cut::Tail);
    }

    #[test]
    fn rows_must_continue_their_sequences() {
        let tracker = after(None, &[rows(0, 0..4)]);
        let both = |a: Vec<BatchRow>, b: Vec<BatchRow>| [a, b].concat();
        assert!(tracker.continues(&both(rows(0, 4..6), rows(1, 0..2))));
        assert!(!tracker.continues(&rows(0, 5..6)), "gap");
        assert!(!tracker.continues(&rows(0, 3..6)), "overlap");
        assert!(!tracker.continues(&rows(3, 0..1)), "unknown sequence");
        assert!(!tracker.continues(&both(both(rows(0, 4..5), rows(1, 0..1)), rows(0, 5..6))), "incomplete apart");
    }

    fn image(pos: u32, nx: u16, ny: u16) -> Vec<BatchRow> {
        let items = ImageRow::all(ImageKey::new(7), Grid { nx, ny }).map(PromptItem::Image);
        items.map(|item| BatchRow { seq: SeqId(0), pos: Pos(pos), item, output: false }).collect()
    }

    #[test]
    fn an_image_takes_one_position_and_leaves_a_gap() {
        let prompt = [rows(0, 0..4), image(4, 3, 2), rows(0, 7..9)].concat();
        let tracker = after(Some(3), std::slice::from_ref(&prompt));
        assert_eq!(tracker.next(SeqId(0)), Some(Pos(9)));
        assert_eq!(tracker.cut(SeqId(0), Pos(8)), Cut::Tail);
        assert_eq!(tracker.cut(SeqId(0), Pos(7)), Cut::Impossible, "the state before it has no number of rows back");
        let gap = [rows(0, 0..4), image(4, 3, 2), rows(0, 5..6)].concat();
        assert!(!after(None, &[]).continues(&gap));
        // However it is cut into batches.
        for at in 1..prompt.len() {
            let tracker = after(None, &[prompt[..at].to_vec(), prompt[at..].to_vec()]);
            assert_eq!(tracker.next(SeqId(0)), Some(Pos(9)));
        }
    }

    #[test]
    fn an_image_that_is_not_whole_can_be_cut_at_its_beginning() {
        let tracker = after(None, &[rows(0, 0..4), image(4, 3, 2)[..2].to_vec()]);
        assert!(!tracker.is_whole(SeqId(0)));
        assert_eq!(tracker.cut(SeqId(0), Pos(4)), Cut::Tail);
        assert_eq!(tracker.cut(SeqId(0), Pos(0)), Cut::Whole);
        let tracker = after(Some(3), &[rows(0, 0..4), image(4, 3, 2)[..2].to_vec()]);
        assert_eq!(tracker.cut(SeqId(0), Pos(4)), Cut::Impossible);
        let tracker = after(None, &[rows(0, 0..4), image(4, 3, 2)]);
        assert!(tracker.is_whole(SeqId(0)));
        assert_eq!((tracker.cut(SeqId(0), Pos(7)), tracker.next(SeqId(0))), (Cut::Nothing, Some(Pos(7))));
    }

    #[test]
    fn a_lost_sequence_can_only_be_cleared() {
        let mut tracker = after(Some(3), &[rows(0, 0..8)]);
        tracker.lost(&rows(0, 8..9));
        assert!(!tracker.continues(&rows(0, 8..9)));
        assert_eq!(tracker.cut(SeqId(0), Pos(7)), Cut::Impossible);
        tracker.was_cut(SeqId(0), Pos(0));
        assert!(tracker.continues(&rows(0, 0..4)));
    }
}
