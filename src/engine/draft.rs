//! Drafting: tokens that a sequence may go on with, guessed before the model is asked, so that one step can verify several.
//!
//! A draft never changes an answer: the sampler chooses every token from the model's own logits, and a draft only decides how
//! many rows of them one step computes (docs/speculative.md).

mod lookup;
mod policy;
mod round;
mod sequence;

pub(super) use policy::Offer;
pub(super) use round::Round;
pub(super) use sequence::{Rules, SequenceDrafts};
