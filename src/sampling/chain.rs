//! The sampling chain: bias, penalties, cut to candidates, truncation, temperature, pick.

use super::SamplingParams;

/// Tokens that a constraint allows, one bit a token, least significant bit first: the seam for grammars.
#[derive(Clone, Copy, Debug)]
pub struct Mask<'a>(pub &'a [u32]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    #[error("every token is masked or banned")]
    NothingLeft,
    #[error("the logits hold NaN at token {token}")]
    NotANumber { token: u32 },
}

/// Sampling state of one sequence: parameters, random stream, token history for penalties, reused buffers.
/// `Clone` gives the state per draft position that verification needs.
#[derive(Clone)]
pub struct Sampler {
    params: SamplingParams,
}

impl Sampler {
    pub fn new(params: SamplingParams) -> Sampler {
        Sampler { params }
    }
    pub fn params(&self) -> &SamplingParams {
        &self.params
    }
    /// Takes a token into the history (prompt tokens too, in order), without drawing randomness.
    pub fn accept(&mut self, token: u32) {
        let _ = token;
        unimplemented!()
    }
    /// Picks a token from `logits` (raw, one f32 a token of the vocabulary). Does not accept it. Ties: the lowest id.
    pub fn sample(&mut self, logits: &[f32], mask: Option<Mask<'_>>) -> Result<u32, SampleError> {
        let _ = (logits, mask);
        unimplemented!()
    }
}
