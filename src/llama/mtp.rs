//! The MTP head: guesses the tokens after the next one from the trunk's hidden states.
//!
//! Its layer has a KV cache of its own, in which the row of a token is made from that token and the
//! trunk's hidden state one position before it. So every row that the trunk has processed must
//! follow here; those that have not yet are the backlog of a sequence. It is processed with the
//! first pass of the next draft, whose weights are read anyway, or in one go when it has grown to
//! `BACKLOG_ROWS`: a sequence that does not draft costs little.
//!
//! Images are not for it: the head was trained on the text alone, so their rows are left out, and
//! the token after an image goes with the state behind the token before it. Positions have gaps
//! there, as the trunk's do.
//!
//! What a draft leaves in the cache beyond its first row was made from the head's own hidden
//! states, not the trunk's, and is dropped. Nothing here can change an answer, only how many drafts
//! are accepted; errors end the draft and no request.

use super::batch::Batch;
use super::context::{Context, MtpCache, Parts};
use super::error::LoadError;
use super::memory::Memory;
use super::state::{Extent, StateError};
use crate::config::EngineConfig;
use crate::engine::{BatchRow, DraftRow, PromptItem};
use crate::units::{Pos, SeqId, Token};

/// Rows that a sequence may have waiting before they are processed without a draft: an answer of
/// usual length that drafts nothing then costs nothing here. More would only make the first draft
/// after them slower (10 MiB of states in a 27B model).
const BACKLOG_ROWS: usize = 512;

pub(super) struct MtpHead {
    batch: Batch,
    memory: Memory,
    sequences: Vec<Tail>,
    /// Row in the batch of each row of the last draft.
    guesses: Vec<usize>,
    context: Context,
}

/// What the head has yet to see of a sequence.
struct Tail {
    /// Positions before it have their rows in the cache, or are images'.
    start: u32,
    /// Position after the last row that the trunk has processed.
    next: u32,
    /// The backlog, and the position of each.
    tokens: Vec<Token>,
    positions: Vec<u32>,
    /// The trunk's state before each of `tokens`, `n_embd` floats each.
    before: Vec<f32>,
    /// The trunk's state after the last row.
    last: Vec<f32>,
    /// The head's own state after its last guess.
    guess: Vec<f32>,
    /// Position after the last row of the draft that runs; `None`: none does.
    drafting: Option<u32>,
    /// The token that it began with, and its position.
    first: (Token, u32),
    /// The first token of the last draft: its row, after the backlog, is in the cache before the
    /// trunk has processed it.
    ahead: Option<(Token, u32)>,
    /// Rows of its past are missing: a state of it would be a lie.
    incomplete: bool,
}

impl Tail {
    fn new(n_embd: usize) -> Tail {
        let zeros = vec![0.0; n_embd];
        Tail {
            start: 0,
            next: 0,
            tokens: Vec::new(),
            positions: Vec::new(),
            before: Vec::new(),
            last: zeros.clone(),
            guess: zeros,
            drafting: None,
            first: (Token(0), 0),
            ahead: None,
            incomplete: false,
        }
    }

    /// All that the trunk has processed, up to `at`, is in the cache.
    fn at(n_embd: usize, at: u32) -> Tail {
        Tail { start: at, next: at, ..Tail::new(n_embd) }
    }

    /// The backlog is in the cache.
    fn caught_up(&mut self) {
        self.start = self.next;
        self.tokens.clear();
        self.positions.clear();
        self.before.clear();
    }

    /// Rows of the backlog with the state before each.
    fn backlog(&self, seq: SeqId) -> impl Iterator<Item = (BatchRow, &[f32])> {
        let row = move |(token, pos): (&Token, &u32)| BatchRow {
            seq,
            pos: Pos(*pos),
            item: PromptItem::Token(*token),
            output: false,
        };
        self.tokens.iter().zip(&self.positions).map(row).zip(self.before.chunks_exact(self.last.len()))
    }
}

