//! The events of one choice, read as pieces of its message. Streams and whole answers are made from the same pieces.

use std::collections::VecDeque;

use crate::chat::{OutputDelta, OutputFormat, OutputParser, Thinking};
use crate::engine::{EngineError, Event, Finish, FinishReason, Logprob, Timings, Usage};
use crate::text::tokenizer::Tokenizer;
use crate::units::Token;

/// What a choice has to say.
#[derive(Clone, Debug)]
pub enum Update {
    Progress { done: usize, total: usize, cached: usize, elapsed_ms: f64 },
    Piece(Piece),
    End(Box<End>),
    Failed(EngineError),
}

/// New output. Either list may be empty: text is held back where it may be part of a tag or a stop string.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    pub deltas: Vec<OutputDelta>,
    pub logprobs: Vec<Logprob>,
}

/// A choice ended well.
#[derive(Clone, Debug)]
pub struct End {
    /// "stop", "length" or "tool_calls".
    pub finish_reason: &'static str,
    pub usage: Usage,
    pub timings: Timings,
    /// Tokens inside the think block, where the vocabulary marks it.
    pub reasoning_tokens: Option<usize>,
}

/// Reads the events of one choice.
pub struct ChoiceReader {
    /// `None`: all text is content.
    parser: Option<OutputParser>,
    reasoning: Option<ReasoningCount>,
}

impl ChoiceReader {
    pub fn new(format: Option<OutputFormat>, tokenizer: &Tokenizer) -> ChoiceReader {
        ChoiceReader {
            reasoning: format.as_ref().and_then(|format| ReasoningCount::new(format.thinking, tokenizer)),
            parser: format.map(OutputParser::new),
        }
    }

    /// Reads an event; nothing follows an `End` or a `Failed`.
    pub fn read(&mut self, event: Event, out: &mut VecDeque<Update>) {
        match event {
            Event::Progress { done, total, cached, elapsed_ms } => {
                out.push_back(Update::Progress { done, total, cached, elapsed_ms });
            }
            Event::Delta { text, tokens, logprobs } => out.push_back(self.piece(&text, &tokens, logprobs, false)),
            Event::Finished(finish) => self.finish(*finish, out),
            Event::Failed(error) => out.push_back(Update::Failed(error)),
        }
    }

    fn piece(&mut self, text: &str, tokens: &[Token], logprobs: Vec<Logprob>, end: bool) -> Update {
        self.reasoning.iter_mut().for_each(|count| count.read(tokens));
        let mut deltas = Vec::new();
        match &mut self.parser {
            Some(parser) => {
                parser.push(text, &mut deltas);
                if end {
                    parser.finish(&mut deltas);
                }
            }
            None if text.is_empty() => {}
            None => deltas.push(OutputDelta::Content(text.to_owned())),
        }
        Update::Piece(Piece { deltas, logprobs })
    }

    fn finish(&mut self, finish: Finish, out: &mut VecDeque<Update>) {
        let Finish { reason, text, tokens, logprobs, usage, timings } = finish;
        out.push_back(self.piece(&text, &tokens, logprobs, true));
        let called = self.parser.as_ref().is_some_and(|parser| parser.n_calls() > 0);
        let finish_reason = match reason {
            FinishReason::Eos(_) | FinishReason::Stop(_) if called => "tool_calls",
            FinishReason::Eos(_) | FinishReason::Stop(_) => "stop",
            FinishReason::MaxTokens | FinishReason::ContextFull => "length",
            // Only seen here when the server cancels by itself: at shutdown.
            FinishReason::Cancelled => return out.push_back(Update::Failed(EngineError::Stopping)),
        };
        let reasoning_tokens = self.reasoning.as_ref().map(|count| count.n_tokens);
        out.push_back(Update::End(Box::new(End { finish_reason, usage, timings, reasoning_tokens })));
    }
}

/// Counts the tokens of the think block by its marks, so that the count does not depend on how text was cut.
struct ReasoningCount {
    open: Option<Token>,
    close: Token,
    state: CountState,
    n_tokens: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CountState {
    /// The block may still be opened.
    Start,
    Inside,
    Past,
}

impl ReasoningCount {
    fn new(thinking: Thinking, tokenizer: &Tokenizer) -> Option<ReasoningCount> {
        let close = tokenizer.special("</think>")?;
        let state = match thinking {
            Thinking::Open => CountState::Inside,
            Thinking::Possible => CountState::Start,
            Thinking::Off => CountState::Past,
        };
        Some(ReasoningCount { open: tokenizer.special("<think>"), close, state, n_tokens: 0 })
    }

    fn read(&mut self, tokens: &[Token]) {
        for token in tokens {
            self.state = match self.state {
                CountState::Start if Some(*token) == self.open => CountState::Inside,
                CountState::Start | CountState::Past => CountState::Past,
                CountState::Inside if *token == self.close => CountState::Past,
                CountState::Inside => {
                    self.n_tokens += 1;
                    CountState::Inside
                }
            };
        }
    }
}
