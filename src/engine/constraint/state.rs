//! Follows the rules of one generation token by token: what may come next, what must, and what a
//! token changes.
//!
//! A generation goes through phases: a think block, its end, the answer, calls in it. Phases change
//! by token id alone. Tokens can be tried (a draft) and are all taken back before the next one is
//! taken for good; the masks that were worked out on the way are kept and serve the rows that
//! verify the draft. Samples nothing, and knows nothing of slots and batches.

use super::mask_precompute::MaskPrecompute;
use super::rules::{AnswerRule, CallRule, Constraint, ThinkingRule};
use crate::grammar::{MatchError, Matcher};
use crate::sampling::Mask;
use crate::text::{Tokenizer, Utf8Tail};
use crate::units::Token;

/// A character is at most four bytes long, and a token has one byte at least: the border cannot be
/// further.
const MAX_TOKENS_TO_BORDER: u32 = 3;

/// What the next token may be.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Allowed<'a> {
    Any,
    Only(Token),
    Among(Mask<'a>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A think block may be opened.
    Start,
    Think,
    /// This token of `closing` is next.
    Closing(usize),
    /// This token of the separator between block and answer is next.
    Separator(usize),
    Answer,
    Call,
    /// Between calls: so many tokens of the separator are there.
    CallSeparator(usize),
    /// Nothing may follow.
    Done,
}

/// All that a token can change, apart from the matchers.
#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    /// Tokens of the thought.
    n_thought: u32,
    /// The block was closed by force: a model that does not know it closes it again.
    forced: bool,
    /// Nothing of an answer with a grammar is there yet.
    fresh: bool,
    /// Calls begun, and those of them whose matcher is in `calls`.
    any_call: bool,
    n_matchers: usize,
    tail: Utf8Tail,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MatcherId {
    Thinking,
    Answer,
    Call(usize),
}

/// A token that was tried: the state before it and the matcher that took it.
struct Tried {
    before: State,
    by: Option<MatcherId>,
}

/// The rules of one generation and how far it has come.
pub(in crate::engine) struct ConstraintState {
    thinking: Option<ThinkingRule>,
    answer: AnswerRule,
    /// Message, closing tag and separator, and where the tag is in it.
    closing: Vec<Token>,
    close_at: usize,
    /// Matchers of the calls begun since the last token that was taken for good.
    calls: Vec<Matcher>,
    now: State,
    tried: Vec<Tried>,
    pub(super) masks: MaskPrecompute,
    eog: Vec<Token>,
    n_vocab: usize,
}

impl ConstraintState {
    /// `None` where the rules allow everything. `eog`: tokens that end a generation.
    pub fn new(rules: Constraint, n_vocab: usize, eog: &[Token]) -> Option<ConstraintState> {
        if rules.is_empty() {
            return None;
        }
        let Constraint { thinking, answer } = rules;
        let (mut closing, mut close_at) = (Vec::new(), 0);
        if let Some(rule) = &thinking {
            closing.extend_from_slice(&rule.message);
            close_at = closing.len();
            closing.push(rule.close);
            closing.extend_from_slice(&rule.separator);
        }
        let phase = match &thinking {
            None => Phase::Answer,
            Some(rule) if rule.is_open => Phase::Think,
            Some(_) => Phase::Start,
        };
        let (tail, fresh, eog) = (Utf8Tail::default(), true, eog.to_vec());
        let now = State { phase, n_thought: 0, forced: false, fresh, any_call: false, n_matchers: 0, tail };
        let (calls, tried, masks) = (Vec::new(), Vec::new(), MaskPrecompute::default());
        let mut constraint =
            ConstraintState { thinking, answer, closing, close_at, calls, now, tried, masks, eog, n_vocab };
        constraint.enforce_budget();
        Some(constraint)
    }

    /// Nothing may follow: the generation is over.
    pub fn is_done(&self) -> bool {
        self.now.phase == Phase::Done
    }

    /// What a sampled token stands for: an end of the generation inside a free thought is the end
    /// of the thought.
    pub fn meant(&self, sampled: Token) -> Token {
        match &self.thinking {
            Some(rule) if self.now.phase == Phase::Think && self.eog.contains(&sampled) => rule.close,
            _ => sampled,
        }
    }

