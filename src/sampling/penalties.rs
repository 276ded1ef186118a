//! Repeat, presence and frequency penalties: how often each token stands in the window, and what
//! that does to its logit. Repetition of whole runs is DRY's subject (`dry`).

use super::history::History;
use super::params::SamplingParams;

/// Up to so many new events the count list is edited in place; more are sorted and merged in one
/// go.
const FEW: usize = 8;

/// Counts over the window. `accept` is constant time: it notes the event, `settle` folds the notes
/// in, so priming with a long prompt costs one sort and not one search a token.
#[derive(Clone)]
pub(super) struct Penalties {
    repeat: f32,
    presence: f32,
    frequency: f32,
    /// Kept only for a bounded window: without bound nothing ever leaves.
    window: Option<(u32, History)>,
    /// (token, times in the window), ascending by token, no zeros.
    counts: Vec<(u32, u32)>,
    /// (token, came or left), not yet in `counts`.
    pending: Vec<(u32, i32)>,
    /// `counts` lags too far behind: it is made again from the window.
    stale: bool,
    merged: Vec<(u32, u32)>,
}

impl Penalties {
    /// `None` where the parameters switch all three off.
    pub(super) fn new(params: &SamplingParams) -> Option<Penalties> {
        let off = params.repeat_penalty == 1.0 && params.presence_penalty == 0.0 && params.frequency_penalty == 0.0;
        if off || params.penalty_last_n == Some(0) {
            return None;
        }
        Some(Penalties {
            repeat: params.repeat_penalty,
            presence: params.presence_penalty,
            frequency: params.frequency_penalty,
            window: params.penalty_last_n.map(|n| (n, History::new(Some(n)))),
            counts: Vec::new(),
            pending: Vec::new(),
            stale: false,
            merged: Vec::new(),
        })
    }

    pub(super) fn accept(&mut self, token: u32) {
        let gone = self.window.as_mut().and_then(|(_, history)| history.push(token));
        if self.stale {
            return;
        }
        self.pending.push((token, 1));
        if let Some(gone) = gone {
            self.pending.push((gone, -1));
        }
        if let Some((n, _)) = self.window
            && self.pending.len() > 2 * n as usize
        {
            self.stale = true;
            self.pending.clear();
        }
    }

    /// Folds in what was accepted since the last call.
    pub(super) fn settle(&mut self) {
        if self.stale
            && let Some((_, history)) = &self.window
        {
            self.counts.clear();
            self.pending.extend(history.window().iter().map(|&token| (token, 1)));
            self.stale = false;
        }
        if self.pending.len() > FEW {
            self.merge();
        } else {
            for i in 0..self.pending.len() {
                self.edit(self.pending[i]);
            }
        }
        self.pending.clear();
    }

    /// (token, times in the window), ascending by token, as of the last `settle`.
    pub(super) fn counts(&self) -> &[(u32, u32)] {
        &self.counts
    }

    /// The penalised logit of a token that stands `count` times in the window. A negative logit is
    /// multiplied by the repeat penalty, since dividing it would make the token more probable.
    pub(super) fn apply(&self, logit: f32, count: u32) -> f32 {
        let repeated = if logit <= 0.0 { logit * self.repeat } else { logit / self.repeat };
        repeated - (count as f32 * self.frequency + self.presence)
    }

    fn edit(&mut self, (token, change): (u32, i32)) {
        match self.counts.binary_search_by_key(&token, |entry| entry.0) {
            Ok(at) => {
                let count = self.counts[at].1.saturating_add_signed(change);
                if count == 0 {
                    self.counts.remove(at);
                } else {
                    self.counts[at].1 = count;
                }
            }
            // A token leaves only after it came, so this is an arrival.
            Err(at) => self.counts.insert(at, (token, 1)),
        }
    }

    fn merge(&mut self) {
        self.pending.sort_unstable_by_key(|event| event.0);
        self.merged.clear();
        let mut old = self.counts.iter().copied().peekable();
        for events in self.pending.chunk_by(|a, b| a.0 == b.0) {
            let token = events[0].0;
            while let Some(entry) = old.next_if(|entry| entry.0 < token) {
                self.merged.push(entry);
            }
            let before = old.next_if(|entry| entry.0 == token).map_or(0, |entry| entry.1);
            let count = before.saturating_add_signed(events.iter().map(|event| event.1).sum());
            if count > 0 {
                self.merged.push((token, count));
            }
        }
        self.merged.extend(old);
        std::mem::swap(&mut self.counts, &mut self.merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn penalties(last_n: Option<u32>) -> Penalties {
        let params = SamplingParams { presence_penalty: 1.0, penalty_last_n: last_n, ..SamplingParams::greedy() };
        Penalties::new(&params).unwrap()
    }

    fn counted(window: &[u32]) -> Vec<(u32, u32)> {
        let mut counts = std::collections::BTreeMap::new();
        for &token in window {
            *counts.entry(token).or_insert(0) += 1;
        }
        counts.into_iter().collect()
    }

    proptest! {
        #[test]
        fn counts_equal_a_recount_whenever_they_are_asked_for(
            tokens in prop::collection::vec((0_u32..12, prop::bool::weighted(0.2)), 0..200),
            last_n in prop::option::of(1_u32..40),
        ) {
            let mut penalties = penalties(last_n);
            let mut all = Vec::new();
            for (token, ask) in tokens {
                penalties.accept(token);
                all.push(token);
                if ask {
                    penalties.settle();
                    let from = last_n.map_or(0, |n| all.len().saturating_sub(n as usize));
                    prop_assert_eq!(penalties.counts(), &counted(&all[from..])[..]);
                }
            }
        }
    }

    #[test]
    fn a_long_prompt_leaves_only_the_window_behind() {
        let mut penalties = penalties(Some(64));
        (0..100_000).for_each(|token| penalties.accept(token));
        assert!(penalties.pending.capacity() <= 256);
        penalties.settle();
        assert_eq!(penalties.counts().len(), 64);
    }
}
