//! `LlamaRunner`: the seam `ModelRunner` over llama.cpp.
//!
//! Everything that llama.cpp would answer with an assertion (too many rows, unknown ids) is refused
//! here first, so that a mistake of the engine costs a request and not the process.

use std::sync::Arc;

use super::batch::Batch;
use super::context::{Context, ContextOptions, MemoryUse, Parts};
use super::error::LoadError;
use super::ffi;
use super::memory::Memory;
use super::model::Model;
use super::mtp::MtpHead;
use super::pinned::{PinnedMemory, Source};
use super::state::{Extent, Joined, StateError, joined_bytes, split};
use super::vision::Vision;
use crate::config::EngineConfig;
use crate::engine::{
    BatchRow, DraftRow, Embedding, EncoderCache, Image, ModelRunner, PromptItem, Restore, RunnerError, RunnerErrorKind,
    RunnerFacts, Saved, StateBytes,
};
use crate::units::{Bytes, Pos, SeqId};

const PROCESS: &str = "llama_process";
/// What a saved point has besides the recurrent state: positions and a hidden state.
const POINT_MARGIN: usize = 1 << 16;
const DRAFT: &str = "llama_process of the MTP head";

/// One context with its batch, memory and MTP head. It stays on the thread that made it: the
/// compiler sees to that.
pub struct LlamaRunner {
    batch: Batch,
    memory: Memory,
    mtp: Option<MtpHead>,
    vision: Option<Vision>,
    /// Which rows of the last successful step have logits.
    outputs: Vec<bool>,
    /// Rows of a step that may still be computed, which the MTP head has not seen.
    running: Vec<BatchRow>,
    facts: RunnerFacts,
    /// Where saved states go; without a GPU into ordinary memory.
    pinned: Option<PinnedMemory>,
    context: Context,
}

impl LlamaRunner {
    pub fn new(model: Arc<Model>, config: &EngineConfig, options: ContextOptions) -> Result<LlamaRunner, LoadError> {
        let Parts { mut context, batch, memory } = Context::open(model, config, options)?;
        let mtp = options.mtp.map(|cache| MtpHead::new(&context, config, cache)).transpose()?;
        let recurrent = context.model().facts().recurrent.map_or(0, |r| (r.conv_bytes + r.state_bytes).0);
        let point_bytes = context.saves_states().then_some(recurrent);
        let vocab = context.model().vocab();
        let facts = RunnerFacts {
            n_vocab: vocab.tokens.len(),
            n_ctx: context.n_ctx(),
            n_seq_max: context.n_seq_max(),
            n_batch: context.n_batch(),
            n_ubatch: context.n_ubatch(),
            n_outputs_max: context.n_seq_max() * options.outputs_per_sequence as usize,
            hybrid: context.model().is_recurrent(),
            rollback_max: context.rollback_tokens() as usize,
            n_outputs_seq: options.outputs_per_sequence as usize,
            mtp: mtp.is_some(),
            steady_width: context.is_on_device(),
            asynchronous: context.is_on_device(),
            point_bytes,
            eog: vocab.eog.clone(),
            vision: None,
        };
        // A point is the recurrent state and some rows of floats.
        let expected = [recurrent as usize + POINT_MARGIN];
        let pinned = if context.is_on_device() { PinnedMemory::start(Source::of_gpu(), &expected) } else { None };
        let (outputs, running) = (Vec::new(), Vec::new());
        Ok(LlamaRunner { batch, memory, mtp, vision: None, outputs, running, facts, pinned, context })
    }

    /// With vision encoder for the same model.
    pub fn with_vision(mut self, vision: Vision) -> LlamaRunner {
        self.facts.vision = Some(vision.facts().clone());
        self.vision = Some(vision);
        self
    }

