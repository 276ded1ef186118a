//! When a generation ends, as a pure function of counts and the last token. Stop strings are
//! matched on text, in `output`.

use crate::engine::request::event::FinishReason;
use crate::units::Token;

/// The limits of one generation.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Limits<'a> {
    /// End-of-generation tokens.
    pub eog: &'a [Token],
    pub max_tokens: Option<u32>,
    /// Room of the whole KV cache, in tokens.
    pub n_ctx: usize,
}

impl Limits<'_> {
    /// `token` was sampled. Tokens that end a generation are not part of its text.
    pub fn ends_at(&self, token: Token) -> Option<FinishReason> {
        self.eog.contains(&token).then_some(FinishReason::Eos(token))
    }

    /// `n_generated` tokens were sampled; prompt and generation are `n_total` tokens, the last of
    /// them not decoded yet. It could be decoded where `n_total` is `n_ctx`, and one more sampled;
    /// but then clients would count more tokens than the context has.
    pub fn reached(&self, n_generated: usize, n_total: usize) -> Option<FinishReason> {
        if self.max_tokens.is_some_and(|max| n_generated >= max as usize) {
            Some(FinishReason::MaxTokens)
        } else if n_total >= self.n_ctx {
            Some(FinishReason::ContextFull)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits<'static> = Limits { eog: &[Token(7)], max_tokens: Some(3), n_ctx: 10 };

    #[test]
    fn ends_at_any_end_of_generation_token() {
        assert_eq!(LIMITS.ends_at(Token(7)), Some(FinishReason::Eos(Token(7))));
        assert_eq!(LIMITS.ends_at(Token(8)), None);
    }

    #[test]
    fn max_tokens_wins_over_a_full_context() {
        assert_eq!(LIMITS.reached(2, 9), None);
        assert_eq!(LIMITS.reached(2, 10), Some(FinishReason::ContextFull));
        assert_eq!(LIMITS.reached(3, 10), Some(FinishReason::MaxTokens));
        assert_eq!(Limits { max_tokens: None, ..LIMITS }.reached(1000, 9), None);
        assert_eq!(Limits { max_tokens: Some(0), ..LIMITS }.reached(0, 5), Some(FinishReason::MaxTokens));
    }
}
