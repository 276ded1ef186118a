//! Sampling from one row of raw logits, in Rust: no list of the whole vocabulary is ever built for ordinary settings.
//!
//! `chain` holds the order of the steps; `row` reads the logits block by block; `candidates` cuts a row to a
//! `shortlist`; `truncate` and `xtc` shorten that; `distribution` picks. `overlay` is what a sequence's past changes in the row.
//! Rows come from the engine, masks from a constraint: nothing here knows of text, requests or the model.

mod candidates;
pub mod chain;
pub mod distribution;
mod dry;
mod error;
mod exp;
mod history;
pub mod logprobs;
mod mask;
mod overlay;
pub mod params;
mod penalties;
mod row;
mod shortlist;
mod stream;
mod truncate;
mod xtc;

pub use chain::{Foresight, Sampler};
pub use distribution::Distribution;
pub use error::SampleError;
pub use logprobs::{TokenLogprob, TopLogprob, logprobs};
pub use mask::Mask;
pub use params::{Dry, SamplingParams, Xtc};
