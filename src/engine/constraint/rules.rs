//! What one generation must look like: bounds on its thinking, a grammar for its answer, calls of
//! tools. Plain data, made off the engine thread; `constraint` follows it token by token.

use crate::grammar::Matcher;
use crate::units::Token;

/// The rules of one generation. The default allows everything.
#[derive(Clone, Debug, Default)]
pub struct Constraint {
    /// `None`: the generation is an answer from its first token on.
    pub thinking: Option<ThinkingRule>,
    pub answer: AnswerRule,
}

/// A think block at the start of the generation. An end-of-generation token inside it closes it
/// instead: there is always an answer, unless the room for tokens is spent.
#[derive(Clone, Debug)]
pub struct ThinkingRule {
    /// The prompt ends inside the block. Else the model may open one with its first token.
    pub is_open: bool,
    pub open: Token,
    pub close: Token,
    /// The shape of the thought; it ends with `close`.
    pub grammar: Option<Matcher>,
    /// Tokens of the thought, without its tags. At the first border of a character from there on
    /// the block is closed.
    pub budget_tokens: Option<u32>,
    /// What is said before a block is closed by force.
    pub message: Vec<Token>,
    /// What stands between the block and an answer that is constrained, and after a block that was
    /// closed by force.
    pub separator: Vec<Token>,
    /// A call that begins inside the block ends it.
    pub calls_end_it: bool,
}

/// The answer.
#[derive(Clone, Debug, Default)]
pub struct AnswerRule {
    /// Its shape, from its first token to its last.
    pub grammar: Option<Matcher>,
    pub calls: Option<CallRule>,
    /// Tokens that it never holds.
    pub banned: Vec<Token>,
}

/// Calls of tools.
#[derive(Clone, Debug)]
pub struct CallRule {
    /// The token that begins a call. From it on `grammar` holds, up to and with the token that ends
    /// the call.
    pub trigger: Token,
    pub grammar: Matcher,
    /// The answer is calls and nothing else.
    pub required: bool,
    /// Several calls. Else the first one ends the generation.
    pub many: bool,
    /// What stands between two calls.
    pub separator: Vec<Token>,
}

impl Constraint {
    /// There is nothing to follow.
    pub fn is_empty(&self) -> bool {
        let AnswerRule { grammar, calls, banned } = &self.answer;
        self.thinking.is_none() && grammar.is_none() && calls.is_none() && banned.is_empty()
    }
}
