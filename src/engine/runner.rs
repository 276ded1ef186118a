//! The seam to the model: one batch in, logits rows out. `LlamaRunner` and `FakeRunner` implement it.

use super::error::RunnerError;
use crate::units::{Pos, SeqId, Token};

/// Fixed facts of a loaded context.
#[derive(Clone, Debug)]
pub struct RunnerFacts {
    pub n_vocab: usize,
    /// Tokens that the KV cache holds, shared by all sequences.
    pub n_ctx: usize,
    pub n_seq_max: usize,
    /// Rows in one `step`.
    pub n_batch: usize,
    /// Rows the device takes at once: the prefill rows of a step while nothing decodes.
    pub n_ubatch: usize,
    /// Rows with logits in one `step`.
    pub n_outputs_max: usize,
    /// Recurrent layers: a sequence cannot be cut back to an arbitrary length, and sequences with the same number of rows are
    /// computed together, others one after another.
    pub hybrid: bool,
    /// Tokens by which `truncate` can cut a sequence back after a step, where that step had at least one row of it more. Of
    /// no meaning where `hybrid` is false: then any cut is possible.
    pub rollback_max: usize,
    /// Rows with logits that one sequence may have in a step.
    pub n_outputs_seq: usize,
    /// `draft` works: the model's MTP head is loaded.
    pub mtp: bool,
    /// The device replays a recorded step as long as the number of rows stays the same.
    pub steady_width: bool,
    /// Ids that end a generation; `ignore_eos` bans them. Other control ids are not in it.
    pub eog: Vec<Token>,
}

/// One row of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRow {
    pub seq: SeqId,
    pub pos: Pos,
    pub token: Token,
    /// Are logits wanted for this row.
    pub output: bool,
}

/// One row of a pass of the MTP head: guess what follows `token`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftRow {
    pub seq: SeqId,
    /// The next position of the sequence, for its last token, which no step has processed yet; or the position after that of
    /// the sequence's row in the last pass, for the token that was guessed there.
    pub pos: Pos,
    pub token: Token,
}

/// Owned and called by the engine thread alone. Rows of one sequence are contiguous and in position order.
pub trait ModelRunner {
    fn facts(&self) -> &RunnerFacts;

    /// Processes the rows. On `Err` with `RunnerErrorKind::NoRoom` or `InvalidBatch` nothing was changed; after any other
    /// error the state of the sequences in the batch is unknown and they must be cleared.
    fn step(&mut self, rows: &[BatchRow]) -> Result<(), RunnerError>;

    /// Logits of row `row` of the last successful step (a row with `output`): `n_vocab` floats, valid until the next call.
    fn logits(&mut self, row: usize) -> Result<&[f32], RunnerError>;

    /// One pass of the MTP head, at most one row a sequence. What it leaves behind is dropped with the next `step`. An error
    /// that is not `Fatal` changes nothing but that there is no draft.
    fn draft(&mut self, rows: &[DraftRow]) -> Result<(), RunnerError>;

    /// What the head guesses at row `row` of the last successful `draft`: `n_vocab` floats, valid until the next call.
    fn draft_logits(&mut self, row: usize) -> Result<&[f32], RunnerError>;

    /// Cuts `seq` so that positions `>= from` are gone. `Ok(false)`: this memory cannot do it (a recurrent state has no such
    /// snapshot) and nothing was changed. `from == 0` always succeeds.
    fn truncate(&mut self, seq: SeqId, from: Pos) -> Result<bool, RunnerError>;

    /// Empties `seq`.
    fn clear(&mut self, seq: SeqId) {
        let _ = self.truncate(seq, Pos(0));
    }
}
