//! Log-probabilities from the model's true distribution: softmax of the raw row, before bias,
//! penalties and temperature.
//!
//! "True" means what the model said: no bias, no penalty, no mask, no truncation, temperature 1. A
//! token that was forced by a mask or a bias so shows how improbable the model held it.

use super::row::Row;
use super::shortlist::Shortlist;

/// A token with its natural-log probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TopLogprob {
    pub token: u32,
    pub logprob: f32,
}

/// The chosen token's log-probability and the `n` most probable tokens, best first (of equal ones
/// the lower id). `logprob` is -inf for a token that the model excludes. `top` never holds such
/// tokens, so it is shorter than `n` where the row has fewer others.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    pub token: u32,
    pub logprob: f32,
    pub top: Vec<TopLogprob>,
}

/// One pass for the maximum, one for the normaliser, then the top `n` (0..=20) from the few blocks
/// that can hold them.
///
/// A +inf logit takes all probability, shared equally where there are several. A row with NaN has
/// no distribution (and `Sampler` refuses it): every token gets -inf.
pub fn logprobs(logits: &[f32], token: u32, n: usize) -> TokenLogprob {
    let row = Row::new(logits, &[], None);
    let mut maxima = Vec::new();
    let mut shortlist = Shortlist::default();
    let excluded = TokenLogprob { token, logprob: f32::NEG_INFINITY, top: Vec::new() };
    let Ok(peaks) = row.peaks(&mut maxima) else { return excluded };
    if peaks.top == f32::NEG_INFINITY {
        return excluded;
    }
    let log_total = if peaks.top == f32::INFINITY {
        shortlist.take_infinite(row, peaks);
        (shortlist.list.len() as f64).ln()
    } else {
        row.sums(peaks, 1.0, &mut Vec::new()).ln()
    };
    let logprob = |logit: f32| {
        // inf - inf is not 0.
        let distance = if logit == peaks.top { 0.0 } else { f64::from(logit) - f64::from(peaks.top) };
        (distance - log_total) as f32
    };
    if n > 0 {
        shortlist.take_top_k(row, peaks, n);
        shortlist.list.sort_unstable_by_key(|candidate| candidate.rank());
    } else {
        shortlist.list.clear();
    }
    let ranked = shortlist.list.iter().map(|c| TopLogprob { token: c.token, logprob: logprob(c.logit) });
    let top = ranked.filter(|entry| entry.logprob > f32::NEG_INFINITY).collect();
    TokenLogprob { token, logprob: logprob(row.value(token)), top }
}
