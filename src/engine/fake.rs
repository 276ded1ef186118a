//! A scripted model: the runner of all tests that need no weights.
//!
//! It keeps the contract of `ModelRunner` strictly. A broken rule of the caller (a gap in the positions, too many rows, two
//! cuts without a step between them) panics with its name, so a test sees the engine die of it; only what a real context
//! reports as an error is an error here. Its vocabulary is that of the byte tokenizer (`text::ByteCodec`). It has no weights
//! and no notion of time.

use std::collections::VecDeque;
use std::sync::mpsc as gate_channel;

use tokio::sync::mpsc;

use super::error::{RunnerError, RunnerErrorKind};
use super::runner::{BatchRow, DraftRow, ModelRunner, Restore, RunnerFacts, Saved};
use super::thread::Loaded;
use crate::text::{Specials, Tokenizer};
use crate::units::{Pos, SeqId, Token};

/// `<|im_end|>`: ends a generation.
pub const IM_END: Token = Token(257);
/// `<|endoftext|>`: ends a generation too.
pub const END_OF_TEXT: Token = Token(262);
/// Tokens of the byte tokenizer.
const N_VOCAB: usize = 266;

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

type Answers = [(String, Vec<Token>)];

/// Prompts that are remembered: more than any test has waiting at once.
const N_PROMPTS: usize = 256;

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

#[derive(Default)]
struct FakeSequence {
    /// The attention rows.
    tokens: Vec<Token>,
    /// The recurrent state: a number that depends on every token. A sequence whose state does not belong to its rows says
    /// so at its next row.
    state: u64,
    /// It was put back and has had no row since.
    restored: bool,
    /// Length of the prompt and the answer to it, known from the first row with output on.
    answering: Option<(usize, usize)>,
    /// Cut and not stepped since.
    cut: bool,
    /// Rows in the last step, if it was in it.
    fresh_rows: usize,
    /// What the MTP head was given since the last step.
    drafted: Vec<Token>,
    /// Was in a step that failed half-way: must be cleared first.
    unknown: bool,
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
        self.sequences.iter().map(|s| s.tokens.len()).sum()
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
            seen[s] = Some(expected + 1);
        }
    }

    fn held(&self, seq: usize) -> u32 {
        self.sequences.get(seq).map_or(0, |s| s.tokens.len() as u32)
    }

    fn take_row(&mut self, row: BatchRow) -> Vec<f32> {
        let sequence = &mut self.sequences[row.seq.0 as usize];
        let right = !sequence.restored || sequence.state == state_of(&sequence.tokens);
        sequence.restored = false;
        assert!(right, "contract: the state of sequence {} does not belong to its rows", row.seq.0);
        sequence.cut = false;
        sequence.fresh_rows += 1;
        let token = row.item.token().expect("contract: a picture, and no eyes");
        sequence.tokens.push(token);
        sequence.state = next_state(sequence.state, token);
        if !row.output {
            return Vec::new();
        }
        match &mut self.mind {
            Mind::Function(script) => match script(&sequence.tokens) {
                Next::Token(token) => peaked(token, None),
                Next::Row(row) => row,
            },
            Mind::Answers(answers) => {
                let find = |prompt: &[Token]| find_answer(&self.tokenizer, answers, prompt);
                let (n_prompt, answer) = answering(&mut self.prompts, answers, find, sequence);
                sequence.answering = Some((n_prompt, answer));
                answer_row(answer_text(answers, answer), sequence.tokens.len() - n_prompt)
            }
        }
    }
}

impl ModelRunner for FakeRunner {
    fn facts(&self) -> &RunnerFacts {
        &self.facts
    }

