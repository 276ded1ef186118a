//! The short list of tokens that can still be chosen, and the counting off of a mass that every cut
//! uses.
//!
//! `candidates` fills it from a row, `truncate` and `xtc` shorten it. The list keeps the order of
//! the ids.

use super::row::weight;

/// Below so many items sorting beats another round of partitioning.
const SORTED: usize = 48;

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
pub(super) fn ordered(x: f32) -> u32 {
    let bits = (x + 0.0).to_bits();
    if bits >> 31 == 1 { !bits } else { bits | 1 << 31 }
}

/// The float of `ordered`'s integer.
pub(super) fn from_ordered(bits: u32) -> f32 {
    f32::from_bits(if bits >> 31 == 1 { bits & !(1 << 31) } else { !bits })
}

/// The tokens that are left, in order of their ids, and the buffers that cutting needs.
#[derive(Default)]
pub(super) struct Shortlist {
    pub(super) list: Vec<Candidate>,
    /// One for each candidate, beside the best one's 1; as of the last `weigh`.
    pub(super) weights: Vec<f32>,
    ranked: Vec<Ranked>,
    /// Room for cutting.
    pub(super) ranks: Vec<u64>,
    pub(super) order: Vec<u32>,
}

/// A candidate's place and weight while a mass is counted off.
#[derive(Clone, Copy)]
struct Ranked {
    rank: u64,
    mass: f32,
}

/// The logit whose surprise is the entropy.
#[derive(Clone, Copy)]
pub(super) struct Centre {
    pub(super) top: f32,
    /// Of the distribution's logits, less `top`.
    pub(super) mean: f32,
}

impl Centre {
    /// How far a token's surprise is from the entropy.
    pub(super) fn distance(&self, candidate: &Candidate) -> f32 {
        (candidate.logit - self.top - self.mean).abs()
    }
}

impl Shortlist {
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

    /// Keeps the tokens nearest to `centre` until their mass is over `target`. Needs the weights of
    /// this list.
    pub(super) fn keep_near(&mut self, centre: Centre, target: f64) {
        self.keep_mass(|mass| mass > target, |candidate| rank(centre.distance(candidate), candidate.token));
    }

    /// Keeps the shortest beginning, in the order of `place`, whose mass is `enough`. Needs the
    /// weights of this list.
    pub(super) fn keep_mass(&mut self, enough: impl Fn(f64) -> bool, place: impl Fn(&Candidate) -> u64) {
        self.ranked.clear();
        let items = self.list.iter().zip(&self.weights);
        self.ranked.extend(items.map(|(candidate, &mass)| Ranked { rank: place(candidate), mass }));
        let kept = beginning(&mut self.ranked, enough);
        if kept < self.list.len()
            && let Some(last) = self.ranked[..kept].iter().map(|item| item.rank).max()
        {
            self.list.retain(|candidate| place(candidate) <= last);
        }
    }
}

/// Moves the shortest beginning (in order of rank) whose mass is `enough` to the front and gives
/// its length: at least 1, and everything where the whole is not enough. Linear: halves are
/// partitioned off, only the last few items are sorted.
fn beginning(items: &mut [Ranked], enough: impl Fn(f64) -> bool) -> usize {
    let (mut start, mut end, mut before) = (0, items.len(), 0.0);
    while end - start > SORTED {
        let middle = (end - start) / 2;
        items[start..end].select_nth_unstable_by_key(middle, |item| item.rank);
        let half: f64 = items[start..start + middle].iter().map(|item| f64::from(item.mass)).sum();
        if enough(before + half) {
            end = start + middle;
        } else {
            start += middle;
            before += half;
        }
    }
    items[start..end].sort_unstable_by_key(|item| item.rank);
    for (at, item) in items[start..end].iter().enumerate() {
        before += f64::from(item.mass);
        if enough(before) {
            return start + at + 1;
        }
    }
    end
}

/// Logits from here on have at least `min_p` times the best one's probability. The best one always
/// stays.
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

    proptest! {
        #[test]
        fn partitioning_finds_the_same_beginning_as_sorting(
            masses in prop::collection::vec(1_u16..100, 1..700),
            share in 0.0_f64..1.1,
        ) {
            // Whole numbers: sums are exact in any order.
            let mut items: Vec<Ranked> = masses
                .iter()
                .enumerate()
                .map(|(i, &mass)| Ranked { rank: (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15), mass: f32::from(mass) })
                .collect();
            let target = share * masses.iter().map(|&mass| f64::from(mass)).sum::<f64>();
            let mut sorted = items.clone();
            sorted.sort_by_key(|item| item.rank);
            let mut sum = 0.0;
            let before = sorted.iter().take_while(|item| { sum += f64::from(item.mass); sum < target }).count();
            let expected = (before + 1).min(items.len());
            let found = beginning(&mut items, |mass| mass >= target);
            prop_assert_eq!(found, expected);
            let last = items[..found].iter().map(|item| item.rank).max();
            prop_assert_eq!(last, Some(sorted[found - 1].rank));
        }
    }
}
