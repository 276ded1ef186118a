//! Drafting: tokens that a sequence may go on with, guessed before the model is asked, so that one step can verify several.
//!
//! A draft never changes an answer: the sampler chooses every token from the model's own logits, and a draft only decides how
//! many rows of them one step computes (docs/speculative.md).

pub(super) mod lookup;
pub(super) mod policy;
