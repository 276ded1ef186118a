//! The seam to the model: one batch in, logits rows out. `LlamaRunner` and `FakeRunner` implement
//! it.

pub mod fake;
pub mod state_bytes;

use crate::engine::request::error::RunnerError;
use crate::engine::request::item::PromptItem;
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::engine::vision::image::{Embedding, Image, VisionFacts};
use crate::text::Tokenizer;
use crate::units::{Pos, SeqId, Token};
use state_bytes::StateBytes;

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
    /// Recurrent layers: a sequence cannot be truncated to an arbitrary length, and sequences with
    /// the same number of rows are computed together, others one after another.
    pub hybrid: bool,
    /// Tokens by which `truncate` can shorten a sequence after a step, where that step had at least
    /// one row of it more. Of no meaning where `hybrid` is false: then any length is possible.
    pub rollback_max: usize,
    /// Rows with logits that one sequence may have in a step.
    pub n_outputs_seq: usize,
    /// `draft` works: the model's MTP head is loaded.
    pub mtp: bool,
    /// The device replays a recorded step as long as the number of rows stays the same.
    pub steady_width: bool,
    /// A step goes on by itself: what the engine does between `step` and `wait` costs no time.
    pub asynchronous: bool,
    /// Bytes of a saved point, about; `None`: `save` and `restore` do not work with this model.
    pub point_bytes: Option<u64>,
    /// Ids that end a generation; `ignore_eos` bans them. Other control ids are not in it.
    pub eog: Vec<Token>,
    /// `encode` works; `None`: the model sees nothing.
    pub vision: Option<VisionFacts>,
}

/// One row of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRow {
    pub seq: SeqId,
    /// Of an image's row: that of the image.
    pub pos: Pos,
    pub item: PromptItem,
    /// Are logits wanted for this row.
    pub output: bool,
}

/// One row of a pass of the MTP head: what follows `token`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftRow {
    pub seq: SeqId,
    /// The next position of the sequence, for its last token, which no step has processed yet; or
    /// the position after that of the sequence's row in the last pass, for the token that was
    /// proposed there.
    pub pos: Pos,
    pub token: Token,
}

/// What `save` copied out of a sequence. The bytes mean nothing to anybody but a runner of the same
/// model and settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Recurrent state, the hidden state that the MTP head goes on from, and the position.
    pub point: StateBytes,
    /// Attention rows, the MTP head's too; empty where none were asked for.
    pub rows: StateBytes,
}

/// Attention rows that `save` gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedRows<'a> {
    pub bytes: &'a [u8],
    /// Position of their first row.
    pub start: Pos,
    /// Positions `from..to` of them are wanted.
    pub from: Pos,
    pub to: Pos,
}

/// How a sequence comes to a saved state: rows that another holds, then saved rows, then the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restore<'a> {
    pub seq: SeqId,
    /// Has the rows of positions `0..kept`, and is left as it is; may be `seq` itself. No position
    /// here lies inside an image.
    pub donor: SeqId,
    pub kept: Pos,
    /// Positions `kept..end` without a gap, in order.
    pub rows: &'a [SavedRows<'a>],
    pub point: &'a [u8],
    /// Position after the last row.
    pub end: Pos,
}

/// Owned and called by the engine thread alone. Rows of one sequence are contiguous and in position
/// order.
pub trait ModelRunner {
    fn facts(&self) -> &RunnerFacts;

    /// What the vision encoder makes of an image, `image.grid` rows. An error that is not
    /// `Fatal` changes nothing.
    fn encode(&mut self, image: &Image) -> Result<Embedding, RunnerError>;

    /// As `step_with_images`, of tokens alone.
    fn step(&mut self, rows: &[BatchRow]) -> Result<(), RunnerError> {
        self.step_with_images(rows, &EncoderCache::EMPTY)
    }

    /// Processes the rows, maybe beyond its return (`wait`); those of images are in `encoder_cache`. On
    /// `Err` with `RunnerErrorKind::NoRoom` or `InvalidBatch` nothing was changed; after any other
    /// error the state of the sequences in the batch is unknown and they must be cleared.
    fn step_with_images(&mut self, rows: &[BatchRow], encoder_cache: &EncoderCache) -> Result<(), RunnerError>;

    /// Returns when the last step is over. Any other call waits, too; a runner that computes in
    /// `step` has nothing to do.
    fn wait(&mut self) {}

    /// Logits of row `row` of the last successful step (a row with `output`): `n_vocab` floats,
    /// valid until the next call.
    fn logits(&mut self, row: usize) -> Result<&[f32], RunnerError>;

    /// One pass of the MTP head, at most one row a sequence. What it leaves behind is dropped with
    /// the next `step`. An error that is not `Fatal` changes nothing but that there is no draft.
    fn draft(&mut self, rows: &[DraftRow]) -> Result<(), RunnerError>;

    /// What the head proposes at row `row` of the last successful `draft`: `n_vocab` floats, valid
    /// until the next call.
    fn draft_logits(&mut self, row: usize) -> Result<&[f32], RunnerError>;

    /// Cuts `seq` so that positions `>= from` are gone. `Ok(false)`: this memory cannot do it (a
    /// recurrent state has no such snapshot) and nothing was changed. `from == 0` always succeeds.
    fn truncate(&mut self, seq: SeqId, from: Pos) -> Result<bool, RunnerError>;

    /// Copies out what `seq` holds: its state at its end, and its attention rows from position
    /// `from` on; neither lies inside an image. The sequence goes on as if nothing had happened.
    /// An error that is not `Fatal` changes nothing.
    fn save(&mut self, seq: SeqId, from: Pos) -> Result<Saved, RunnerError>;

    /// Puts a sequence into a state that was saved: all of it, or, after an error that is not
    /// `Fatal`, none: then `seq` is empty.
    fn restore(&mut self, restore: &Restore<'_>) -> Result<(), RunnerError>;

    /// Empties `seq`.
    fn clear(&mut self, seq: SeqId) {
        let _ = self.truncate(seq, Pos(0));
    }
}

/// A model that is ready to run, made on the engine thread.
pub struct Loaded {
    pub runner: Box<dyn ModelRunner>,
    pub tokenizer: Tokenizer,
}
