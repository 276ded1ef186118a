//! Log-probabilities from the model's true distribution: softmax of the raw row, before bias, penalties and temperature.

/// A token with its natural-log probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopLogprob {
    pub token: u32,
    pub logprob: f32,
}

/// The chosen token's log-probability and the `n` most probable tokens, best first.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub token: u32,
    pub logprob: f32,
    pub top: Vec<TopLogprob>,
}

/// One pass for the normaliser, one for the top `n` (0..=20).
pub fn logprobs(logits: &[f32], token: u32, n: usize) -> TokenLogprob {
    let _ = (logits, token, n);
    unimplemented!()
}
