//! What the chain leaves: a probability for each token, and the pick. Nothing here draws
//! randomness: the number comes in from outside, so the same distribution can be picked from,
//! compared with a draft, or asked for one probability.

use super::row::{BLOCK, Peaks, Row, weight};
use super::shortlist::Candidate;

/// The distribution of one token after the whole chain.
pub struct Distribution<'a>(pub(super) Shape<'a>);

pub(super) enum Shape<'a> {
    /// Greedy.
    Certain(u32),
    /// A short list, ascending by id, with its weights and their sum.
    List { list: &'a [Candidate], weights: &'a [f32], total: f64 },
    /// No truncation: the whole row, with the weight of each block and their sum.
    Whole { row: Row<'a>, peaks: Peaks<'a>, scale: f32, sums: &'a [f32], total: f64 },
}

impl Distribution<'_> {
    /// 0 for a token that was cut off, masked or banned, or lies past the row's end.
    pub fn probability(&self, token: u32) -> f64 {
        match &self.0 {
            Shape::Certain(only) => f64::from(u8::from(*only == token)),
            Shape::List { list, weights, total } => {
                match list.binary_search_by_key(&token, |candidate| candidate.token) {
                    Ok(at) => f64::from(weights[at]) / total,
                    Err(_) => 0.0,
                }
            }
            Shape::Whole { row, peaks, scale, total, .. } => {
                f64::from(weight(row.value(token), peaks.top, *scale)) / total
            }
        }
    }

    /// The token at `unit` (0 <= unit < 1) of the cumulated probabilities, in order of the ids.
    /// Never one with probability 0.
    pub fn pick(&self, unit: f64) -> u32 {
        match &self.0 {
            Shape::Certain(only) => *only,
            Shape::List { list, weights, total } => list[walk(weights, unit * total).0].token,
            Shape::Whole { row, peaks, scale, sums, total } => {
                let (index, rest) = walk(sums, unit * total);
                let weights = row.block(index).map(|x| weight(x, peaks.top, *scale));
                (index * BLOCK + walk(&weights, rest).0) as u32
            }
        }
    }
}

/// The first index at which the running sum is over `target`, and how much of `target` was left
/// there. Where rounding keeps the sum below it: the last index with a weight. An index without
/// weight never lifts the sum, so it is never given.
fn walk(weights: &[f32], target: f64) -> (usize, f64) {
    let mut sum = 0.0;
    let mut last = (0, 0.0);
    for (index, &weight) in weights.iter().enumerate() {
        if weight > 0.0 {
            last = (index, target - sum);
            sum += f64::from(weight);
            if sum > target {
                return last;
            }
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weightless_index_is_never_given() {
        let weights = [0.0, 0.25, 0.0, 0.75, 0.0];
        assert_eq!(walk(&weights, 0.0).0, 1);
        assert_eq!(walk(&weights, 0.249).0, 1);
        assert_eq!(walk(&weights, 0.25), (3, 0.0));
        assert_eq!(walk(&weights, 0.999).0, 3);
        assert_eq!(walk(&weights, 1.0).0, 3, "rounding past the end falls back on the last one with a weight");
    }
}