    fn step(&mut self, rows: &[BatchRow]) -> Result<(), RunnerError> {
        self.n_steps += 1;
        self.record(|| Call::Step(rows.to_vec()));
        if let Some(gate) = &self.gate
            && gate.recv().is_err()
        {
            self.gate = None;
        }
        self.check(rows);
        self.sequences.resize_with(self.facts.n_seq_max, FakeSequence::default);
        if let Err(error) = self.take_fault() {
            let unchanged = matches!(error.kind, RunnerErrorKind::NoRoom | RunnerErrorKind::InvalidBatch);
            rows.iter().for_each(|row| self.sequences[row.seq.0 as usize].unknown |= !unchanged);
            return Err(error);
        }
        if rows.iter().any(|r| r.item.token().is_some_and(|token| token.index() >= self.facts.n_vocab)) {
            return Err(error(RunnerErrorKind::InvalidBatch));
        }
        if self.n_fill() + rows.len() > self.n_cells.unwrap_or(self.facts.n_ctx) {
            self.record(|| Call::NoRoom);
            return Err(error(RunnerErrorKind::NoRoom));
        }
        self.logits.clear();
        for sequence in &mut self.sequences {
            sequence.fresh_rows = 0;
            sequence.drafted.clear();
        }
        for &row in rows {
            let logits = self.take_row(row);
            self.logits.push(logits);
        }
        Ok(())
    }

    fn logits(&mut self, row: usize) -> Result<&[f32], RunnerError> {
        let logits = self.logits.get(row).map_or(&[][..], |l| l);
        assert!(!logits.is_empty(), "contract: no output was asked of row {row}");
        Ok(logits)
    }

    fn draft(&mut self, rows: &[DraftRow]) -> Result<(), RunnerError> {
        self.record(|| Call::Draft(rows.to_vec()));
        assert!(self.head.is_some(), "contract: a draft without an MTP head");
        assert!(!rows.is_empty(), "contract: empty draft");
        self.draft_logits.clear();
        for (i, row) in rows.iter().enumerate() {
            assert!(rows[..i].iter().all(|other| other.seq != row.seq), "contract: two draft rows of one sequence");
            let sequence = &mut self.sequences[row.seq.0 as usize];
            let expected = sequence.tokens.len() + sequence.drafted.len();
            assert_eq!(row.pos.0 as usize, expected, "contract: draft position of sequence {}", row.seq.0);
            sequence.drafted.push(row.token);
            let all: Vec<Token> = sequence.tokens.iter().chain(&sequence.drafted).copied().collect();
            if let Some(head) = &mut self.head {
                self.draft_logits.push(match head(&all) {
                    Next::Token(token) => peaked(token, None),
                    Next::Row(row) => row,
                });
            }
        }
        Ok(())
    }

    fn draft_logits(&mut self, row: usize) -> Result<&[f32], RunnerError> {
        Ok(self.draft_logits.get(row).expect("contract: a row of the last draft"))
    }

    fn truncate(&mut self, seq: SeqId, from: Pos) -> Result<bool, RunnerError> {
        self.sequences.resize_with(self.facts.n_seq_max, FakeSequence::default);
        let facts = &self.facts;
        let fresh = &self.sequences[seq.0 as usize];
        let n_cut = fresh.tokens.len().saturating_sub(from.0 as usize);
        let kept_states = n_cut <= facts.rollback_max && n_cut < fresh.fresh_rows;
        let uncut = (facts.hybrid && !kept_states) || self.never_cuts;
        let sequence = &mut self.sequences[seq.0 as usize];
        let from_token = from.0 as usize;
        let kept = if from_token == 0 {
            *sequence = FakeSequence::default();
            true
        } else if from_token >= sequence.tokens.len() {
            true
        } else if uncut {
            false
        } else {
            assert!(!sequence.cut, "contract: sequence {} is cut twice without a step between", seq.0);
            sequence.tokens.truncate(from_token);
            sequence.state = state_of(&sequence.tokens);
            sequence.cut = true;
            sequence.fresh_rows = 0;
            true
        };
        sequence.answering = None;
        self.record(|| Call::Truncate { seq, from, kept });
        Ok(kept)
    }

    fn save(&mut self, seq: SeqId, from: Pos) -> Result<Saved, RunnerError> {
        self.record(|| Call::Save { seq, from });
        let sequence = self.sequences.get(seq.0 as usize).expect("contract: a save of a sequence without rows");
        assert!(!sequence.unknown, "contract: a save of a sequence that was not cleared after a failed step");
        let rows = sequence.tokens.get(from.0 as usize..).expect("contract: a save from beyond the end");
        let words = [sequence.state, sequence.tokens.len() as u64];
        Ok(Saved {
            point: words.iter().flat_map(|word| word.to_le_bytes()).collect(),
            rows: rows.iter().flat_map(|token| token.0.to_le_bytes()).collect(),
        })
    }

