//! How often the drafts of one sequence come true: per source, match length and position. Pure
//! counting with forgetting.

use crate::engine::request::draft::{DraftSource, MAX_DRAFT_TOKENS};

/// Observations after which older ones weigh little: text changes its kind every few hundred
/// tokens.
const MEMORY: f64 = 64.0;
/// Memory of the estimate that notices a change of the text early.
const FAST_MEMORY: f64 = 12.0;
/// Standard deviations between the two estimates from which on the fast one is believed.
const CHANGED: f64 = 2.5;
/// Part of its evidence that a position loses when a draft was made without it, so what has not
/// been tried for a few hundred drafts is tried again.
const AGEING: f64 = 1.0 / 128.0;

/// Prior of the first position: MTP heads of current models reach 0.6 to 0.9 there.
const MTP_PRIOR: f64 = 0.7;
/// Each further position of a head is a little worse than the one before, by its own estimate as
/// input.
const MTP_NEXT: f64 = 0.95;
/// Match length from which on a bucket begins, and its prior: a match of three tokens is often
/// chance, one of twelve is a quotation.
const LOOKUP_BUCKETS: [(usize, f64); 3] = [(0, 0.45), (6, 0.7), (12, 0.9)];
/// What a constraint forces comes true unless the model cuts the same text into other tokens.
const FORCED_PRIOR: f64 = 0.95;
/// Observations that a prior weighs as much as. Small enough that a source that never comes true is
/// dropped within some ten drafts at the lowest cost of a row, large enough that one bad draft does
/// not end it.
const PRIOR_WEIGHT: f64 = 4.0;
/// The same for the estimate that a position takes over from the one before.
const CHAIN_WEIGHT: f64 = 3.0;

/// Expected tokens of a step by number of drafted ones, `[0]` is 1: the model's own.
pub(super) type Expected = [f64; MAX_DRAFT_TOKENS + 1];

/// A rate of yes in yes-or-no observations, forgetting.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    hits: f64,
    n: f64,
    fast_hits: f64,
    fast_n: f64,
}

impl Rate {
    fn observe(&mut self, hit: bool) {
        let hit = f64::from(u8::from(hit));
        self.hits += hit - self.hits / MEMORY;
        self.n += 1.0 - self.n / MEMORY;
        self.fast_hits += hit - self.fast_hits / FAST_MEMORY;
        self.fast_n += 1.0 - self.fast_n / FAST_MEMORY;
        let (slow, fast) = (self.hits / self.n, self.fast_hits / self.fast_n);
        // An exponential window of m has the variance of about 2 m observations. The 0.02 is for
        // rates near 0 and 1.
        let deviation = ((slow * (1.0 - slow) + 0.02) / (2.0 * self.fast_n)).sqrt();
        if self.fast_n > FAST_MEMORY / 2.0 && (fast - slow).abs() > CHANGED * deviation {
            (self.hits, self.n) = (self.fast_hits, self.fast_n);
        }
    }

    fn age(&mut self) {
        self.hits *= 1.0 - AGEING;
        self.n *= 1.0 - AGEING;
    }

    /// The prior is forgotten like the oldest observation: a rate of nothing is to come out as
    /// nothing.
    fn estimate(&self, prior: f64, weight: f64) -> f64 {
        let weight = weight * (1.0 - self.n / MEMORY).max(1e-3);
        ((self.hits + weight * prior) / (self.n + weight)).clamp(0.0, 1.0)
    }
}

type Rates = [Rate; MAX_DRAFT_TOKENS];

/// Acceptance of one sequence: how often position i of a draft is right when all before it are.
/// Begins from a prior: 0.7 for the first position of the MTP head, 0.45, 0.7 and 0.9 for lookup by
/// match length, 0.95 for what is forced; each position takes over the estimate of the one before
/// until it has observations of its own.
#[derive(Clone, Debug)]
pub(in crate::engine) struct Acceptance {
    mtp: Rates,
    lookup: [Rates; LOOKUP_BUCKETS.len()],
    forced: Rates,
    accepted: u64,
}

impl Acceptance {
    pub fn new() -> Acceptance {
        let none = [Rate::default(); MAX_DRAFT_TOKENS];
        Acceptance { mtp: none, lookup: [none; LOOKUP_BUCKETS.len()], forced: none, accepted: 0 }
    }

    /// A draft of `n_drafted` tokens was verified and its first `n_accepted` were right. `n_match`
    /// is of meaning for lookup alone. Rows that only pad are not drafted tokens.
    pub fn observe(&mut self, source: DraftSource, n_match: usize, n_drafted: usize, n_accepted: usize) {
        let n_drafted = n_drafted.min(MAX_DRAFT_TOKENS);
        let n_accepted = n_accepted.min(n_drafted);
        if n_drafted == 0 {
            return;
        }
        self.accepted += n_accepted as u64;
        let used = match source {
            DraftSource::Mtp => 0,
            DraftSource::Forced => 1,
            DraftSource::Lookup => 2 + bucket(n_match),
        };
        for (i, rates) in [&mut self.mtp, &mut self.forced].into_iter().chain(&mut self.lookup).enumerate() {
            if i == used {
                rates[..n_accepted].iter_mut().for_each(|r| r.observe(true));
                if n_accepted < n_drafted {
                    rates[n_accepted].observe(false);
                }
                rates[n_drafted..].iter_mut().for_each(Rate::age);
            } else {
                rates.iter_mut().for_each(Rate::age);
            }
        }
    }

