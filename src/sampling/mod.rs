//! Sampling from one row of raw logits, in Rust: no list of the whole vocabulary is ever built.

pub mod chain;
pub mod logprobs;
pub mod params;

pub use chain::{Mask, SampleError, Sampler};
pub use logprobs::{TokenLogprob, TopLogprob, logprobs};
pub use params::{Dry, SamplingParams, Xtc};
