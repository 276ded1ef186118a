//! The scripted model: how a test makes one, and the rules that it keeps.

use std::collections::VecDeque;
use std::sync::mpsc as gate_channel;

use tokio::sync::mpsc;

use super::answers::{Answers, answer_row, answer_text, answering, find_answer};
use super::calls::{Call, Calls, Fault, Gate};
use super::rows::{FakeSequence, encoded, follows, state_of};
use super::script::{END_OF_TEXT, IM_END, N_VOCAB, Next, POINT_BYTES, Script, error, peaked};
use crate::engine::request::error::{RunnerError, RunnerErrorKind};
use crate::engine::runner::{BatchRow, Loaded, RunnerFacts};
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::engine::vision::image::{Embedding, Image, VisionFacts};
use crate::text::{Specials, Tokenizer};
use crate::units::Token;

pub(super) enum Behaviour {
    Function(Script),
    /// (what the prompt contains, the answer); the first that fits.
    Answers(Box<Answers>),
}

/// The scripted model.
pub struct FakeRunner {
    pub(super) facts: RunnerFacts,
    /// Tokens that really fit, where that is fewer than `facts.n_ctx`.
    pub(super) n_cells: Option<usize>,
    /// Refuses every truncation although it is not hybrid, as a sliding window does.
    pub(super) never_cuts: bool,
    pub(super) tokenizer: Tokenizer,
    pub(super) behaviour: Behaviour,
    /// What the MTP head proposes, from everything that the sequence holds and what was drafted.
    pub(super) head: Option<Script>,
    pub(super) sequences: Vec<FakeSequence>,
    /// The last prompts: a sequence that was cleared and comes back with its generation so far is
    /// recognised by them.
    pub(super) prompts: VecDeque<Vec<Token>>,
    /// Logits by row of the last step; empty where no output was asked.
    pub(super) logits: Vec<Vec<f32>>,
    pub(super) draft_logits: Vec<Vec<f32>>,
    pub(super) n_steps: u64,
    pub(super) faults: VecDeque<(u64, Fault)>,
    pub(super) calls: Option<mpsc::UnboundedSender<Call>>,
    pub(super) gate: Option<gate_channel::Receiver<()>>,
    pub(super) encode_gate: Option<gate_channel::Receiver<()>>,
    pub(super) n_encoded: u64,
    /// (which encoding, counted from 1; what it fails with)
    pub(super) encode_fault: Option<(u64, RunnerErrorKind)>,
}

impl FakeRunner {
    /// Answers every prompt with `text`, then `<|im_end|>`. Special tokens in `text` are produced
    /// as such. When `<|im_end|>` is banned, the answer starts again.
    pub fn saying(text: &str) -> FakeRunner {
        FakeRunner::scripted(vec![(String::new(), text.to_owned())])
    }

    /// Pairs of (what the prompt contains, the answer): the first that fits is given. A prompt that
    /// fits none gets an empty answer.
    pub fn scripted(answers: Vec<(String, String)>) -> FakeRunner {
        let tokenizer = Tokenizer::bytes_for_tests();
        let encode = |text: String| tokenizer.encode(&text, Specials::Parse).expect("bytes always encode");
        FakeRunner::with_behaviour(Behaviour::Answers(
            answers.into_iter().map(|(key, text)| (key, encode(text))).collect(),
        ))
    }

    /// Asks `script` for every output row with the tokens up to and including that row's.
    pub fn function(script: impl FnMut(&[Token]) -> Next + Send + 'static) -> FakeRunner {
        FakeRunner::with_behaviour(Behaviour::Function(Box::new(script)))
    }