    /// Expected tokens of a step for every length of a draft from `source`.
    pub(super) fn expected(&self, source: DraftSource, n_match: usize) -> Expected {
        let (rates, mut prior, next) = match source {
            DraftSource::Mtp => (&self.mtp, MTP_PRIOR, MTP_NEXT),
            DraftSource::Forced => (&self.forced, FORCED_PRIOR, 1.0),
            DraftSource::Lookup => (&self.lookup[bucket(n_match)], LOOKUP_BUCKETS[bucket(n_match)].1, 1.0),
        };
        let mut expected = [1.0; MAX_DRAFT_TOKENS + 1];
        let (mut reached, mut weight) = (1.0, PRIOR_WEIGHT);
        for (i, rate) in rates.iter().enumerate() {
            let estimate = rate.estimate(prior, weight);
            reached *= estimate;
            expected[i + 1] = expected[i] + reached;
            prior = estimate * next;
            weight = CHAIN_WEIGHT;
        }
        expected
    }

    /// Accepted tokens since the beginning.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }
}

fn bucket(n_match: usize) -> usize {
    LOOKUP_BUCKETS.iter().rposition(|&(from, _)| n_match >= from).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn first(a: &Acceptance, source: DraftSource, n_match: usize) -> f64 {
        a.expected(source, n_match)[1] - 1.0
    }

    #[test]
    fn it_begins_from_the_prior() {
        let a = Acceptance::new();
        assert!((first(&a, DraftSource::Mtp, 0) - 0.7).abs() < 1e-9);
        for (n_match, prior) in [(3, 0.45), (5, 0.45), (6, 0.7), (11, 0.7), (12, 0.9), (32, 0.9)] {
            assert!((first(&a, DraftSource::Lookup, n_match) - prior).abs() < 1e-9, "{n_match}");
        }
    }

    #[test]
    fn each_position_and_each_source_learns_for_itself() {
        let mut a = Acceptance::new();
        for _ in 0..200 {
            a.observe(DraftSource::Mtp, 0, 3, 1);
        }
        let e = a.expected(DraftSource::Mtp, 0);
        assert!(e[1] > 1.95 && e[2] - e[1] < 0.05, "{e:?}");
        assert!((first(&a, DraftSource::Lookup, 12) - 0.9).abs() < 1e-9);
        for _ in 0..200 {
            a.observe(DraftSource::Lookup, 4, 2, 0);
        }
        assert!(first(&a, DraftSource::Lookup, 4) < 0.05);
        assert!((first(&a, DraftSource::Lookup, 12) - 0.9).abs() < 1e-9);
    }

    #[test]
    fn a_change_of_the_text_is_noticed_within_twelve_drafts() {
        let mut a = Acceptance::new();
        (0..500).for_each(|_| a.observe(DraftSource::Mtp, 0, 1, 1));
        (0..12).for_each(|_| a.observe(DraftSource::Mtp, 0, 1, 0));
        assert!(first(&a, DraftSource::Mtp, 0) < 0.5);
        (0..500).for_each(|_| a.observe(DraftSource::Mtp, 0, 1, 0));
        (0..12).for_each(|_| a.observe(DraftSource::Mtp, 0, 1, 1));
        assert!(first(&a, DraftSource::Mtp, 0) > 0.5);
    }

    #[test]
    fn what_is_not_tried_any_more_goes_back_to_its_prior() {
        let mut a = Acceptance::new();
        (0..20).for_each(|_| a.observe(DraftSource::Lookup, 20, 16, 0));
        assert!(first(&a, DraftSource::Lookup, 20) < 0.3);
        (0..400).for_each(|_| a.observe(DraftSource::Mtp, 0, 2, 1));
        assert!(first(&a, DraftSource::Lookup, 20) > 0.6);
    }

    proptest! {
        #[test]
        fn expectations_are_finite_and_grow_with_the_draft(
            seen in prop::collection::vec((any::<bool>(), any::<usize>(), 0usize..40, 0usize..40), 0..200),
        ) {
            let mut a = Acceptance::new();
            for (mtp, n_match, n_drafted, n_accepted) in seen {
                let source = if mtp { DraftSource::Mtp } else { DraftSource::Lookup };
                a.observe(source, n_match, n_drafted, n_accepted);
                let e = a.expected(source, n_match);
                prop_assert!(e[0] == 1.0 && e.windows(2).all(|w| w[1] >= w[0] && w[1] <= w[0] + 1.0));
            }
        }
    }
}
