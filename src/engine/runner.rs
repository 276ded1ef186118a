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
    /// Recurrent layers: a sequence cannot be cut back to an arbitrary length.
    pub hybrid: bool,
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

/// Owned and called by the engine thread alone. Rows of one sequence are contiguous and in position order.
pub trait ModelRunner {
    fn facts(&self) -> &RunnerFacts;

    /// Processes the rows. On `Err` with `RunnerErrorKind::NoRoom` or `InvalidBatch` nothing was changed; after any other
    /// error the state of the sequences in the batch is unknown and they must be cleared.
    fn step(&mut self, rows: &[BatchRow]) -> Result<(), RunnerError>;

    /// Logits of row `row` of the last successful step (a row with `output`): `n_vocab` floats, valid until the next call.
    fn logits(&mut self, row: usize) -> Result<&[f32], RunnerError>;

    /// Cuts `seq` so that positions `>= from` are gone. `Ok(false)`: this memory cannot do it (a recurrent state has no such
    /// snapshot) and nothing was changed. `from == 0` always succeeds.
    fn truncate(&mut self, seq: SeqId, from: Pos) -> Result<bool, RunnerError>;

    /// Empties `seq`.
    fn clear(&mut self, seq: SeqId) {
        let _ = self.truncate(seq, Pos(0));
    }
}