    fn with_behaviour(behaviour: Behaviour) -> FakeRunner {
        let facts = RunnerFacts {
            n_vocab: N_VOCAB,
            n_ctx: 4096,
            n_seq_max: 4,
            n_batch: 512,
            n_ubatch: 128,
            n_outputs_max: 16,
            hybrid: false,
            rollback_max: 0,
            n_outputs_seq: 1,
            mtp: false,
            steady_width: false,
            asynchronous: false,
            point_bytes: Some(POINT_BYTES as u64),
            eog: vec![IM_END, END_OF_TEXT],
            vision: None,
        };
        FakeRunner {
            sequences: Vec::new(),
            facts,
            n_cells: None,
            never_cuts: false,
            tokenizer: Tokenizer::bytes_for_tests(),
            behaviour,
            head: None,
            prompts: VecDeque::new(),
            logits: Vec::new(),
            draft_logits: Vec::new(),
            n_steps: 0,
            faults: VecDeque::new(),
            calls: None,
            gate: None,
            encode_gate: None,
            n_encoded: 0,
            encode_fault: None,
        }
    }

    /// Changes the facts (by default 4 sequences over 4096 tokens, batches of 512, not hybrid).
    pub fn with_facts(mut self, change: impl FnOnce(&mut RunnerFacts)) -> FakeRunner {
        change(&mut self.facts);
        self
    }

    /// Takes drafts of up to `n` tokens a sequence and rolls them back, as a hybrid model does.
    pub fn verifying(mut self, n: usize) -> FakeRunner {
        self.facts.hybrid = true;
        self.facts.rollback_max = n;
        self.facts.n_outputs_seq = n + 1;
        self.facts.n_outputs_max = self.facts.n_seq_max * (n + 1);
        self
    }

    /// Has an MTP head that proposes what `head` says of all tokens so far, drafted ones included.
    pub fn drafting(mut self, head: impl FnMut(&[Token]) -> Next + Send + 'static) -> FakeRunner {
        self.facts.mtp = true;
        self.head = Some(Box::new(head));
        self
    }

    /// Sees images of up to `max_tokens` tokens; a script finds each row as `token_of` it.
    pub fn with_vision(mut self, max_tokens: u32) -> FakeRunner {
        self.facts.vision = Some(VisionFacts { token_px: 32, min_tokens: 1, max_tokens });
        self
    }

    /// Fails at image `n`, counted from 1.
    pub fn with_encode_fault(mut self, n: u64, kind: RunnerErrorKind) -> FakeRunner {
        self.encode_fault = Some((n, kind));
        self
    }

    /// Makes every encoding of an image wait for a ticket.
    pub fn encode_gated(mut self) -> (FakeRunner, Gate) {
        let (tickets, gate) = gate_channel::channel();
        self.encode_gate = Some(gate);
        (self, Gate { tickets })
    }

    /// Has room for fewer tokens than the facts say, as a cache whose cells are handed out in
    /// blocks.
    pub fn with_cells(mut self, n_cells: usize) -> FakeRunner {
        self.n_cells = Some(n_cells);
        self
    }

    /// Refuses every truncation, without being hybrid: as a sliding window that has lost the tokens
    /// before it.
    pub fn never_cutting(mut self) -> FakeRunner {
        self.never_cuts = true;
        self
    }

    /// Puts `fault` in the place of step `step`, counted from 1. Faults are given in ascending
    /// order of their steps.
    pub fn with_fault(mut self, step: u64, fault: Fault) -> FakeRunner {
        self.faults.push_back((step, fault));
        self
    }

    /// With the tokenizer that it speaks, ready for `Engine::spawn`.
    pub fn loaded(self) -> Loaded {
        Loaded { tokenizer: self.tokenizer.clone(), runner: Box::new(self) }
    }

    /// Records every call.
    pub fn recorded(mut self) -> (FakeRunner, Calls) {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.calls = Some(sender);
        (self, Calls { receiver })
    }

    /// Makes every step wait for a ticket.
    pub fn gated(mut self) -> (FakeRunner, Gate) {
        let (tickets, gate) = gate_channel::channel();
        self.gate = Some(gate);
        (self, Gate { tickets })
    }

    pub(super) fn record(&self, call: impl FnOnce() -> Call) {
        if let Some(calls) = &self.calls {
            // A test that stopped reading does not mind.
            let _ = calls.send(call());
        }
    }

    pub(super) fn n_fill(&self) -> usize {
        self.sequences.iter().map(|s| s.rows.len()).sum()
    }