    /// What model and context take now, by kind of memory.
    pub fn memory_use(&self) -> Vec<MemoryUse> {
        let mut all = self.context.memory_use();
        for row in self.mtp_memory_use() {
            // Both contexts share the weights.
            let row = MemoryUse { model: Bytes(0), ..row };
            match all.iter_mut().find(|known| known.buffer == row.buffer) {
                Some(known) => {
                    known.context = known.context + row.context;
                    known.compute = known.compute + row.compute;
                }
                None => all.push(row),
            }
        }
        all
    }

    /// What the MTP head's context takes, by kind of memory; empty without one.
    pub fn mtp_memory_use(&self) -> Vec<MemoryUse> {
        self.mtp.as_ref().map(|head| head.context().memory_use()).unwrap_or_default()
    }

    /// Tokens by which `truncate` can roll a recurrent state back right after a step.
    pub fn rollback_tokens(&self) -> u32 {
        self.context.rollback_tokens()
    }

    /// Is the token one of the vocabulary; images need vision encoder.
    fn known(&self, item: PromptItem) -> bool {
        match item {
            PromptItem::Token(token) => token.index() < self.facts.n_vocab,
            PromptItem::Image(_) => self.vision.is_some(),
        }
    }

    fn acceptable(&self, rows: &[BatchRow]) -> bool {
        let n_outputs = rows.iter().filter(|row| row.output).count();
        !rows.is_empty()
            && rows.len() <= self.facts.n_batch
            && n_outputs <= self.facts.n_outputs_max
            && rows.iter().all(|row| self.known(row.item))
            && self.memory.tracker().continues(rows)
    }
}

impl ModelRunner for LlamaRunner {
    fn facts(&self) -> &RunnerFacts {
        &self.facts
    }

    fn encode(&mut self, image: &Image) -> Result<Embedding, RunnerError> {
        let blind = RunnerError { call: "encoding an image", kind: RunnerErrorKind::InvalidBatch, code: None };
        self.vision.as_mut().ok_or(blind)?.encode(image)
    }

    fn step_with_images(&mut self, rows: &[BatchRow], encoder_cache: &EncoderCache) -> Result<(), RunnerError> {
        self.wait();
        self.outputs.clear();
        if !self.acceptable(rows) || !self.batch.fill(rows, encoder_cache) {
            return Err(RunnerError { call: PROCESS, kind: RunnerErrorKind::InvalidBatch, code: None });
        }
        if let Some(head) = &mut self.mtp {
            head.prepare();
        }
        let code = self.context.process(&mut self.batch);
        let Some(kind) = failure(code) else {
            self.memory.stepped(rows);
            self.running.extend_from_slice(rows);
            self.outputs.extend(rows.iter().map(|row| row.output));
            return Ok(());
        };
        if !matches!(kind, RunnerErrorKind::NoRoom | RunnerErrorKind::InvalidBatch) {
            self.memory.lost(rows);
        }
        Err(RunnerError { call: PROCESS, kind, code: Some(code) })
    }

    fn wait(&mut self) {
        if self.running.is_empty() {
            return;
        }
        self.context.wait();
        if let Some(head) = &mut self.mtp {
            head.observe(&self.running, &mut self.context);
        }
        self.running.clear();
    }

    fn logits(&mut self, row: usize) -> Result<&[f32], RunnerError> {
        self.wait();
        let invalid = RunnerError { call: "llama_get_logits_ith", kind: RunnerErrorKind::InvalidBatch, code: None };
        if self.outputs.get(row) != Some(&true) {
            return Err(invalid);
        }
        self.context.logits(row).ok_or(invalid)
    }

    fn draft(&mut self, rows: &[DraftRow]) -> Result<(), RunnerError> {
        self.wait();
        let known = |row: &DraftRow| row.token.index() < self.facts.n_vocab;
        let code = match &mut self.mtp {
            Some(head) if !rows.is_empty() && rows.iter().all(known) => head.draft(rows),
            _ => -1,
        };
        failure(code).map_or(Ok(()), |kind| Err(RunnerError { call: DRAFT, kind, code: Some(code) }))
    }

