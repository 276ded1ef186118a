//! DRY: finds the runs that the next token could prolong, and what that should cost. It knows
//! tokens only: which tokens break a run is decided by whoever knows their texts.

use std::sync::Arc;

use super::history::History;
use super::params::Dry;

/// ln(f32::MAX): the largest exponent that a penalty can hold.
const LN_MAX: f64 = 88.722_839;
/// Below this a base grows too slowly to need a bound on the exponent.
const SMALLEST_BOUNDED_BASE: f32 = 1.000_001;

/// DRY state of one sequence.
#[derive(Clone)]
pub(super) struct DryState {
    multiplier: f32,
    base: f32,
    allowed_length: usize,
    /// Sorted.
    breakers: Arc<[u32]>,
    history: History,
    /// Tokens since the last breaker: no run reaches further back.
    since_breaker: usize,
    /// Match lengths of the most recent positions, for the Z algorithm.
    lengths: Vec<usize>,
    /// (token, longest run that it would prolong), then reduced to one entry a token.
    runs: Vec<(u32, usize)>,
    costs: Vec<(u32, f32)>,
}

impl DryState {
    /// `None` where the parameters switch it off.
    pub(super) fn new(dry: &Dry) -> Option<DryState> {
        if !dry.is_on() {
            return None;
        }
        let mut breakers = Arc::clone(&dry.breakers);
        if !breakers.is_sorted() {
            Arc::make_mut(&mut breakers).sort_unstable();
        }
        Some(DryState {
            multiplier: dry.multiplier,
            base: dry.base,
            allowed_length: dry.allowed_length as usize,
            breakers,
            history: History::new(dry.last_n),
            since_breaker: 0,
            lengths: Vec::new(),
            runs: Vec::new(),
            costs: Vec::new(),
        })
    }

    pub(super) fn accept(&mut self, token: u32) {
        self.history.push(token);
        let breaks = self.breakers.binary_search(&token).is_ok();
        self.since_breaker = if breaks { 0 } else { self.since_breaker + 1 };
    }

    /// (token, what to subtract from its logit), ascending by token. Linear in the history.
    pub(super) fn costs(&mut self) -> &[(u32, f32)] {
        self.runs.clear();
        self.costs.clear();
        let window = self.history.window();
        let reach = self.since_breaker.min(window.len());
        if window.len() <= self.allowed_length || reach < self.allowed_length {
            return &self.costs;
        }
        let longest = self.allowed_length.saturating_add(self.largest_exponent()).min(reach);
        let (allowed, runs) = (self.allowed_length, &mut self.runs);
        matches(window, longest, allowed == 0, &mut self.lengths, |next, length| {
            if length < allowed {
                return;
            }
            // A long loop yields the same token again and again: no need to store each.
            match runs.last_mut() {
                Some(last) if last.0 == next => last.1 = last.1.max(length),
                _ => runs.push((next, length)),
            }
        });
        self.runs.sort_unstable();
        for run in self.runs.chunk_by(|a, b| a.0 == b.0) {
            let (token, length) = run[run.len() - 1];
            if self.breakers.binary_search(&token).is_err() {
                self.costs.push((token, self.cost(length)));
            }
        }
        &self.costs
    }

    /// multiplier * base^(length - allowed), at most `f32::MAX`.
    fn cost(&self, length: usize) -> f32 {
        let exponent = length - self.allowed_length;
        let cost = f64::from(self.multiplier) * power(f64::from(self.base), exponent);
        cost.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
    }

    fn largest_exponent(&self) -> usize {
        if self.base > SMALLEST_BOUNDED_BASE { (LN_MAX / f64::from(self.base).ln()) as usize } else { usize::MAX }
    }
}

/// base^exponent by squaring: the same bits everywhere, which `powi` does not promise.
fn power(mut base: f64, mut exponent: usize) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

/// For each earlier place where the window's ending stands too, calls `found` with the token that
/// followed it there and the length of the match, at most `longest`. With `all`, places that match
/// nothing are named too.
///
/// This is the Z algorithm over the reversed window. Places that differ from the last token are
/// skipped by a plain search, so an ordinary text costs little more than one look at each token,
/// and a text of one repeated token stays linear.
fn matches(window: &[u32], longest: usize, all: bool, lengths: &mut Vec<usize>, mut found: impl FnMut(u32, usize)) {
    let count = window.len();
    let back = |i: usize| window[count - 1 - i];
    lengths.clear();
    lengths.resize(longest, 0);
    // The tokens at left..right, counted from the end, are known to equal those at 0..right - left.
    let (mut left, mut right) = (0, 0);
    let mut place = 1;
    while place < count {
        if place >= right && !all {
            match last_index_of(&window[..count - place], back(0)) {
                Some(index) => place = count - 1 - index,
                None => return,
            }
        }
        let known = if place < right { lengths[place - left].min(right - place) } else { 0 };
        let mut length = known;
        if place >= right || known == right - place {
            while length < longest && place + length < count && back(place + length) == back(length) {
                length += 1;
            }
        }
        if place + length > right {
            (left, right) = (place, place + length);
        }
        if let Some(slot) = lengths.get_mut(place) {
            *slot = length;
        }
        found(back(place - 1), length);
        place += 1;
    }
}

/// The last index that holds `value`. Pieces without it are passed over by a loop that becomes
/// vector code.
fn last_index_of(tokens: &[u32], value: u32) -> Option<usize> {
    const PIECE: usize = 64;
    let mut end = tokens.len();
    while end > 0 {
        let start = end.saturating_sub(PIECE);
        let piece = &tokens[start..end];
        if piece.iter().fold(false, |hit, &token| hit | (token == value)) {
            return piece.iter().rposition(|&token| token == value).map(|at| start + at);
        }
        end = start;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn match_lengths_equal_a_direct_comparison(
            window in prop::collection::vec(0_u32..3, 1..80),
            longest in 0_usize..80,
        ) {
            let mut expected = Vec::new();
            for place in 1..window.len() {
                let back = |i: usize| window[window.len() - 1 - i];
                let length = (0..longest)
                    .take_while(|&i| place + i < window.len() && back(place + i) == back(i))
                    .count();
                expected.push((back(place - 1), length));
            }
            let mut seen = Vec::new();
            let mut lengths = Vec::new();
            matches(&window, longest, true, &mut lengths, |next, length| seen.push((next, length)));
            prop_assert_eq!(&seen, &expected);
            seen.clear();
            matches(&window, longest, false, &mut lengths, |next, length| {
                if length > 0 {
                    seen.push((next, length));
                }
            });
            expected.retain(|entry| entry.1 > 0);
            prop_assert_eq!(&seen, &expected);
        }
    }

    #[test]
    fn a_hundred_thousand_equal_tokens_stay_linear() {
        let window = vec![7; 100_000];
        let (mut lengths, mut compared) = (Vec::new(), 0_usize);
        matches(&window, 160, false, &mut lengths, |_, length| compared += usize::from(length == 160));
        assert_eq!(compared, 100_000 - 160);
        assert_eq!(lengths.len(), 160, "memory is bounded by the longest run that counts");
    }
}