impl MtpHead {
    pub(super) fn new(trunk: &Context, config: &EngineConfig, cache: MtpCache) -> Result<MtpHead, LoadError> {
        let Parts { context, batch, memory } = Context::open_mtp(trunk, config, cache)?;
        let n_embd = context.model().facts().n_embd as usize;
        let sequences = (0..context.n_seq_max()).map(|_| Tail::new(n_embd)).collect();
        Ok(MtpHead { batch, memory, sequences, guesses: Vec::new(), context })
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Before a step of the trunk: ends drafts and makes room in backlogs.
    pub(super) fn prepare(&mut self) {
        for seq in 0..self.sequences.len() {
            self.end_draft(seq);
            if self.sequences[seq].tokens.len() >= BACKLOG_ROWS {
                self.catch_up(seq);
            }
        }
    }

    /// After a step of the trunk: notes the rows for later.
    pub(super) fn observe(&mut self, rows: &[BatchRow], trunk: &mut Context) {
        for (index, row) in rows.iter().enumerate() {
            let seq = row.seq.0 as usize;
            let came = row.item.token().map(|token| (token, row.pos.0));
            if self.sequences.get(seq).is_some_and(|tail| tail.ahead.is_some() && tail.ahead != came) {
                self.drop_ahead(seq);
            }
            let Some(tail) = self.sequences.get_mut(seq) else { continue };
            tail.next = row.pos.0 + row.item.n_pos() as u32;
            if came.is_none() && tail.tokens.is_empty() {
                // Nothing waits, and there is nothing to process of an image.
                tail.start = tail.next;
            }
            let (Some((token, pos)), Some(hidden)) = (came, trunk.hidden(index)) else { continue };
            if tail.ahead.take().is_some() {
                tail.start = tail.next;
            } else {
                tail.tokens.push(token);
                tail.positions.push(pos);
                tail.before.extend_from_slice(&tail.last);
            }
            tail.last.copy_from_slice(hidden);
        }
    }

    /// The trunk forgot positions `>= from` of `seq`.
    pub(super) fn truncate(&mut self, seq: SeqId, from: Pos) {
        self.end_draft(seq.0 as usize);
        self.drop_ahead(seq.0 as usize);
        let Some(tail) = self.sequences.get_mut(seq.0 as usize) else { return };
        let n_embd = tail.last.len();
        if from.0 < tail.start {
            self.memory.truncate(seq, from);
            *tail = Tail { incomplete: tail.incomplete && from.0 > 0, ..Tail::at(n_embd, from.0) };
            return;
        }
        let n_kept = tail.positions.partition_point(|pos| *pos < from.0);
        tail.next = tail.next.min(from.0);
        if n_kept < tail.tokens.len() {
            // The state before the first row that goes is the state after the last one that stays.
            let before = &tail.before[n_kept * n_embd..][..n_embd];
            tail.last.copy_from_slice(before);
            tail.tokens.truncate(n_kept);
            tail.positions.truncate(n_kept);
            tail.before.truncate(n_kept * n_embd);
        }
        if from.0 == 0 {
            self.memory.truncate(seq, from);
            *tail = Tail::new(n_embd);
        }
    }

    /// One pass. llama.cpp's code, or the guard's; -1 where a row does not fit what was drafted
    /// before.
    pub(super) fn draft(&mut self, rows: &[DraftRow]) -> i32 {
        self.guesses.clear();
        let known = |row: &DraftRow| self.sequences.get(row.seq.0 as usize);
        let fits = |row: &DraftRow| known(row).is_some_and(|tail| row.pos.0 == tail.drafting.unwrap_or(tail.next));
        if !rows.iter().all(fits) {
            return -1;
        }
        for row in rows {
            self.drop_ahead(row.seq.0 as usize);
        }
        let n_backlog: usize = rows.iter().map(|row| self.sequences[row.seq.0 as usize].tokens.len()).sum();
        if n_backlog + rows.len() > self.context.n_batch() {
            rows.iter().for_each(|row| self.catch_up(row.seq.0 as usize));
        }
        self.batch.clear();
        let mut n_rows = 0;
        for row in rows {
            let Some(n) = self.push(row) else { return -1 };
            n_rows += n;
            self.guesses.push(n_rows - 1);
        }
        let code = self.context.process(&mut self.batch);
        if code != 0 {
            self.guesses.clear();
            rows.iter().for_each(|row| self.lost(row.seq.0 as usize));
            return code;
        }
        for (i, row) in rows.iter().enumerate() {
            self.drafted(row, self.guesses[i]);
        }
        0
    }

    /// What the head guesses at row `row` of the last pass.
    pub(super) fn logits(&mut self, row: usize) -> Option<&[f32]> {
        self.context.logits(*self.guesses.get(row)?)
    }

    /// Puts the row and, at the begin of a draft, the backlog of its sequence into the batch.
    /// Returns the number of rows.
    fn push(&mut self, row: &DraftRow) -> Option<usize> {
        let tail = &self.sequences[row.seq.0 as usize];
        let own = BatchRow { seq: row.seq, pos: row.pos, item: PromptItem::Token(row.token), output: true };
        if tail.drafting.is_some() {
            return self.batch.push(own, Some(&tail.guess)).then_some(1);
        }
        let pushed = tail.backlog(row.seq).all(|(row, before)| self.batch.push(row, Some(before)));
        let pushed = pushed && self.batch.push(own, Some(&tail.last));
        pushed.then_some(tail.tokens.len() + 1)
    }

    /// Books a row that was processed at `index` of the batch.
    fn drafted(&mut self, row: &DraftRow, index: usize) {
        let tail = &mut self.sequences[row.seq.0 as usize];
        if tail.drafting.is_none() {
            tail.caught_up();
            tail.first = (row.token, row.pos.0);
        }
        tail.drafting = Some(row.pos.0 + 1);
        match self.context.hidden(index) {
            Some(hidden) => tail.guess.copy_from_slice(hidden),
            None => tail.guess.fill(0.0),
        }
        self.memory.reached(row.seq, Pos(row.pos.0 + 1));
    }

    /// Drops what the draft of a sequence left behind, but for its first row, which is as good as
    /// any.
    fn end_draft(&mut self, seq: usize) {
        let Some(tail) = self.sequences.get_mut(seq) else { return };
        if tail.drafting.take().is_some() {
            tail.ahead = Some(tail.first);
            self.memory.truncate(SeqId(seq as u32), Pos(tail.first.1 + 1));
        }
    }

    /// The trunk does not process what a draft began with.
    fn drop_ahead(&mut self, seq: usize) {
        let Some(tail) = self.sequences.get_mut(seq) else { return };
        if let Some((_, pos)) = tail.ahead.take() {
            self.memory.truncate(SeqId(seq as u32), Pos(pos));
        }
    }

    /// Processes the backlog of a sequence, piece by piece.
    fn catch_up(&mut self, seq: usize) {
        let n_batch = self.context.n_batch();
        let id = SeqId(seq as u32);
        let mut n_done = 0;
        while n_done < self.sequences[seq].tokens.len() {
            self.batch.clear();
            let tail = &self.sequences[seq];
            let n_rows = n_batch.min(tail.tokens.len() - n_done);
            let pushed =
                tail.backlog(id).skip(n_done).take(n_rows).all(|(row, before)| self.batch.push(row, Some(before)));
            if !pushed || self.context.process(&mut self.batch) != 0 {
                return self.lost(seq);
            }
            n_done += n_rows;
            self.memory.reached(id, Pos(self.sequences[seq].positions[n_done - 1] + 1));
        }
        self.sequences[seq].caught_up();
    }

    /// Brings the head's cache up to the trunk's end `end`, so that its rows can be saved. Returns
    /// the hidden state that it goes on from, and where its rows lie.
    pub(super) fn save(&mut self, seq: SeqId, end: Pos) -> Result<(Vec<u8>, Option<Extent>), StateError> {
        self.settle(seq.0 as usize);
        let Some(tail) = self.sequences.get(seq.0 as usize) else { return Err(StateError(-1)) };
        let hidden = tail.last.iter().flat_map(|x| x.to_le_bytes()).collect();
        let extent = self.context.extent(seq)?;
        if tail.incomplete || tail.start != end.0 || !extent.is_whole(end) {
            return Err(StateError(-1));
        }
        Ok((hidden, Some(extent)))
    }

    /// A donor's rows must be there before they are shared.
    pub(super) fn settle(&mut self, seq: usize) {
        self.end_draft(seq);
        self.drop_ahead(seq);
        if self.sequences.get(seq).is_some_and(|tail| !tail.tokens.is_empty()) {
            self.catch_up(seq);
        }
    }

    pub(super) fn context_mut(&mut self) -> &mut Context {
        &mut self.context
    }

    /// The cache holds positions `0..end` again; the head goes on from `hidden`.
    pub(super) fn restored(&mut self, seq: SeqId, end: Pos, hidden: &[u8]) -> Result<(), StateError> {
        let Some(tail) = self.sequences.get_mut(seq.0 as usize) else { return Err(StateError(-1)) };
        let n_embd = tail.last.len();
        if hidden.len() != n_embd * 4 {
            return Err(StateError(-1));
        }
        *tail = Tail::at(n_embd, end.0);
        for (to, from) in tail.last.iter_mut().zip(hidden.chunks_exact(4)) {
            *to = f32::from_le_bytes([from[0], from[1], from[2], from[3]]);
        }
        self.memory.reached(seq, end);
        Ok(())
    }

    /// A pass failed: what the head knows of the sequence is unknown. It begins anew behind it,
    /// without its past: guesses get worse, nothing else.
    fn lost(&mut self, seq: usize) {
        tracing::debug!(seq, "the MTP head lost a sequence");
        self.memory.truncate(SeqId(seq as u32), Pos(0));
        let tail = &mut self.sequences[seq];
        tail.drafting = None;
        tail.ahead = None;
        tail.incomplete = true;
        tail.caught_up();
    }
}
