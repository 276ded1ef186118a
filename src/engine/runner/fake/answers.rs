//! Which of the scripted answers a prompt gets, and how far a sequence is in it.

use std::collections::VecDeque;

use super::rows::FakeSequence;
use super::script::{IM_END, IMAGES, peaked};
use crate::text::Tokenizer;
use crate::units::Token;

pub(super) type Answers = [(String, Vec<Token>)];

/// Prompts that are remembered: more than any test has waiting at once.
const N_PROMPTS: usize = 256;

/// Where the sequence's prompt ends, and which answer is given to it. What the sequence holds
/// beyond a prompt must be a beginning of the answer; if not, all of it is a new prompt.
pub(super) fn answering(
    prompts: &mut VecDeque<Vec<Token>>,
    answers: &Answers,
    find: impl Fn(&[Token]) -> usize,
    sequence: &FakeSequence,
) -> (usize, usize) {
    let tokens = &sequence.tokens();
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

/// The row after `n_generated` tokens of an answer: its next token, or its end with a new beginning
/// as the second choice.
pub(super) fn answer_row(answer: &[Token], n_generated: usize) -> Vec<f32> {
    match answer.get(n_generated) {
        Some(&token) => peaked(token, None),
        None => peaked(IM_END, (!answer.is_empty()).then(|| answer[n_generated % answer.len()])),
    }
}

/// Index of the first answer whose key the prompt contains; past the end where none fits.
pub(super) fn find_answer(tokenizer: &Tokenizer, answers: &Answers, prompt: &[Token]) -> usize {
    let text = readable(tokenizer, prompt);
    answers.iter().position(|(key, _)| text.contains(key)).unwrap_or(answers.len())
}

pub(super) fn answer_text(answers: &Answers, index: usize) -> &[Token] {
    answers.get(index).map_or(&[], |(_, answer)| answer)
}

/// Is `generated` a beginning of the answer, repeated without end.
fn is_answer(generated: &[Token], answer: &[Token]) -> bool {
    generated.iter().zip(answer.iter().cycle()).filter(|(a, b)| a == b).count() == generated.len()
}

/// A prompt as text; each row of an image is `<image>`.
fn readable(tokenizer: &Tokenizer, prompt: &[Token]) -> String {
    let runs = prompt.chunk_by(|a, b| (a.0 < IMAGES) == (b.0 < IMAGES));
    let text = |run: &[Token]| match run[0].0 < IMAGES {
        true => tokenizer.decode(run, true),
        false => "<image>".repeat(run.len()),
    };
    runs.map(text).collect()
}