    /// What may come next.
    ///
    /// # Errors
    /// No token can go on, or a limit of the matcher was reached.
    pub fn allowed(&mut self) -> Result<Allowed<'_>, MatchError> {
        if let Some(token) = self.required() {
            return Ok(Allowed::Only(token));
        }
        if self.is_done() {
            return Err(MatchError::Ended);
        }
        if !self.is_masked() {
            return Ok(Allowed::Any);
        }
        let depth = self.tried.len();
        if !self.masks.is_known(depth) {
            let mut words = self.masks.blank(depth);
            let result = self.write_mask(&mut words);
            self.masks.put(depth, words, result.is_ok());
            result?;
        }
        Ok(Allowed::Among(Mask(self.masks.mask(depth))))
    }

    /// Takes a token for good. Tokens that end the generation are not given here.
    ///
    /// # Errors
    /// A token that is not allowed.
    pub fn take(&mut self, token: Token, tokenizer: &Tokenizer) -> Result<(), MatchError> {
        self.rollback();
        self.advance(token, tokenizer)?;
        self.masks.took(token);
        if self.now.phase != Phase::Call {
            self.calls.clear();
            self.now.n_matchers = 0;
        }
        Ok(())
    }

    /// Tries a token after those tried before; false where it is not allowed.
    pub fn try_token(&mut self, token: Token, tokenizer: &Tokenizer) -> bool {
        if self.eog.contains(&token) {
            return false;
        }
        let before = self.now;
        let Ok(by) = self.advance(token, tokenizer) else { return false };
        self.masks.tried(self.tried.len(), token);
        self.tried.push(Tried { before, by });
        true
    }

    /// Works out what may come next and, while `more`, what after each token of `draft`, for
    /// `allowed` to have it at hand.
    pub fn precompute_masks(&mut self, draft: &[Token], tokenizer: &Tokenizer, mut more: impl FnMut() -> bool) {
        // An error comes again where the token is sampled.
        let _ = self.allowed();
        for token in draft {
            if !more() || !self.try_token(*token, tokenizer) {
                break;
            }
            let _ = self.allowed();
        }
        self.rollback();
    }

    /// Takes all tokens back that were tried.
    pub fn rollback(&mut self) {
        while let Some(Tried { before, by }) = self.tried.pop() {
            let matcher = match by {
                None => None,
                Some(MatcherId::Thinking) => self.thinking.as_mut().and_then(|rule| rule.grammar.as_mut()),
                Some(MatcherId::Answer) => self.answer.grammar.as_mut(),
                Some(MatcherId::Call(index)) => self.calls.get_mut(index),
            };
            if let Some(matcher) = matcher
                && let Err(error) = matcher.rollback(1)
            {
                // The matcher remembers that it failed and says so at the next mask.
                tracing::warn!(%error, "a tried token could not be taken back from its constraint");
            }
            self.calls.truncate(before.n_matchers);
            self.now = before;
        }
    }

    /// Appends the tokens that must come next, at most `most`; a draft, as the model may cut the
    /// same text otherwise.
    pub fn forced(&mut self, most: usize, tokenizer: &Tokenizer, out: &mut Vec<Token>) {
        let from = out.len();
        while out.len() - from < most && !self.is_done() {
            let n = out.len();
            match self.required() {
                Some(token) => out.push(token),
                None => out.extend(self.matcher().map(|(_, matcher)| matcher.forced()).unwrap_or_default()),
            }
            let n_tried = (n..out.len()).take_while(|&i| self.try_token(out[i], tokenizer)).count();
            out.truncate(n + n_tried);
            if n_tried == 0 {
                break;
            }
        }
        out.truncate(from + most);
        self.rollback();
    }

    /// The matcher of the present phase.
    fn matcher(&mut self) -> Option<(MatcherId, &mut Matcher)> {
        match self.now.phase {
            Phase::Think => Some((MatcherId::Thinking, self.thinking.as_mut()?.grammar.as_mut()?)),
            Phase::Answer => Some((MatcherId::Answer, self.answer.grammar.as_mut()?)),
            Phase::Call => {
                let index = self.now.n_matchers.checked_sub(1)?;
                Some((MatcherId::Call(index), self.calls.get_mut(index)?))
            }
            Phase::Start | Phase::Closing(_) | Phase::Separator(_) | Phase::CallSeparator(_) | Phase::Done => None,
        }
    }

    /// The one token that is next, where that is known without a mask.
    pub fn required(&self) -> Option<Token> {
        match self.now.phase {
            Phase::Closing(at) => self.closing.get(at).copied(),
            Phase::Separator(at) => self.thinking.as_ref()?.separator.get(at).copied(),
            Phase::Think => {
                let rule = self.thinking.as_ref()?;
                rule.grammar.as_ref().filter(|grammar| grammar.is_finished()).map(|_| rule.close)
            }
            Phase::Answer => self.calls().filter(|calls| calls.required && !self.now.any_call).map(|c| c.trigger),
            Phase::CallSeparator(0) => None,
            Phase::CallSeparator(at) => {
                self.calls().map(|calls| calls.separator.get(at).copied().unwrap_or(calls.trigger))
            }
            Phase::Start | Phase::Call | Phase::Done => None,
        }
    }

    fn calls(&self) -> Option<&CallRule> {
        self.answer.calls.as_ref()
    }

    /// A call may begin with the next token of the answer: anywhere in free text, first thing where
    /// the answer has a shape.
    fn may_call(&self) -> bool {
        self.calls().is_some() && (self.answer.grammar.is_none() || self.now.fresh)
    }

    /// The answer is not free.
    fn is_bound(&self) -> bool {
        self.answer.grammar.is_some() || self.calls().is_some_and(|calls| calls.required)
    }

    /// Does anything forbid tokens here.
    fn is_masked(&self) -> bool {
        let banned = !self.answer.banned.is_empty();
        match self.now.phase {
            Phase::Start => self.is_bound() || banned,
            Phase::Think => self.thinking.as_ref().is_some_and(|rule| rule.grammar.is_some()),
            Phase::Answer => self.answer.grammar.is_some() || banned || self.now.forced,
            Phase::Call | Phase::CallSeparator(_) => true,
            Phase::Closing(_) | Phase::Separator(_) | Phase::Done => false,
        }
    }

    fn write_mask(&mut self, words: &mut Vec<u32>) -> Result<(), MatchError> {
        words.clear();
        words.resize(self.n_vocab.div_ceil(32), 0);
        match self.now.phase {
            Phase::Think => self.write_thought(words)?,
            Phase::Call => {
                if let Some((_, matcher)) = self.matcher() {
                    words.copy_from_slice(matcher.mask()?);
                }
                self.eog.iter().for_each(|token| set(words, *token, false));
            }
            Phase::CallSeparator(_) => {
                self.eog.iter().for_each(|token| set(words, *token, true));
                if let Some(calls) = self.calls() {
                    set(words, calls.separator.first().copied().unwrap_or(calls.trigger), true);
                }
            }
            _ => self.write_answer(words)?,
        }
        Ok(())
    }

    /// What the grammar of the thought allows; its end is the closing tag.
    fn write_thought(&mut self, words: &mut [u32]) -> Result<(), MatchError> {
        let Some(ThinkingRule { grammar: Some(grammar), close, .. }) = &mut self.thinking else { return Ok(()) };
        words.copy_from_slice(grammar.mask()?);
        let may_end = self.eog.iter().any(|token| Mask(words).allows(token.0));
        self.eog.iter().for_each(|token| set(words, *token, false));
        set(words, *close, may_end);
        Ok(())
    }

    fn write_answer(&mut self, words: &mut [u32]) -> Result<(), MatchError> {
        let only_calls = self.is_bound();
        match &mut self.answer.grammar {
            Some(grammar) => words.copy_from_slice(grammar.mask()?),
            None if only_calls => {}
            None => {
                words.fill(u32::MAX);
                self.answer.banned.iter().for_each(|token| set(words, *token, false));
            }
        }
        if let Some(calls) = self.calls().filter(|_| self.may_call()) {
            set(words, calls.trigger, true);
        }
        if let Some(rule) = &self.thinking {
            if self.now.phase == Phase::Start {
                set(words, rule.open, true);
            } else if self.now.forced {
                set(words, rule.open, false);
                set(words, rule.close, false);
            }
        }
        Ok(())
    }

    /// Moves on by one token; returns the matcher that took it. After an error nothing has changed.
    fn advance(&mut self, token: Token, tokenizer: &Tokenizer) -> Result<Option<MatcherId>, MatchError> {
        if self.required().is_some_and(|required| required != token) {
            return Err(MatchError::NotAllowed(token));
        }
        match self.now.phase {
            Phase::Start => self.take_first(token, tokenizer),
            Phase::Think => self.take_thought(token, tokenizer),
            Phase::Closing(at) => {
                self.now.forced = true;
                self.now.phase = if at + 1 < self.closing.len() { Phase::Closing(at + 1) } else { Phase::Answer };
                Ok(None)
            }
            Phase::Separator(at) => {
                let n = self.thinking.as_ref().map_or(0, |rule| rule.separator.len());
                self.now.phase = if at + 1 < n { Phase::Separator(at + 1) } else { Phase::Answer };
                Ok(None)
            }
            Phase::Answer => self.take_answer(token),
            Phase::Call => self.take_call(token),
            Phase::CallSeparator(at) => self.take_between_calls(at, token),
            Phase::Done => Err(MatchError::Ended),
        }
    }

    fn take_first(&mut self, token: Token, tokenizer: &Tokenizer) -> Result<Option<MatcherId>, MatchError> {
        if self.thinking.as_ref().is_some_and(|rule| rule.open == token) {
            self.now.phase = Phase::Think;
            self.enforce_budget();
            return Ok(None);
        }
        // Blanks in front of a block are nobody's.
        if !self.is_bound() && tokenizer.piece(token).iter().all(u8::is_ascii_whitespace) {
            return Ok(None);
        }
        self.now.phase = Phase::Answer;
        let said = if self.required().is_some_and(|required| required != token) {
            Err(MatchError::NotAllowed(token))
        } else {
            self.take_answer(token)
        };
        if said.is_err() {
            self.now.phase = Phase::Start;
        }
        said
    }

    fn take_thought(&mut self, token: Token, tokenizer: &Tokenizer) -> Result<Option<MatcherId>, MatchError> {
        let calls = self.may_call() && self.calls().is_some_and(|calls| calls.trigger == token);
        let Some(rule) = &mut self.thinking else { return Err(MatchError::Ended) };
        if token == rule.close {
            if rule.grammar.as_mut().is_some_and(|grammar| !grammar.is_accepting()) {
                return Err(MatchError::NotAllowed(token));
            }
            let gap = !rule.separator.is_empty() && self.is_bound();
            self.now.phase = if gap { Phase::Separator(0) } else { Phase::Answer };
            return Ok(None);
        }
        if calls && rule.calls_end_it && rule.grammar.is_none() {
            self.now.phase = Phase::Answer;
            return self.take_answer(token);
        }
        let by = match &mut rule.grammar {
            Some(grammar) => {
                grammar.accept(token)?;
                Some(MatcherId::Thinking)
            }
            None => None,
        };
        self.now.n_thought += 1;
        self.now.tail.push(tokenizer.piece(token));
        self.enforce_budget();
        Ok(by)
    }

    /// Closes a block whose budget is spent.
    fn enforce_budget(&mut self) {
        let Some(rule) = self.thinking.as_mut().filter(|_| self.now.phase == Phase::Think) else { return };
        let Some(budget) = rule.budget_tokens else { return };
        let over = self.now.n_thought.saturating_sub(budget);
        if self.now.n_thought >= budget && (self.now.tail.is_whole() || over >= MAX_TOKENS_TO_BORDER) {
            // A thought that may end here needs no excuse.
            let whole = rule.grammar.as_mut().is_some_and(Matcher::is_accepting);
            self.now.phase = Phase::Closing(if whole { self.close_at } else { 0 });
        }
    }

    fn take_answer(&mut self, token: Token) -> Result<Option<MatcherId>, MatchError> {
        if self.may_call() && self.calls().is_some_and(|calls| calls.trigger == token) {
            self.begin_call();
            return Ok(None);
        }
        let tags = self.thinking.as_ref().map(|rule| [rule.open, rule.close]).filter(|_| self.now.forced);
        if self.answer.banned.contains(&token) || tags.is_some_and(|tags| tags.contains(&token)) {
            return Err(MatchError::NotAllowed(token));
        }
        let Some(grammar) = &mut self.answer.grammar else { return Ok(None) };
        grammar.accept(token)?;
        self.now.fresh = false;
        if grammar.is_finished() {
            self.now.phase = Phase::Done;
        }
        Ok(Some(MatcherId::Answer))
    }

    fn begin_call(&mut self) {
        if let Some(calls) = &self.answer.calls {
            self.calls.truncate(self.now.n_matchers);
            self.calls.push(calls.grammar.fork());
            self.now.n_matchers = self.calls.len();
            (self.now.any_call, self.now.fresh, self.now.phase) = (true, false, Phase::Call);
        }
    }

    fn take_call(&mut self, token: Token) -> Result<Option<MatcherId>, MatchError> {
        let Some((which, matcher)) = self.matcher() else { return Err(MatchError::Ended) };
        matcher.accept(token)?;
        if matcher.is_finished() {
            let many = self.calls().is_some_and(|calls| calls.many);
            self.now.phase = match (many, self.is_bound()) {
                (false, _) => Phase::Done,
                (true, true) => Phase::CallSeparator(0),
                (true, false) => Phase::Answer,
            };
        }
        Ok(Some(which))
    }

    fn take_between_calls(&mut self, at: usize, token: Token) -> Result<Option<MatcherId>, MatchError> {
        let Some(calls) = self.calls() else { return Err(MatchError::Ended) };
        let expected = calls.separator.get(at).copied().unwrap_or(calls.trigger);
        if token != expected {
            return Err(MatchError::NotAllowed(token));
        }
        if at < calls.separator.len() {
            self.now.phase = Phase::CallSeparator(at + 1);
        } else {
            self.begin_call();
        }
        Ok(None)
    }
}

fn set(words: &mut [u32], token: Token, allowed: bool) {
    if let Some(word) = words.get_mut(token.index() / 32) {
        let bit = 1 << (token.0 % 32);
        *word = if allowed { *word | bit } else { *word & !bit };
    }
}
