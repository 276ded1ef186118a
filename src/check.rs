//! Judges a server from outside, by what it answers over HTTP, so that it can judge a server that is not ours: names nothing
//! of this program but itself. Each check prints a verdict, and what the verdict does not prove.

pub mod answer;
pub mod bench;
pub mod cache;
pub mod ceiling;
pub mod client;
pub mod facts;
pub mod full;
pub mod grammar_eval;
pub mod html;
pub mod memory;
pub mod prompts;
pub mod results;
pub mod run;
#[cfg(test)]
mod scripted;
pub mod session;
pub mod soak;
pub mod stress;
pub mod verdict;