    fn draft_logits(&mut self, row: usize) -> Result<&[f32], RunnerError> {
        let missing = RunnerError { call: DRAFT, kind: RunnerErrorKind::InvalidBatch, code: None };
        self.mtp.as_mut().and_then(|head| head.logits(row)).ok_or(missing)
    }

    fn truncate(&mut self, seq: SeqId, from: Pos) -> Result<bool, RunnerError> {
        self.wait();
        if self.memory.tracker().next(seq).is_none() {
            return Err(RunnerError { call: "llama_memory_seq_rm", kind: RunnerErrorKind::InvalidBatch, code: None });
        }
        let cut = self.memory.truncate(seq, from);
        if let Some(head) = self.mtp.as_mut().filter(|_| cut) {
            head.truncate(seq, from);
        }
        Ok(cut)
    }

    fn save(&mut self, seq: SeqId, from: Pos) -> Result<Saved, RunnerError> {
        self.wait();
        let tracker = self.memory.tracker();
        let end = tracker.next(seq).filter(|end| from <= *end && end.0 > 0 && tracker.is_whole(seq));
        let Some(end) = end.filter(|_| self.facts.point_bytes.is_some()) else { return Err(refused(SAVE)) };
        self.copy_out(seq, from, end).map_err(|error| state_error(SAVE, error))
    }

    fn restore(&mut self, restore: &Restore<'_>) -> Result<(), RunnerError> {
        self.wait();
        let known = |seq: SeqId| self.memory.tracker().next(seq);
        let held = known(restore.donor).is_some_and(|end| restore.kept <= end && end.0 < u32::MAX);
        if known(restore.seq).is_none() || !held || self.facts.point_bytes.is_none() {
            self.clear(restore.seq);
            return Err(refused(RESTORE));
        }
        let outcome = self.put_back(restore);
        if outcome.is_ok() {
            self.memory.restored(restore.seq, restore.end);
            return Ok(());
        }
        self.clear(restore.seq);
        outcome.map_err(|error| state_error(RESTORE, error))
    }
}

const SAVE: &str = "saving a state";
const RESTORE: &str = "restoring a state";

impl LlamaRunner {
    fn copy_out(&mut self, seq: SeqId, from: Pos, end: Pos) -> Result<Saved, StateError> {
        let (hidden, head_extent) = match &mut self.mtp {
            Some(head) => head.save(seq, end)?,
            None => (Vec::new(), None),
        };
        let extent = self.context.extent(seq)?;
        if !extent.is_whole(end) {
            return Err(StateError(-1));
        }
        let places = places(end, extent, head_extent);
        let n_recurrent = self.context.recurrent_bytes(seq)?;
        let mut point = self.memory_for(joined_bytes([places.len(), n_recurrent, hidden.len()]));
        let mut out = Joined::new(point.bytes_mut());
        out.append(&places)?;
        self.context.save_recurrent(seq, out.part(n_recurrent)?)?;
        out.append(&hidden)?;
        out.finish()?;
        let rows = if from < end { self.rows_out(seq, from, end)? } else { StateBytes::default() };
        Ok(Saved { point, rows })
    }

    fn rows_out(&mut self, seq: SeqId, from: Pos, end: Pos) -> Result<StateBytes, StateError> {
        let n_trunk = self.context.rows_bytes(seq, from, end)?;
        let n_head = match &mut self.mtp {
            Some(head) => head.context_mut().rows_bytes(seq, from, end)?,
            None => 0,
        };
        let mut rows = self.memory_for(joined_bytes([n_trunk, n_head]));
        let mut out = Joined::new(rows.bytes_mut());
        self.context.save_rows(seq, from, end, out.part(n_trunk)?)?;
        let head_rows = out.part(n_head)?;
        if let Some(head) = &mut self.mtp {
            head.context_mut().save_rows(seq, from, end, head_rows)?;
        }
        out.finish()?;
        Ok(rows)
    }

