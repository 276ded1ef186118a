//! The cut: from a row to the short list of tokens that can still be chosen, without sorting the vocabulary. What happens
//! to the list afterwards is the subject of `truncate` and `xtc`.
//!
//! The k-th largest of the block maxima is a floor that at least k values reach, and only blocks whose maximum reaches it
//! have to be looked through. What lies below is never copied. The list keeps the order of the ids, so the same set is the
//! same list whichever way it was found.

use super::row::{BLOCK, Peaks, Row, weight};
use super::truncate::Centre;

/// Which block maximum the nucleus search takes as its floor, one try after another, in percent of the blocks from the
/// largest on. A peaked row ends at the first; a flat one goes on to everything.
const REACHES: [usize; 3] = [5, 40, 100];

/// A token that can still be chosen, with its logit after bias and penalties. Never -inf or NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Candidate {
    pub(super) token: u32,
    pub(super) logit: f32,
}

impl Candidate {
    /// Largest logit first.
    pub(super) fn rank(&self) -> u64 {
        rank(0.0 - self.logit, self.token)
    }
}

/// Orders best first as an integer: the smaller key comes first, of equal ones the lower id.
pub(super) fn rank(key: f32, token: u32) -> u64 {
    u64::from(ordered(key)) << 32 | u64::from(token)
}

