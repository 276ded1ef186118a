//! The cut: from a row to the short list of tokens that can still be chosen, without sorting the
//! vocabulary. What happens to the list afterwards is the subject of `truncate` and `xtc`.
//!
//! The k-th largest of the block maxima is a floor that at least k values reach, and only blocks
//! whose maximum reaches it have to be looked through. What lies below is never copied. The list
//! keeps the order of the ids, so the same set is the same list whichever way it was found.

use super::row::{BLOCK, Peaks, Row, weight};
use super::shortlist::{Candidate, Centre, Shortlist, from_ordered, min_p_floor, ordered};

/// Which block maximum the nucleus search takes as its floor, one try after another, in percent of
/// the blocks from the largest on. A peaked row ends at the first; a flat one goes on to
/// everything.
const REACHES: [usize; 3] = [5, 40, 100];

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

    /// The fewest largest whose mass reaches `top_p` of the row's, `total` being the sum of all
    /// weights.
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

    /// The tokens nearest to the row's mean logit, until their mass is over `typical_p` of the
    /// row's (see `keep_typical`), `total` being the sum of all weights.
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

    /// A value that at least `count` values of the row reach; everything but -inf reaches it where
    /// the maxima cannot say.
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

/// How many blocks the search for a mass looks through, one try after another; the last is
/// everything.
fn reaches(peaks: Peaks<'_>) -> impl Iterator<Item = usize> + use<> {
    let blocks = peaks.maxima.len();
    REACHES.into_iter().map(move |percent| (blocks * percent).div_ceil(100)).chain([usize::MAX])
}