    fn memory_for(&mut self, n_bytes: usize) -> StateBytes {
        match &mut self.pinned {
            Some(pinned) => pinned.take(n_bytes),
            None => StateBytes::zeros(n_bytes),
        }
    }

    /// All of the state or an error: then the caller empties the sequence.
    fn put_back(&mut self, restore: &Restore<'_>) -> Result<(), StateError> {
        let &Restore { seq, donor, kept, rows, point, end } = restore;
        let wrong = StateError(-1);
        let [at, recurrent, hidden] = split(point).ok_or(wrong)?;
        if !at.starts_with(&end.0.to_le_bytes()) {
            return Err(wrong);
        }
        if let Some(head) = &mut self.mtp {
            head.settle(donor.0 as usize);
            head.settle(seq.0 as usize);
            head.context_mut().take_rows(donor, seq, kept)?;
        }
        self.context.take_rows(donor, seq, kept)?;
        let mut next = kept;
        for part in rows {
            let [trunk, head_rows] = split(part.bytes).ok_or(wrong)?;
            if part.from != next {
                return Err(wrong);
            }
            next = part.to;
            self.context.restore_rows(seq, part.from, part.to, trunk)?;
            if let Some(head) = &mut self.mtp {
                head.context_mut().restore_rows(seq, part.from, part.to, head_rows)?;
            }
        }
        self.context.restore_recurrent(seq, recurrent)?;
        let head_extent = match &mut self.mtp {
            Some(head) => {
                head.restored(seq, end, hidden)?;
                Some(head.context_mut().extent(seq)?)
            }
            None => None,
        };
        let extent = self.context.extent(seq)?;
        if next == end && at == places(end, extent, head_extent) { Ok(()) } else { Err(wrong) }
    }
}

/// Where a state ends, and where what the memories hold of it begins and ends: what must be there
/// again when it is put back.
fn places(end: Pos, trunk: Extent, head: Option<Extent>) -> Vec<u8> {
    let mut all = end.0.to_le_bytes().to_vec();
    all.extend(trunk.bytes());
    all.extend(head.into_iter().flat_map(Extent::bytes));
    all
}

fn refused(call: &'static str) -> RunnerError {
    RunnerError { call, kind: RunnerErrorKind::InvalidBatch, code: None }
}

/// No state error is fatal: what could not be put back is processed again.
fn state_error(call: &'static str, StateError(code): StateError) -> RunnerError {
    let kind = match code {
        ffi::GUARD_OUT_OF_MEMORY => RunnerErrorKind::OutOfMemory,
        _ => RunnerErrorKind::InvalidBatch,
    };
    RunnerError { call, kind, code: Some(code) }
}

/// What a code of llama_process means (llama.h at llama_decode); below -1 the code tells where it
/// failed: -2 where a buffer could not be had, -3 in the computation.
fn failure(code: i32) -> Option<RunnerErrorKind> {
    match code {
        0 => None,
        1 => Some(RunnerErrorKind::NoRoom),
        2 => Some(RunnerErrorKind::Aborted),
        -1 => Some(RunnerErrorKind::InvalidBatch),
        -2 | ffi::GUARD_OUT_OF_MEMORY => Some(RunnerErrorKind::OutOfMemory),
        _ => Some(RunnerErrorKind::Fatal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_llama_process() {
        assert_eq!(failure(0), None);
        assert_eq!(failure(1), Some(RunnerErrorKind::NoRoom));
        assert_eq!(failure(2), Some(RunnerErrorKind::Aborted));
        assert_eq!(failure(-1), Some(RunnerErrorKind::InvalidBatch));
        assert_eq!(failure(-2), Some(RunnerErrorKind::OutOfMemory));
        assert_eq!(failure(-3), Some(RunnerErrorKind::Fatal));
        assert_eq!(failure(ffi::GUARD_OUT_OF_MEMORY), Some(RunnerErrorKind::OutOfMemory));
        assert_eq!(failure(ffi::GUARD_EXCEPTION), Some(RunnerErrorKind::Fatal));
    }
}
