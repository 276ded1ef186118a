//! The events of one choice, read as pieces of its message. Streams and whole answers are made from
//! the same pieces.

use std::collections::VecDeque;

use crate::chat::{Collected, OutputDelta, OutputFormat, OutputParser};
use crate::engine::{DraftTotals, EngineError, Event, Finish, FinishReason, Logprob, Restored, Timings, Usage};
use crate::text::Detokenizer;
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

/// New output. Either list may be empty: text is held back where it may be part of a tag or a stop
/// string.
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
    pub drafts: DraftTotals,
    pub restored: Restored,
    /// Tokens inside think blocks; `None` where text is not split.
    pub reasoning_tokens: Option<usize>,
}

/// Everything that one choice said.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub said: Collected,
    pub logprobs: Vec<Logprob>,
    pub end: Option<Box<End>>,
}

/// Reads the events of one choice.
pub struct ChoiceReader {
    /// `None`: all text is content.
    parser: Option<(OutputParser, ReasoningCount)>,
}

impl ChoiceReader {
    pub fn new(format: Option<OutputFormat>, tokenizer: &Tokenizer) -> ChoiceReader {
        ChoiceReader { parser: format.map(|format| (OutputParser::new(format), ReasoningCount::new(tokenizer))) }
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
        let mut deltas = Vec::new();
        match &mut self.parser {
            Some((parser, reasoning)) => {
                parser.push(text, &mut deltas);
                if end {
                    parser.finish(&mut deltas);
                }
                reasoning.read(tokens, parser);
            }
            None if text.is_empty() => {}
            None => deltas.push(OutputDelta::Content(text.to_owned())),
        }
        Update::Piece(Piece { deltas, logprobs })
    }

    fn finish(&mut self, finish: Finish, out: &mut VecDeque<Update>) {
        let Finish { reason, text, tokens, logprobs, usage, timings, drafts, restored } = finish;
        out.push_back(self.piece(&text, &tokens, logprobs, true));
        let called = self.parser.as_ref().is_some_and(|(parser, _)| parser.n_calls() > 0);
        let finish_reason = match reason {
            FinishReason::Eos(_) | FinishReason::Stop(_) | FinishReason::Complete if called => "tool_calls",
            FinishReason::Eos(_) | FinishReason::Stop(_) | FinishReason::Complete => "stop",
            FinishReason::MaxTokens | FinishReason::ContextFull => "length",
            // Only seen here when the server cancels by itself: at shutdown.
            FinishReason::Cancelled => return out.push_back(Update::Failed(EngineError::Stopping)),
        };
        let reasoning_tokens = self.parser.as_ref().map(|(_, reasoning)| reasoning.n_tokens);
        let end = End { finish_reason, usage, timings, drafts, reasoning_tokens, restored };
        out.push_back(Update::End(Box::new(end)));
    }
}

/// Counts the tokens whose text begins inside a think block, as the parser reads it.
struct ReasoningCount {
    tokenizer: Tokenizer,
    /// Gives the same text as the engine's.
    detokenizer: Detokenizer,
    text: String,
    /// Bytes of text before the next token.
    n_bytes: usize,
    /// Where the tokens begin that the parser has not decided about.
    waiting: VecDeque<usize>,
    n_tokens: usize,
}

impl ReasoningCount {
    fn new(tokenizer: &Tokenizer) -> ReasoningCount {
        ReasoningCount {
            tokenizer: tokenizer.clone(),
            detokenizer: Detokenizer::default(),
            text: String::new(),
            n_bytes: 0,
            waiting: VecDeque::new(),
            n_tokens: 0,
        }
    }

    fn read(&mut self, tokens: &[Token], parser: &OutputParser) {
        for token in tokens {
            self.waiting.push_back(self.n_bytes);
            // Control tokens are not part of a message.
            if !self.tokenizer.is_control(*token) {
                self.text.clear();
                self.detokenizer.push(self.tokenizer.piece(*token), &mut self.text);
                self.n_bytes += self.text.len();
            }
        }
        while let Some(inside) = self.waiting.front().and_then(|at| parser.thinks_at(*at)) {
            self.waiting.pop_front();
            self.n_tokens += usize::from(inside);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::chat::fields::ToolFields;
    use crate::chat::{Thinking, ToolLimits, ToolSettings};

    fn format(thinking: Thinking) -> OutputFormat {
        let tools = json!([{ "type": "function", "function": { "name": "f" } }]);
        let fields = ToolFields { tools: Some(tools), ..ToolFields::default() };
        let tools = ToolSettings::from_fields(&fields, ToolLimits { max_tools: 1, max_bytes: 1000 }).unwrap().tools;
        OutputFormat { thinking, tools, parallel: true, calls_end_thinking: true }
    }

    /// Tokens that count in `text`, sent in pieces of so many tokens.
    fn counted(thinking: Thinking, text: &str, step: usize) -> usize {
        let tokenizer = Tokenizer::bytes_for_tests();
        let tokens = tokenizer.encode(text, crate::text::Specials::Parse).unwrap();
        let mut reader = ChoiceReader::new(Some(format(thinking)), &tokenizer);
        let mut detokenizer = Detokenizer::default();
        for tokens in tokens.chunks(step) {
            let mut text = String::new();
            let shown = tokens.iter().filter(|token| !tokenizer.is_control(**token));
            shown.for_each(|token| detokenizer.push(tokenizer.piece(*token), &mut text));
            reader.piece(&text, tokens, Vec::new(), false);
        }
        reader.piece("", &[], Vec::new(), true);
        reader.parser.unwrap().1.n_tokens
    }

    const CALL: &str = "<tool_call>\n<function=f>\n</function>\n</tool_call>";
    const JSON_CALL: &str = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";

    #[test]
    fn reasoning_tokens_are_those_of_the_reasoning() {
        let cases = [
            (Thinking::Open, "abc</think>de<|im_end|>".to_owned(), 3),
            (Thinking::Open, "never ends<|im_end|>".to_owned(), 10),
            (Thinking::Off, "abc</think>de".to_owned(), 0),
            (Thinking::Possible, "abc".to_owned(), 0),
            (Thinking::Possible, "<think>abc</think>de".to_owned(), 3),
            // Blanks before the tag.
            (Thinking::Possible, " \n<think>abc</think>de".to_owned(), 3),
            // The tag that the prompt had already.
            (Thinking::Open, "\n<think>abc</think>de".to_owned(), 3),
            // A call in a thought that was not closed; the newline before the XML is the thought's.
            (Thinking::Open, format!("abc\n{CALL}"), 4),
            (Thinking::Open, format!("abc{JSON_CALL}"), 3),
            (Thinking::Open, "abc<tool_call>{}".to_owned(), 6),
            // A block that is opened again.
            (Thinking::Open, "abc</think>\n<think>de</think>f".to_owned(), 5),
        ];
        for (thinking, text, n) in cases {
            for step in [1, 2, 7, 1000] {
                assert_eq!(counted(thinking, &text, step), n, "{thinking:?} {text:?} in steps of {step}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_count_does_not_depend_on_how_text_was_cut(
            parts in prop::collection::vec(
                prop::sample::select(vec!["<think>", "</think>", "a", " ", "\n", "<", CALL, JSON_CALL, "<tool_call>", "\u{e9}"]),
                0..9,
            ),
            step in 1_usize..9,
        ) {
            let text = parts.concat();
            for thinking in [Thinking::Open, Thinking::Possible, Thinking::Off] {
                prop_assert_eq!(counted(thinking, &text, step), counted(thinking, &text, 1000), "{:?} {:?}", thinking, text);
            }
        }
    }
}
