//! Drafting: tokens that a sequence may go on with, proposed before the model is asked, so that one
//! step can verify several.
//!
//! A draft never changes an answer: the sampler chooses every token from the model's own logits,
//! and a draft only decides how many rows of them one step computes (docs/speculative.md). `drafts`
//! is what one sequence keeps, `lookup` finds earlier text, `policy` decides how many tokens pay.
//! Who has the MTP head run is `execution::proposer`.

pub(in crate::engine) mod drafts;
mod lookup;
pub(in crate::engine) mod policy;
