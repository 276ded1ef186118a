//! `text_completion`.

use std::collections::VecDeque;

use indexmap::IndexMap;

use super::format::{HeldLogprobs, Render, ResponseHead, finite, text};
use crate::api::choice::{Answer, End, Piece};
use crate::api::wire::{CompletionChoice, CompletionLogprobs, Envelope, PromptProgress, TimingsBody, UsageBody};
use crate::chat::OutputDelta;
use crate::engine::Logprob;

const OBJECT: &str = "text_completion";

/// Texts in front of answers.
#[derive(Clone, Debug)]
pub struct Echo {
    /// One a prompt; empty without `echo`.
    pub texts: Vec<String>,
    /// Choices of each prompt.
    pub n_per_prompt: usize,
}

/// Completions of raw text.
pub struct CompletionRender {
    head: ResponseHead,
    held: HeldLogprobs,
    echo: Echo,
    /// Characters of the tokens so far, by choice.
    offsets: Vec<usize>,
}

impl CompletionRender {
    pub fn new(head: ResponseHead, echo: Echo) -> CompletionRender {
        CompletionRender { head, held: HeldLogprobs::default(), echo, offsets: Vec::new() }
    }

    fn chunk(&self, index: usize, text: String) -> Envelope<CompletionChoice> {
        self.head.envelope(OBJECT, vec![CompletionChoice { index, text, logprobs: None, finish_reason: None }])
    }

    fn speak(&mut self, index: usize, said: String) -> String {
        let mut chunk = self.chunk(index, said);
        let held = self.held.release(index);
        if let (false, Some(choice)) = (held.is_empty(), chunk.choices.first_mut()) {
            if self.offsets.len() <= index {
                self.offsets.resize(index + 1, 0);
            }
            choice.logprobs = Some(logprobs(held, &mut self.offsets[index]));
        }
        text(&chunk)
    }

    fn echoed(&self, index: usize) -> Option<&String> {
        self.echo.texts.get(index.checked_div(self.echo.n_per_prompt)?)
    }
}

impl Render for CompletionRender {
    fn open(&mut self, index: usize, out: &mut VecDeque<String>) {
        if let Some(prompt) = self.echoed(index) {
            out.push_back(text(&self.chunk(index, prompt.clone())));
        }
    }

    fn piece(&mut self, index: usize, piece: Piece, out: &mut VecDeque<String>) {
        self.held.hold(index, piece.logprobs);
        for delta in piece.deltas {
            if let OutputDelta::Content(said) = delta {
                out.push_back(self.speak(index, said));
            }
        }
    }

    fn end(&mut self, index: usize, end: &End, timings: TimingsBody, out: &mut VecDeque<String>) {
        if self.held.has(index) {
            out.push_back(self.speak(index, String::new()));
        }
        let mut last = self.chunk(index, String::new());
        last.choices.iter_mut().for_each(|choice| choice.finish_reason = Some(end.finish_reason));
        last.timings = Some(timings);
        out.push_back(text(&last));
    }

    fn progress(&self, index: usize, progress: PromptProgress) -> String {
        let mut chunk = self.chunk(index, String::new());
        chunk.prompt_progress = Some(progress);
        text(&chunk)
    }

    fn usage(&self, usage: UsageBody) -> String {
        let mut chunk = self.head.envelope::<CompletionChoice>(OBJECT, Vec::new());
        chunk.usage = Some(usage);
        text(&chunk)
    }

    fn whole(&self, choices: Vec<Answer>, usage: UsageBody, timings: TimingsBody) -> String {
        let choice = |(index, answer): (usize, Answer)| {
            let Answer { said, logprobs: tokens, end } = answer;
            let mut shown = self.echoed(index).cloned().unwrap_or_default();
            shown.push_str(&said.content);
            CompletionChoice {
                index,
                text: shown,
                logprobs: (!tokens.is_empty()).then(|| logprobs(tokens, &mut 0)),
                finish_reason: Some(end.map_or("stop", |end| end.finish_reason)),
            }
        };
        let mut answer = self.head.envelope(OBJECT, choices.into_iter().enumerate().map(choice).collect());
        answer.usage = Some(usage);
        answer.timings = Some(timings);
        text(&answer)
    }
}

/// `offset` is where the first token starts, and where the next one will.
fn logprobs(tokens: Vec<Logprob>, offset: &mut usize) -> CompletionLogprobs {
    let mut out = CompletionLogprobs::default();
    for Logprob { token: _, text, bytes: _, logprob, top } in tokens {
        let mut alternatives = IndexMap::new();
        for (_, text, _, logprob) in top {
            // Two tokens may have one text; the more probable one is named.
            alternatives.entry(text).or_insert(finite(logprob));
        }
        out.text_offset.push(*offset);
        *offset += text.chars().count();
        out.tokens.push(text);
        out.token_logprobs.push(finite(logprob));
        out.top_logprobs.push(alternatives);
    }
    out
}
