//! One generation under a constraint: masks, tokens, and the way back over tokens that were only tried.

use std::sync::Arc;

use llguidance::toktrie::TokenizerEnv;

use super::error::{MatchError, first_lines};
use super::vocabulary::Lexicon;
use crate::units::Token;

/// The state of one constrained text. Belongs to one sequence; tables are shared with its own forks alone.
pub struct Matcher {
    inner: llguidance::Matcher,
    lexicon: Arc<Lexicon>,
    mask: Vec<u32>,
    /// An end-of-generation token was accepted.
    ended: bool,
}

impl Clone for Matcher {
    /// As `separate`.
    fn clone(&self) -> Matcher {
        self.separate()
    }
}

impl std::fmt::Debug for Matcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Matcher").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Matcher {
    pub(super) fn new(inner: llguidance::Matcher, lexicon: Arc<Lexicon>) -> Matcher {
        Matcher { inner, lexicon, mask: Vec::new(), ended: false }
    }

    /// A copy that shares nothing that changes: a fault in one generation stays there.
    pub(super) fn separate(&self) -> Matcher {
        Matcher { inner: self.inner.deep_clone(), lexicon: self.lexicon.clone(), mask: Vec::new(), ended: self.ended }
    }

    /// A copy for the same thread, to try tokens on. Shares the lexer's tables with this one.
    pub fn fork(&self) -> Matcher {
        Matcher { inner: self.inner.clone(), lexicon: self.lexicon.clone(), mask: Vec::new(), ended: self.ended }
    }

    /// The tokens that may come next: a bit each, the lowest bit of a word first, `n_vocab` bits and zeros to fill the last
    /// word. End-of-generation tokens are among them exactly when the text may end here.
    ///
    /// # Errors
    /// After the end, and when no token is left. A mask is never empty.
    pub fn mask(&mut self) -> Result<&[u32], MatchError> {
        if self.ended {
            return Err(MatchError::Ended);
        }
        let set = self.inner.compute_mask_or_eos().map_err(|error| self.failure(&error))?;
        let n_vocab = self.lexicon.n_vocab();
        let n_words = n_vocab.div_ceil(32);
        self.mask.clear();
        self.mask.extend_from_slice(&set.as_slice()[..n_words.min(set.as_slice().len())]);
        self.mask.resize(n_words, 0);
        if !n_vocab.is_multiple_of(32)
            && let Some(last) = self.mask.last_mut()
        {
            *last &= (1 << (n_vocab % 32)) - 1;
        }
        self.lexicon.share_bits(&mut self.mask);
        if self.mask.iter().all(|word| *word == 0) {
            return Err(MatchError::DeadEnd);
        }
        Ok(&self.mask)
    }

    fn failure(&self, error: &impl std::fmt::Display) -> MatchError {
        match self.inner.stop_reason() {
            llguidance::api::StopReason::NoExtensionBias => MatchError::DeadEnd,
            _ if first_lines(error).contains("NoExtension") => MatchError::DeadEnd,
            _ => MatchError::Failed(first_lines(error)),
        }
    }

    /// Goes on by one token.
    ///
    /// # Errors
    /// A token that the mask does not have; the state is then as before. A limit that was reached.
    pub fn accept(&mut self, token: Token) -> Result<(), MatchError> {
        if self.ended {
            return Err(MatchError::Ended);
        }
        if self.validate(&[token])? == 0 {
            return Err(MatchError::NotAllowed(token));
        }
        if self.lexicon.is_end(token) {
            self.ended = true;
            return Ok(());
        }
        let token = self.lexicon.canonical(token);
        self.inner.consume_token(token.0).map_err(|error| MatchError::Failed(first_lines(&error)))
    }

    /// Takes back the last `n` tokens that were accepted.
    ///
    /// # Errors
    /// More tokens than were accepted, or a limit that was reached before.
    pub fn rollback(&mut self, n: usize) -> Result<(), MatchError> {
        let inner = if self.ended { n.saturating_sub(1) } else { n };
        if inner > 0 {
            self.inner.rollback(inner).map_err(|error| MatchError::Failed(first_lines(&error)))?;
        }
        self.ended &= n == 0;
        Ok(())
    }

    /// How many of these tokens could be accepted, one after the other. Changes nothing.
    ///
    /// # Errors
    /// A limit that was reached.
    pub fn validate(&mut self, tokens: &[Token]) -> Result<usize, MatchError> {
        if self.ended {
            return Ok(0);
        }
        let n_vocab = self.lexicon.n_vocab();
        let known = tokens.iter().take_while(|token| token.index() < n_vocab);
        // Nothing follows a token that ends the text.
        let mut is_open = true;
        let tokens: Vec<u32> = known
            .take_while(|token| std::mem::replace(&mut is_open, !self.lexicon.is_end(**token)))
            .map(|token| self.lexicon.canonical(*token).0)
            .collect();
        if self.inner.is_stopped() && !self.inner.is_error() {
            return Ok(usize::from(tokens.first().is_some_and(|&token| self.lexicon.is_end(Token(token)))));
        }
        self.inner.validate_tokens(&tokens).map_err(|error| MatchError::Failed(first_lines(&error)))
    }

    /// Tokens that must come next, if the text is cut into tokens as the model would. A draft, no duty: other cuts of the same
    /// text are in the mask too.
    pub fn forced(&mut self) -> Vec<Token> {
        if self.ended || self.inner.is_stopped() {
            return Vec::new();
        }
        let mut probe = self.fork();
        let bytes = probe.inner.compute_ff_bytes();
        if bytes.is_empty() {
            return Vec::new();
        }
        let (tokens, fixed) = self.lexicon.tokenize_bytes_marker(&bytes);
        let mut tokens: Vec<Token> = tokens.into_iter().map(Token).collect();
        let mut ends = self.fork();
        let is_last = tokens.iter().all(|token| ends.accept(*token).is_ok()) && ends.inner.is_stopped();
        if !is_last && tokens.len() > fixed {
            // What comes after may join the last piece to a longer token.
            tokens.pop();
        }
        let valid = self.validate(&tokens).unwrap_or(0);
        tokens.truncate(valid);
        tokens
    }

    /// May the text end here?
    pub fn is_accepting(&mut self) -> bool {
        self.ended || self.inner.is_accepting().unwrap_or(false)
    }

    /// Must the text end here, or has it ended?
    pub fn is_finished(&self) -> bool {
        self.ended || (self.inner.is_stopped() && !self.inner.is_error())
    }
}
