//! The truncations that work on a short list: typical, top-p, min-p. All see the distribution at temperature 1, because
//! temperature comes last. Each keeps at least one candidate.

use super::candidates::{Candidate, Ranked, Shortlist, min_p_floor, rank};

/// Below so many items sorting beats another round of partitioning.
const SORTED: usize = 48;

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
    /// Locally typical sampling: keeps the tokens whose surprise is nearest to the entropy, until their mass is over
    /// `typical_p`.
    pub(super) fn keep_typical(&mut self, typical_p: f32) {
        let total = self.weigh(1.0);
        let top = self.top();
        // Surprise minus entropy is the mean of the logits minus the logit: the normaliser falls out.
        let weighted = self.list.iter().zip(&self.weights).map(|(c, &w)| f64::from(w) * f64::from(c.logit - top));
        let mean = (weighted.sum::<f64>() / total) as f32;
        self.keep_near(Centre { top, mean }, f64::from(typical_p) * total);
    }

    /// Keeps the tokens nearest to `centre` until their mass is over `target`. Needs the weights of this list.
    pub(super) fn keep_near(&mut self, centre: Centre, target: f64) {
        self.keep_mass(|mass| mass > target, |candidate| rank(centre.distance(candidate), candidate.token));
    }

    /// Nucleus sampling: keeps the fewest largest whose mass reaches `top_p`.
    pub(super) fn keep_top_p(&mut self, top_p: f32) {
        let target = f64::from(top_p) * self.weigh(1.0);
        self.keep_mass(|mass| mass >= target, Candidate::rank);
    }

    /// Keeps the tokens with at least `min_p` times the best one's probability.
    pub(super) fn keep_min_p(&mut self, min_p: f32) {
        let floor = min_p_floor(self.top(), min_p);
        self.list.retain(|candidate| candidate.logit >= floor);
    }

    /// Keeps the shortest beginning, in the order of `place`, whose mass is `enough`. Needs the weights of this list.
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

/// Moves the shortest beginning (in order of rank) whose mass is `enough` to the front and gives its length: at least 1,
/// and everything where the whole is not enough. Linear: halves are partitioned off, only the last few items are sorted.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
