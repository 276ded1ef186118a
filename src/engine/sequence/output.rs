//! From generated tokens to what a client may see: incremental UTF-8, stop strings, and the tokens
//! that belong to the text.
//!
//! A token leaves together with the first byte of its text, so tokens that turn out to be part of a
//! stop string never leave.

use std::collections::VecDeque;

use crate::engine::request::event::Logprob;
use crate::engine::sequence::sink::Pending;
use crate::text::{Detokenizer, StopMatcher};
use crate::units::Token;

struct HeldToken {
    token: Token,
    logprob: Option<Logprob>,
    /// Bytes of text before this token.
    start: usize,
}

/// Text side of one generation.
pub(in crate::engine) struct Output {
    detokenizer: Detokenizer,
    stop: StopMatcher,
    held: VecDeque<HeldToken>,
    /// Bytes of text decoded, and of those given away.
    n_decoded: usize,
    n_shown: usize,
    /// Reused buffer.
    decoded: String,
}

impl Output {
    pub fn new(stop: Vec<String>) -> Output {
        Output {
            detokenizer: Detokenizer::default(),
            stop: StopMatcher::new(stop),
            held: VecDeque::new(),
            n_decoded: 0,
            n_shown: 0,
            decoded: String::new(),
        }
    }

    /// Nothing was ever shown.
    pub fn is_empty(&self) -> bool {
        self.n_shown == 0
    }

    /// Takes a token that stands for `bytes` (none for a hidden one). Returns the stop string that
    /// its text completed; what was held of it is gone then.
    pub fn push(
        &mut self,
        token: Token,
        bytes: &[u8],
        logprob: Option<Logprob>,
        pending: &mut Pending,
    ) -> Option<String> {
        self.held.push_back(HeldToken { token, logprob, start: self.n_decoded });
        self.decoded.clear();
        self.detokenizer.push(bytes, &mut self.decoded);
        self.show_decoded(pending)
    }

    /// The generation ends without a stop string: releases what is held, an unfinished character as
    /// U+FFFD. Returns the stop string that this last character completed.
    pub fn finish(&mut self, pending: &mut Pending) -> Option<String> {
        self.decoded.clear();
        self.detokenizer.finish(&mut self.decoded);
        let stopped = self.show_decoded(pending);
        if stopped.is_none() {
            let before = pending.text.len();
            self.stop.finish(&mut pending.text);
            self.n_shown += pending.text.len() - before;
            self.release(usize::MAX, pending);
        }
        stopped
    }

    fn show_decoded(&mut self, pending: &mut Pending) -> Option<String> {
        self.n_decoded += self.decoded.len();
        let before = pending.text.len();
        let stopped = self.stop.push(&self.decoded, &mut pending.text).map(str::to_owned);
        self.n_shown += pending.text.len() - before;
        self.release(self.n_shown, pending);
        if stopped.is_some() {
            self.held.clear();
        }
        stopped
    }

    /// Gives away the tokens whose text begins before byte `end`.
    fn release(&mut self, end: usize, pending: &mut Pending) {
        while let Some(held) = self.held.pop_front_if(|held| held.start < end) {
            pending.tokens.push(held.token);
            pending.logprobs.extend(held.logprob);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stop: &[&str], pieces: &[&[u8]]) -> (String, Vec<u32>, Option<String>) {
        let mut output = Output::new(stop.iter().map(|s| (*s).to_owned()).collect());
        let mut pending = Pending::default();
        let mut stopped = None;
        for (i, piece) in pieces.iter().enumerate() {
            stopped = output.push(Token(i as u32), piece, None, &mut pending);
            if stopped.is_some() {
                break;
            }
        }
        let stopped = stopped.or_else(|| output.finish(&mut pending));
        (pending.text, pending.tokens.iter().map(|t| t.0).collect(), stopped)
    }

    #[test]
    fn stop_string_over_token_borders_takes_its_tokens_along() {
        let (text, tokens, stopped) = run(&["beta gamma"], &[b"alpha ", b"beta", b" ga", b"mma", b" delta"]);
        assert_eq!((text.as_str(), stopped.as_deref()), ("alpha ", Some("beta gamma")));
        assert_eq!(tokens, [0]);
    }

    #[test]
    fn a_token_that_only_ends_in_a_stop_string_is_kept() {
        let (text, tokens, _) = run(&["beta"], &[b"alpha be", b"ta"]);
        assert_eq!((text.as_str(), tokens), ("alpha ", vec![0]));
    }

    #[test]
    fn disproved_prefix_is_released_with_its_tokens() {
        let (text, tokens, stopped) = run(&["beta gamma"], &[b"beta", b" gone"]);
        assert_eq!((text.as_str(), tokens, stopped), ("beta gone", vec![0, 1], None));
    }

    #[test]
    fn character_cut_into_tokens_comes_whole_and_a_cut_end_becomes_one_replacement() {
        let (text, tokens, _) = run(&[], &[b"\xF0", b"\x9F", b"\x98", b"\xB8", b"\xF0", b"\x9F"]);
        assert_eq!((text.as_str(), tokens.len()), ("\u{1F638}\u{FFFD}", 6));
    }

    #[test]
    fn hidden_tokens_leave_with_the_text_after_them_or_at_the_end() {
        let mut output = Output::new(Vec::new());
        let mut pending = Pending::default();
        output.push(Token(1), b"", None, &mut pending);
        assert!(pending.tokens.is_empty());
        output.push(Token(2), b"x", None, &mut pending);
        output.push(Token(3), b"", None, &mut pending);
        assert_eq!(pending.tokens, [Token(1), Token(2)]);
        output.finish(&mut pending);
        assert_eq!(pending.tokens, [Token(1), Token(2), Token(3)]);
    }
}
