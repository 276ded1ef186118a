//! XTC (exclude top choices): removes all but the least probable of the tokens that reach a
//! threshold.

use super::params::Xtc;
use super::shortlist::{Candidate, Shortlist};
use super::stream::Stream;

impl Xtc {
    /// Two tokens cannot both reach a threshold over one half, so such a threshold switches it off
    /// as a zero does.
    fn is_on(&self) -> bool {
        self.probability > 0.0 && self.threshold <= 0.5
    }

    /// Whether it acts on this token. Draws where it is switched on, whatever the list holds, so
    /// that the stream's place depends only on how many tokens were sampled.
    pub(super) fn strikes(&self, stream: &mut Stream) -> bool {
        self.is_on() && stream.unit() < f64::from(self.probability)
    }
}

impl Shortlist {
    /// Keeps the least probable of the tokens with a probability of `threshold` or more (in this
    /// list, at temperature 1; of equal ones the highest id) and all tokens below the threshold.
    pub(super) fn exclude_top_choices(&mut self, threshold: f32) {
        let needed = f64::from(threshold) * self.weigh(1.0);
        let items = self.list.iter().zip(&self.weights);
        let reaching = items.filter(|&(_, &weight)| f64::from(weight) >= needed).map(|(candidate, _)| candidate.rank());
        if let Some(last) = reaching.max() {
            self.list.retain(|candidate: &Candidate| candidate.rank() >= last);
        }
    }

    /// The tokens of the list but the one that ranks last, in order of their ids.
    pub(super) fn all_but_the_least(&self) -> impl Iterator<Item = u32> + '_ {
        let last = self.list.iter().map(Candidate::rank).max();
        self.list.iter().filter(move |candidate| Some(candidate.rank()) != last).map(|candidate| candidate.token)
    }
}
