//! GBNF, the grammar language of llama.cpp: parsed with limits, checked, and lowered to the Lark text that `llguidance` takes.
//!
//! The dialect is llama.cpp's (rules, alternatives, groups, classes, escapes, repetitions, comments, `<token>` and
//! `!<token>`), and beyond it: `_` in rule names, `{,n}`, a rule continued by a line that begins with `|`, and an empty last
//! alternative. Where llama.cpp goes on without a constraint or takes a later rule for an earlier one, here is an error.
//!
//! GBNF is context-free over characters: no lexer, no longest match, no implicit whitespace. `lower` keeps that exactly; how
//! is said there.

mod ast;
mod automaton;
mod check;
mod limits;
mod lower;
mod parse;
mod regular;

pub use ast::{CharSet, Expr, Grammar, Rule, TokenName, TokenRef};
pub use limits::{
    MAX_ALTERNATIVES, MAX_BYTES, MAX_CHAIN, MAX_DEPTH, MAX_EXPANDED, MAX_PARTS, MAX_REPETITIONS, MAX_ROW, MAX_RULES,
};
pub(super) use lower::lower;
pub use parse::parse;