    fn restore(&mut self, restore: &Restore<'_>) -> Result<(), RunnerError> {
        let &Restore { seq, donor, kept, rows, point, end } = restore;
        self.record(|| Call::Restore { seq, donor, kept, end });
        self.sequences.resize_with(self.facts.n_seq_max, FakeSequence::default);
        let held = self.sequences[donor.0 as usize].tokens.get(..kept.0 as usize);
        let mut tokens = held.expect("contract: the donor does not hold so many rows").to_vec();
        for part in rows {
            assert_eq!(part.from.0 as usize, tokens.len(), "contract: a gap in the rows");
            let all: Vec<Token> =
                part.bytes.chunks_exact(4).map(|b| Token(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect();
            let wanted = (part.from.0 - part.start.0) as usize..(part.to.0 - part.start.0) as usize;
            tokens.extend_from_slice(all.get(wanted).expect("contract: rows that were not saved"));
        }
        let word = |at: usize| point[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (state, n_tokens) = (word(0), word(8));
        let others: usize = self.n_fill() - self.sequences[seq.0 as usize].tokens.len();
        let fits = others + tokens.len() <= self.n_cells.unwrap_or(self.facts.n_ctx);
        self.sequences[seq.0 as usize] = FakeSequence::default();
        if !fits {
            return Err(error(RunnerErrorKind::NoRoom));
        }
        assert_eq!((tokens.len() as u64, end.0 as u64), (n_tokens, n_tokens), "contract: the point of another length");
        self.sequences[seq.0 as usize] = FakeSequence { tokens, state, restored: true, ..FakeSequence::default() };
        Ok(())
    }
}

/// Bytes of a saved point.
const POINT_BYTES: usize = 16;

fn next_state(state: u64, token: Token) -> u64 {
    (state ^ u64::from(token.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_add(1)
}

fn state_of(tokens: &[Token]) -> u64 {
    tokens.iter().fold(0, |state, token| next_state(state, *token))
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

/// Where the sequence's prompt ends, and which answer is given to it. What the sequence holds beyond a prompt must be a
/// beginning of the answer; if not, all of it is a new prompt.
fn answering(
    prompts: &mut VecDeque<Vec<Token>>,
    answers: &Answers,
    find: impl Fn(&[Token]) -> usize,
    sequence: &FakeSequence,
) -> (usize, usize) {
    let tokens = &sequence.tokens;
    let goes_on = |&(n_prompt, answer): &(usize, usize)| is_answer(&tokens[n_prompt..], answer_text(answers, answer));
    if let Some(known) = sequence.answering.filter(goes_on) {
        return known;
    }
    let seen = prompts.iter().filter(|prompt| tokens.starts_with(prompt)).map(|prompt| (prompt.len(), find(prompt)));
    if let Some(known) = seen.filter(goes_on).max() {
        return known;
    }
    if prompts.len() == N_PROMPTS {
        prompts.pop_front();
    }
    prompts.push_back(tokens.clone());
    (tokens.len(), find(tokens))
}

/// The row after `n_generated` tokens of an answer: its next token, or its end with a new beginning as the second choice.
fn answer_row(answer: &[Token], n_generated: usize) -> Vec<f32> {
    match answer.get(n_generated) {
        Some(&token) => peaked(token, None),
        None => peaked(IM_END, (!answer.is_empty()).then(|| answer[n_generated % answer.len()])),
    }
}

/// Index of the first answer whose key the prompt contains; past the end where none fits.
fn find_answer(tokenizer: &Tokenizer, answers: &Answers, prompt: &[Token]) -> usize {
    let text = tokenizer.decode(prompt, true);
    answers.iter().position(|(key, _)| text.contains(key)).unwrap_or(answers.len())
}

fn answer_text(answers: &Answers, index: usize) -> &[Token] {
    answers.get(index).map_or(&[], |(_, answer)| answer)
}

/// Is `generated` a beginning of the answer, repeated without end.
fn is_answer(generated: &[Token], answer: &[Token]) -> bool {
    generated.iter().zip(answer.iter().cycle()).filter(|(a, b)| a == b).count() == generated.len()
}