/// The bits of a float as an integer of the same order; both zeros are one.
fn ordered(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

fn from_ordered(bits: u32) -> f32 {
    f32::from_bits(if bits >> 31 == 1 { bits & !(1 << 31) } else { !bits })
}

/// The tokens that are left, in order of their ids, and the buffers that cutting needs.
#[derive(Default)]
pub(super) struct Shortlist {
    pub(super) list: Vec<Candidate>,
    /// One for each candidate, beside the best one's 1; as of the last `weigh`.
    pub(super) weights: Vec<f32>,
    pub(super) ranked: Vec<Ranked>,
    ranks: Vec<u64>,
    order: Vec<u32>,
}

/// A candidate's place and weight while a mass is counted off.
#[derive(Clone, Copy)]
pub(super) struct Ranked {
    pub(super) rank: u64,
    pub(super) mass: f32,
}

impl Shortlist {
    /// The tokens whose logit is +inf, as equals: beside them nothing else has a probability.
    pub(super) fn take_infinite(&mut self, row: Row<'_>, peaks: Peaks<'_>) {
        self.gather(row, peaks.maxima, f32::INFINITY);
        self.list.iter_mut().for_each(|candidate| candidate.logit = 0.0);
    }

    /// The `count` (at least 1) largest; of equal ones the lower ids.
    pub(super) fn take_top_k(&mut self, row: Row<'_>, peaks: Peaks<'_>, count: usize) {
        let floor = self.floor(peaks.maxima, count);
        self.gather(row, peaks.maxima, floor);
        if self.list.len() > count {
            self.ranks.clear();
            self.ranks.extend(self.list.iter().map(Candidate::rank));
            let last = *self.ranks.select_nth_unstable(count - 1).1;
            self.list.retain(|candidate| candidate.rank() <= last);
        }
    }

    /// The tokens within ln(1 / `min_p`) of the best.
    pub(super) fn take_min_p(&mut self, row: Row<'_>, peaks: Peaks<'_>, min_p: f32) {
        self.gather(row, peaks.maxima, min_p_floor(peaks.top, min_p));
    }

    /// The fewest largest whose mass reaches `top_p` of the row's, `total` being the sum of all weights.
    pub(super) fn take_nucleus(&mut self, row: Row<'_>, peaks: Peaks<'_>, top_p: f32, total: f64) {
        let target = f64::from(top_p) * total;
        for reach in reaches(peaks) {
            let floor = self.floor(peaks.maxima, reach);
            self.gather(row, peaks.maxima, floor);
            if self.weigh(1.0) >= target {
                break;
            }
        }
        self.keep_mass(|mass| mass >= target, Candidate::rank);
    }

    /// The tokens nearest to the row's mean logit, until their mass is over `typical_p` of the row's (see `keep_typical`),
    /// `total` being the sum of all weights.
    pub(super) fn take_typical(&mut self, row: Row<'_>, peaks: Peaks<'_>, typical_p: f32, total: f64) {
        let target = f64::from(typical_p) * total;
        let centre = Centre { top: peaks.top, mean: row.mean(peaks, total) };
        for reach in reaches(peaks) {
            let floor = self.floor(peaks.maxima, reach);
            self.gather(row, peaks.maxima, floor);
            self.weigh(1.0);
            // All that was not gathered is farther away than this.
            let clear = centre.mean - (floor - peaks.top);
            let items = self.list.iter().zip(&self.weights);
            let near = items.filter(|(candidate, _)| centre.distance(candidate) <= clear);
            if near.map(|(_, &weight)| f64::from(weight)).sum::<f64>() > target {
                break;
            }
        }
        self.keep_near(centre, target);
    }

    /// The tokens with a probability of `threshold` or more, `total` being the sum of all weights.
    pub(super) fn take_top_choices(&mut self, row: Row<'_>, peaks: Peaks<'_>, threshold: f32, total: f64) {
        let needed = f64::from(threshold) * total;
        // Rounding must not lose one that just reaches it.
        self.gather(row, peaks.maxima, (peaks.top + needed.ln() as f32 - 1e-3).max(f32::MIN));
        self.list.retain(|candidate| f64::from(weight(candidate.logit, peaks.top, 1.0)) >= needed);
    }

    /// The largest logit in the list; -inf where it is empty.
    pub(super) fn top(&self) -> f32 {
        self.list.iter().fold(f32::NEG_INFINITY, |top, candidate| top.max(candidate.logit))
    }

    /// Fills `weights` with e^((logit - top) * scale) and gives their sum.
    pub(super) fn weigh(&mut self, scale: f32) -> f64 {
        let top = self.top();
        self.weights.clear();
        self.weights.extend(self.list.iter().map(|candidate| weight(candidate.logit, top, scale)));
        self.weights.iter().map(|&weight| f64::from(weight)).sum()
    }

    /// Finds everything with a logit of at least `floor`.
    fn gather(&mut self, row: Row<'_>, maxima: &[f32], floor: f32) {
        let list = &mut self.list;
        list.clear();
        let mut found = [Candidate::default(); BLOCK];
        row.for_each(
            |block| maxima[block] >= floor,
            |index, block| {
                // Written always and kept by moving on: no branch to mispredict.
                let mut count = 0;
                for (token, &logit) in (index * BLOCK..).zip(block) {
                    found[count] = Candidate { token: token as u32, logit };
                    count += usize::from(logit >= floor);
                }
                list.extend_from_slice(&found[..count]);
            },
        );
    }

    /// A value that at least `count` values of the row reach; everything but -inf reaches it where the maxima cannot say.
    fn floor(&mut self, maxima: &[f32], count: usize) -> f32 {
        match maxima.len().checked_sub(count) {
            Some(below) if count > 0 => {
                self.order.clear();
                self.order.extend(maxima.iter().map(|&x| ordered(x)));
                from_ordered(*self.order.select_nth_unstable(below).1).max(f32::MIN)
            }
            _ => f32::MIN,
        }
    }
}

/// How many blocks the search for a mass looks through, one try after another; the last is everything.
fn reaches(peaks: Peaks<'_>) -> impl Iterator<Item = usize> + use<> {
    let blocks = peaks.maxima.len();
    REACHES.into_iter().map(move |percent| (blocks * percent).div_ceil(100)).chain([usize::MAX])
}

/// Logits from here on have at least `min_p` times the best one's probability. The best one always stays.
pub(super) fn min_p_floor(top: f32, min_p: f32) -> f32 {
    let distance = f64::from(min_p).ln().min(0.0) as f32;
    (top + distance).max(f32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_order_by_key_and_then_by_id(a in any::<f32>(), b in any::<f32>(), i in 0_u32..9, j in 0_u32..9) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            let expected = a.partial_cmp(&b).unwrap().then(i.cmp(&j));
            prop_assert_eq!(rank(a, i).cmp(&rank(b, j)), expected);
            prop_assert_eq!(from_ordered(ordered(a)), a);
        }
    }

    #[test]
    fn both_zeros_are_one_key() {
        assert_eq!(rank(0.0, 3), rank(-0.0, 3));
    }
}