    pub(super) fn take_fault(&mut self) -> Result<(), RunnerError> {
        match self.faults.front() {
            Some(&(step, fault)) if step <= self.n_steps => {
                self.faults.pop_front();
                match fault {
                    Fault::Panic => panic!("fault injected at step {}", self.n_steps),
                    Fault::Error(kind) => Err(error(kind)),
                }
            }
            _ => Ok(()),
        }
    }

    /// Rules that only a faulty engine breaks.
    pub(super) fn check(&self, rows: &[BatchRow]) {
        let facts = &self.facts;
        assert!(!rows.is_empty(), "contract: empty batch");
        assert!(rows.len() <= facts.n_batch, "contract: {} rows, n_batch is {}", rows.len(), facts.n_batch);
        let n_outputs = rows.iter().filter(|r| r.output).count();
        assert!(n_outputs <= facts.n_outputs_max, "contract: {n_outputs} outputs, at most {}", facts.n_outputs_max);
        for run in rows.chunk_by(|a, b| a.seq == b.seq) {
            let n_outputs = run.iter().filter(|r| r.output).count();
            assert!(n_outputs <= facts.n_outputs_seq, "contract: {n_outputs} outputs of sequence {}", run[0].seq.0);
        }
        let mut seen = vec![None::<u32>; facts.n_seq_max];
        for (i, row) in rows.iter().enumerate() {
            let s = row.seq.0 as usize;
            assert!(s < facts.n_seq_max, "contract: sequence {s} of {}", facts.n_seq_max);
            let unknown = self.sequences.get(s).is_some_and(|sequence| sequence.unknown);
            assert!(!unknown, "contract: sequence {s} was not cleared after a failed step");
            let goes_on = i > 0 && rows[i - 1].seq == row.seq;
            assert!(goes_on || seen[s].is_none(), "contract: rows of sequence {s} are not contiguous");
            let expected = seen[s].unwrap_or(self.held(s));
            assert_eq!(row.pos.0, expected, "contract: position of sequence {s} at row {i}");
            let before = if goes_on { Some(rows[i - 1].item) } else { None };
            assert!(!goes_on || follows(before, row.item), "contract: an image of sequence {s} is not whole");
            seen[s] = Some(expected + row.item.n_pos() as u32);
        }
    }

    pub(super) fn held(&self, seq: usize) -> u32 {
        self.sequences.get(seq).map_or(0, FakeSequence::next)
    }

    pub(super) fn encode_once(&mut self, image: &Image) -> Result<Embedding, RunnerError> {
        self.record(|| Call::Encode(image.key));
        assert!(self.facts.vision.is_some(), "contract: an image, and no vision encoder");
        self.n_encoded += 1;
        if let Some(gate) = &self.encode_gate
            && gate.recv().is_err()
        {
            self.encode_gate = None;
        }
        match self.encode_fault {
            Some((n, kind)) if n == self.n_encoded => Err(error(kind)),
            _ => Ok(encoded(image)),
        }
    }

    pub(super) fn take_row(&mut self, row: BatchRow, encoder_cache: &EncoderCache) -> Vec<f32> {
        let sequence = &mut self.sequences[row.seq.0 as usize];
        let right = !sequence.restored || sequence.state == state_of(&sequence.rows);
        sequence.restored = false;
        assert!(right, "contract: the state of sequence {} does not belong to its rows", row.seq.0);
        sequence.cut = false;
        sequence.fresh_rows += 1;
        sequence.push(row.item, row.pos.0, encoder_cache);
        if !row.output {
            return Vec::new();
        }
        match &mut self.behaviour {
            Behaviour::Function(script) => match script(&sequence.tokens()) {
                Next::Token(token) => peaked(token, None),
                Next::Row(row) => row,
            },
            Behaviour::Answers(answers) => {
                let find = |prompt: &[Token]| find_answer(&self.tokenizer, answers, prompt);
                let (n_prompt, answer) = answering(&mut self.prompts, answers, find, sequence);
                sequence.answering = Some((n_prompt, answer));
                answer_row(answer_text(answers, answer), sequence.rows.len() - n_prompt)
            }
        }
    }
}
