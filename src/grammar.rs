//! Constrained generation: from a grammar, a schema, a regular expression or a list of choices to one bit a token.
//!
//! Everything that a request can write is parsed here, with limits, and lowered to `llguidance`, which owns the lexer, the
//! Earley parser and the walk over the token trie. Knows nothing of HTTP, of templates or of the engine: a `Matcher` gets
//! tokens and gives masks. What it deliberately does not do: decide where in a generation a constraint holds (thinking,
//! answer), or sample.

mod cache;
mod calls;
pub mod catalogue;
mod compile;
mod error;
pub mod gbnf;
mod kinds;
mod matcher;
mod relaxed;
mod schema;
mod source;
pub mod thinking;
mod vocabulary;

pub use cache::Grammars;
pub use calls::{CallBody, CallShape, Calls};
pub use compile::{Compiled, Engine};
pub use error::{GrammarError, MatchError, Position};
pub use kinds::Kinds;
pub use matcher::Matcher;
pub use relaxed::Relaxed;
pub use source::Source;
pub use vocabulary::{Tokenize, Vocabulary};
