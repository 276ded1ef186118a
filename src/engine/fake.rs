//! A scripted model: the runner of all tests that need no weights.
//!
//! It keeps the contract of `ModelRunner` strictly. A broken rule of the caller (a gap in the positions, too many rows, two
//! cuts without a step between them) panics with its name, so a test sees the engine die of it; only what a real context
//! reports as an error is an error here. Its vocabulary is that of the byte tokenizer (`text::ByteCodec`). It has no weights
//! and no notion of time.

mod answers;
mod rows;
mod runner;

use std::collections::VecDeque;
use std::sync::mpsc as gate_channel;

use tokio::sync::mpsc;

use super::error::{RunnerError, RunnerErrorKind};
use super::gallery::Gallery;
use super::picture::{Embedding, Picture, PictureKey, VisionFacts};
use super::runner::{BatchRow, DraftRow, RunnerFacts};
use super::thread::Loaded;
use crate::text::{Specials, Tokenizer};
use crate::units::{Pos, SeqId, Token};
use answers::{Answers, answer_row, answer_text, answering, find_answer};
use rows::{FakeSequence, follows, state_of};

/// `<|im_end|>`: ends a generation.
pub const IM_END: Token = Token(257);
/// `<|endoftext|>`: ends a generation too.
pub const END_OF_TEXT: Token = Token(262);
/// Tokens of the byte tokenizer.
const N_VOCAB: usize = 266;

/// Bytes of a saved point.
const POINT_BYTES: usize = 24;

/// Rows of pictures are tokens from here on for a script; what they are depends on picture and place.
pub const PICTURES: u32 = 1 << 31;

pub use rows::token_of;

/// Logit of the token that a script chooses, and of its second choice; all others are 0.
const CHOSEN: f32 = 20.0;
const SECOND: f32 = 10.0;

/// What a script answers for one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The token with the highest logit; the rest are equal.
    Token(Token),
    /// The whole row, 266 floats.
    Row(Vec<f32>),
}

/// Decides the next token from everything that the sequence holds.
pub type Script = Box<dyn FnMut(&[Token]) -> Next + Send>;

enum Mind {
    Function(Script),
    /// (what the prompt contains, the answer); the first that fits.
    Answers(Box<Answers>),
}

/// What happens instead of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Error(RunnerErrorKind),
    Panic,
}

/// What the engine did to the model, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A step begins (a gated one then waits for its ticket).
    Step(Vec<BatchRow>),
    /// A cut from position `from`; 0 is a clear. `kept` is the runner's answer.
    Truncate { seq: SeqId, from: Pos, kept: bool },
    /// A pass of the MTP head.
    Draft(Vec<DraftRow>),
    /// A picture is encoded (behind a gate of its own it then waits for its ticket).
    Encode(PictureKey),
    /// A step found no free cells.
    NoRoom,
    /// A state was copied out, with the rows from position `from`.
    Save { seq: SeqId, from: Pos },
    /// A state was put back; positions `0..kept` were held already, by `donor`.
    Restore { seq: SeqId, donor: SeqId, kept: Pos, end: Pos },
}

/// Reads what the engine did. Calls are recorded only while this exists, without a bound: tests are short.
pub struct Calls {
    receiver: mpsc::UnboundedReceiver<Call>,
}

impl Calls {
    /// Waits for the next call; `None` when the runner is gone and all was read.
    pub async fn next(&mut self) -> Option<Call> {
        self.receiver.recv().await
    }
    /// Waits for the next step and gives its rows.
    pub async fn next_step(&mut self) -> Option<Vec<BatchRow>> {
        loop {
            if let Call::Step(rows) = self.next().await? {
                return Some(rows);
            }
        }
    }
    /// What was recorded so far and not read yet.
    pub fn drain(&mut self) -> Vec<Call> {
        std::iter::from_fn(|| self.receiver.try_recv().ok()).collect()
    }
}

/// Holds the runner at the beginning of every step until a ticket is given. Dropping it lets all steps run.
pub struct Gate {
    tickets: gate_channel::Sender<()>,
}

impl Gate {
    /// Lets `n` more steps run.
    pub fn allow(&self, n: usize) {
        for _ in 0..n {
            // The runner may be gone already: then there is nothing to let through.
            let _ = self.tickets.send(());
        }
    }
}

/// The scripted model.
pub struct FakeRunner {
    facts: RunnerFacts,
    /// Tokens that really fit, where that is fewer than `facts.n_ctx`.
    n_cells: Option<usize>,
    /// Refuses every cut although it is not hybrid, as a sliding window does.
    never_cuts: bool,
    tokenizer: Tokenizer,
    mind: Mind,
    /// What the MTP head guesses, from everything that the sequence holds and what was drafted.
    head: Option<Script>,
    sequences: Vec<FakeSequence>,
    /// The last prompts: a sequence that was cleared and comes back with its generation so far is recognised by them.
    prompts: VecDeque<Vec<Token>>,
    /// Logits by row of the last step; empty where no output was asked.
    logits: Vec<Vec<f32>>,
    draft_logits: Vec<Vec<f32>>,
    n_steps: u64,
    faults: VecDeque<(u64, Fault)>,
    calls: Option<mpsc::UnboundedSender<Call>>,
    gate: Option<gate_channel::Receiver<()>>,
    encode_gate: Option<gate_channel::Receiver<()>>,
    n_encoded: u64,
    /// (which encoding, counted from 1; what it fails with)
    encode_fault: Option<(u64, RunnerErrorKind)>,
}

