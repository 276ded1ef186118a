//! Judges a server from outside, by what it answers over HTTP, so that it can judge a server that is not ours: names nothing
//! of this program but itself. Each check prints a verdict, and what the verdict does not prove.

pub mod cache;
pub mod client;
pub mod grammar_eval;
