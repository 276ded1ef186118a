//! `LlamaRunner`: the seam `ModelRunner` over llama.cpp.
//!
//! Everything that llama.cpp would answer with an assertion (too many rows, unknown ids) is refused here first, so that a
//! mistake of the engine costs a request and not the process.

#![expect(unsafe_code, reason = "takes the context apart into its batch and memory")]

use std::sync::Arc;

use super::batch::Batch;
use super::context::{Context, ContextOptions, MemoryUse};
use super::error::LoadError;
use super::ffi;
use super::memory::Memory;
use super::model::Model;
use super::mtp::MtpHead;
use crate::config::EngineConfig;
use crate::engine::{BatchRow, DraftRow, ModelRunner, RunnerError, RunnerErrorKind, RunnerFacts};
use crate::units::{Bytes, Pos, SeqId};

const PROCESS: &str = "llama_process";
const DRAFT: &str = "llama_process of the MTP head";

/// One context with its batch, memory and MTP head. Fields are dropped in this order: the context last.
pub struct LlamaRunner {
    batch: Batch,
    memory: Memory,
    mtp: Option<MtpHead>,
    /// Which rows of the last successful step have logits.
    outputs: Vec<bool>,
    facts: RunnerFacts,
    context: Context,
}

// SAFETY: batch and memory belong to the context in the same value and move with it; one thread has them at a time.
unsafe impl Send for LlamaRunner {}

impl LlamaRunner {
    pub fn new(model: Arc<Model>, config: &EngineConfig, options: ContextOptions) -> Result<LlamaRunner, LoadError> {
        let mut context = Context::new(model, config, options)?;
        // SAFETY: batch and memory are kept beside the context and dropped before it; `parts` is called once.
        let (batch, memory) = unsafe { context.parts() }.ok_or_else(|| LoadError::Context {
            tried: "batch and memory".to_owned(),
            reason: "the model has no memory: it does not generate".to_owned(),
        })?;
        // SAFETY: the head is kept beside the context and dropped before it.
        let head = |cache| unsafe { MtpHead::new(&context, config, cache) };
        let mtp = options.mtp.map(head).transpose()?;
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
            eog: vocab.eog.clone(),
        };
        Ok(LlamaRunner { batch, memory, mtp, outputs: Vec::new(), facts, context })
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

    fn acceptable(&self, rows: &[BatchRow]) -> bool {
        let n_outputs = rows.iter().filter(|row| row.output).count();
        !rows.is_empty()
            && rows.len() <= self.facts.n_batch
            && n_outputs <= self.facts.n_outputs_max
            && rows.iter().all(|row| row.token.index() < self.facts.n_vocab)
            && self.memory.books().continues(rows)
    }
}

impl ModelRunner for LlamaRunner {
    fn facts(&self) -> &RunnerFacts {
        &self.facts
    }

    fn step(&mut self, rows: &[BatchRow]) -> Result<(), RunnerError> {
        self.outputs.clear();
        if !self.acceptable(rows) || !self.batch.fill(rows) {
            return Err(RunnerError { call: PROCESS, kind: RunnerErrorKind::InvalidBatch, code: None });
        }
        if let Some(head) = &mut self.mtp {
            head.prepare();
        }
        let code = self.context.process(&mut self.batch);
        let Some(kind) = failure(code) else {
            self.memory.stepped(rows);
            if let Some(head) = &mut self.mtp {
                head.observe(rows, &mut self.context);
            }
            self.outputs.extend(rows.iter().map(|row| row.output));
            return Ok(());
        };
        if !matches!(kind, RunnerErrorKind::NoRoom | RunnerErrorKind::InvalidBatch) {
            self.memory.lost(rows);
        }
        Err(RunnerError { call: PROCESS, kind, code: Some(code) })
    }

    fn logits(&mut self, row: usize) -> Result<&[f32], RunnerError> {
        let invalid = RunnerError { call: "llama_get_logits_ith", kind: RunnerErrorKind::InvalidBatch, code: None };
        if self.outputs.get(row) != Some(&true) {
            return Err(invalid);
        }
        self.context.logits(row).ok_or(invalid)
    }

    fn draft(&mut self, rows: &[DraftRow]) -> Result<(), RunnerError> {
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
        if self.memory.books().next(seq).is_none() {
            return Err(RunnerError { call: "llama_memory_seq_rm", kind: RunnerErrorKind::InvalidBatch, code: None });
        }
        let cut = self.memory.truncate(seq, from);
        if let Some(head) = self.mtp.as_mut().filter(|_| cut) {
            head.truncate(seq, from);
        }
        Ok(cut)
    }
}

/// What a code of llama_process means (llama.h at llama_decode); below -1 the code tells where it failed: -2 where a buffer
/// could not be had, -3 in the computation.
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
