//! The scripted model as a `ModelRunner`.

use super::calls::Call;
use super::model::FakeRunner;
use super::rows::{FakeSequence, read, save, state_of};
use super::script::{Next, error, peaked};
use crate::engine::request::error::{RunnerError, RunnerErrorKind};
use crate::engine::runner::{BatchRow, DraftRow, ModelRunner, Restore, RunnerFacts, Saved};
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::engine::vision::image::{Embedding, Image};
use crate::units::{Pos, SeqId, Token};

impl ModelRunner for FakeRunner {
    fn facts(&self) -> &RunnerFacts {
        &self.facts
    }

    fn encode(&mut self, image: &Image) -> Result<Embedding, RunnerError> {
        self.encode_once(image)
    }

    fn step_with_images(&mut self, rows: &[BatchRow], encoder_cache: &EncoderCache) -> Result<(), RunnerError> {
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
            let logits = self.take_row(row, encoder_cache);
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
            let expected = sequence.next() + sequence.drafted.len() as u32;
            assert_eq!(row.pos.0, expected, "contract: draft position of sequence {}", row.seq.0);
            sequence.drafted.push(row.token);
            let all: Vec<Token> = sequence.tokens().into_iter().chain(sequence.drafted.iter().copied()).collect();
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
        let n_kept = if from.0 == 0 { 0 } else { fresh.n_before(from.0) };
        let n_cut = fresh.rows.len() - n_kept;
        let kept_states = n_cut <= facts.rollback_max && n_cut < fresh.fresh_rows;
        let uncut = (facts.hybrid && !kept_states) || self.never_cuts;
        let sequence = &mut self.sequences[seq.0 as usize];
        let kept = if from.0 == 0 {
            *sequence = FakeSequence::default();
            true
        } else if n_cut == 0 {
            true
        } else if uncut {
            false
        } else {
            assert!(!sequence.cut, "contract: sequence {} is cut twice without a step between", seq.0);
            sequence.rows.truncate(n_kept);
            sequence.state = state_of(&sequence.rows);
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
        assert!(from.0 <= sequence.next(), "contract: a save from beyond the end");
        let inside = sequence.rows.last().is_some_and(|row| row.next == row.pos);
        assert!(!inside, "contract: a save inside an image");
        let words = [sequence.state, sequence.rows.len() as u64, sequence.next().into()];
        Ok(Saved {
            point: words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().into(),
            rows: save(&sequence.rows[sequence.n_before(from.0)..]).into(),
        })
    }

    fn restore(&mut self, restore: &Restore<'_>) -> Result<(), RunnerError> {
        let &Restore { seq, donor, kept, rows, point, end } = restore;
        self.record(|| Call::Restore { seq, donor, kept, end });
        self.sequences.resize_with(self.facts.n_seq_max, FakeSequence::default);
        let held = &self.sequences[donor.0 as usize];
        assert!(kept.0 <= held.next(), "contract: the donor does not hold so many rows");
        let mut all = FakeSequence { rows: held.rows[..held.n_before(kept.0)].to_vec(), ..FakeSequence::default() };
        for part in rows {
            assert_eq!(part.from.0, all.next(), "contract: a gap in the rows");
            all.rows.extend(read(part));
        }
        let word = |at: usize| point[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (state, n_rows, last) = (word(0), word(8), word(16));
        let others: usize = self.n_fill() - self.sequences[seq.0 as usize].rows.len();
        let fits = others + all.rows.len() <= self.n_cells.unwrap_or(self.facts.n_ctx);
        self.sequences[seq.0 as usize] = FakeSequence::default();
        if !fits {
            return Err(error(RunnerErrorKind::NoRoom));
        }
        assert_eq!(all.rows.len() as u64, n_rows, "contract: the point of another length");
        let ends = (u64::from(all.next()), u64::from(end.0));
        assert_eq!(ends, (last, last), "contract: the point of another position");
        self.sequences[seq.0 as usize] = FakeSequence { state, restored: true, ..all };
        Ok(())
    }
}