impl FakeRunner {
    /// Answers every prompt with `text`, then `<|im_end|>`. Special tokens in `text` are produced as such. When
    /// `<|im_end|>` is banned, the answer starts again.
    pub fn saying(text: &str) -> FakeRunner {
        FakeRunner::scripted(vec![(String::new(), text.to_owned())])
    }

    /// Pairs of (what the prompt contains, the answer): the first that fits is given. A prompt that fits none gets an empty
    /// answer.
    pub fn scripted(answers: Vec<(String, String)>) -> FakeRunner {
        let tokenizer = Tokenizer::bytes_for_tests();
        let encode = |text: String| tokenizer.encode(&text, Specials::Parse).expect("bytes always encode");
        FakeRunner::with_mind(Mind::Answers(answers.into_iter().map(|(key, text)| (key, encode(text))).collect()))
    }

    /// Asks `script` for every output row with the tokens up to and including that row's.
    pub fn function(script: impl FnMut(&[Token]) -> Next + Send + 'static) -> FakeRunner {
        FakeRunner::with_mind(Mind::Function(Box::new(script)))
    }

    fn with_mind(mind: Mind) -> FakeRunner {
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
            mind,
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

    /// Has an MTP head that guesses what `head` says of all tokens so far, drafted ones included.
    pub fn drafting(mut self, head: impl FnMut(&[Token]) -> Next + Send + 'static) -> FakeRunner {
        self.facts.mtp = true;
        self.head = Some(Box::new(head));
        self
    }

    /// Sees pictures of up to `max_tokens` tokens; a script finds each row as `token_of` it.
    pub fn seeing(mut self, max_tokens: u32) -> FakeRunner {
        self.facts.vision = Some(VisionFacts { token_px: 32, min_tokens: 1, max_tokens });
        self
    }

    /// Fails at picture `n`, counted from 1.
    pub fn with_encode_fault(mut self, n: u64, kind: RunnerErrorKind) -> FakeRunner {
        self.encode_fault = Some((n, kind));
        self
    }

    /// Makes every encoding of a picture wait for a ticket.
    pub fn encode_gated(mut self) -> (FakeRunner, Gate) {
        let (tickets, gate) = gate_channel::channel();
        self.encode_gate = Some(gate);
        (self, Gate { tickets })
    }

    /// Has room for fewer tokens than the facts say, as a cache whose cells are handed out in blocks.
    pub fn with_cells(mut self, n_cells: usize) -> FakeRunner {
        self.n_cells = Some(n_cells);
        self
    }

    /// Refuses every cut, without being hybrid: as a sliding window that has lost the tokens before it.
    pub fn never_cutting(mut self) -> FakeRunner {
        self.never_cuts = true;
        self
    }

    /// Puts `fault` in the place of step `step`, counted from 1. Faults are given in ascending order of their steps.
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

    fn record(&self, call: impl FnOnce() -> Call) {
        if let Some(calls) = &self.calls {
            // A test that stopped reading does not mind.
            let _ = calls.send(call());
        }
    }

    fn n_fill(&self) -> usize {
        self.sequences.iter().map(|s| s.rows.len()).sum()
    }

    fn take_fault(&mut self) -> Result<(), RunnerError> {
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
    fn check(&self, rows: &[BatchRow]) {
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
            assert!(!goes_on || follows(before, row.item), "contract: a picture of sequence {s} is not whole");
            seen[s] = Some(expected + row.item.n_pos() as u32);
        }
    }

    fn held(&self, seq: usize) -> u32 {
        self.sequences.get(seq).map_or(0, FakeSequence::next)
    }

    fn encode_once(&mut self, picture: &Picture) -> Result<Embedding, RunnerError> {
        self.record(|| Call::Encode(picture.key));
        assert!(self.facts.vision.is_some(), "contract: a picture, and no eyes");
        self.n_encoded += 1;
        if let Some(gate) = &self.encode_gate
            && gate.recv().is_err()
        {
            self.encode_gate = None;
        }
        match self.encode_fault {
            Some((n, kind)) if n == self.n_encoded => Err(error(kind)),
            _ => Ok(rows::encoded(picture)),
        }
    }

    fn take_row(&mut self, row: BatchRow, gallery: &Gallery) -> Vec<f32> {
        let sequence = &mut self.sequences[row.seq.0 as usize];
        let right = !sequence.restored || sequence.state == state_of(&sequence.rows);
        sequence.restored = false;
        assert!(right, "contract: the state of sequence {} does not belong to its rows", row.seq.0);
        sequence.cut = false;
        sequence.fresh_rows += 1;
        sequence.push(row.item, row.pos.0, gallery);
        if !row.output {
            return Vec::new();
        }
        match &mut self.mind {
            Mind::Function(script) => match script(&sequence.tokens()) {
                Next::Token(token) => peaked(token, None),
                Next::Row(row) => row,
            },
            Mind::Answers(answers) => {
                let find = |prompt: &[Token]| find_answer(&self.tokenizer, answers, prompt);
                let (n_prompt, answer) = answering(&mut self.prompts, answers, find, sequence);
                sequence.answering = Some((n_prompt, answer));
                answer_row(answer_text(answers, answer), sequence.rows.len() - n_prompt)
            }
        }
    }
}

fn error(kind: RunnerErrorKind) -> RunnerError {
    RunnerError { call: "fake step", kind, code: None }
}

fn peaked(first: Token, second: Option<Token>) -> Vec<f32> {
    let mut row = vec![0.0; N_VOCAB];
    second.into_iter().for_each(|token| row[token.index()] = SECOND);
    row[first.index()] = CHOSEN;
    row
}
