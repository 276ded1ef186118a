//! The truncations that work on a short list: typical, top-p, min-p. All see the distribution at
//! temperature 1, because temperature comes last. Each keeps at least one candidate.

use super::shortlist::{Candidate, Centre, Shortlist, min_p_floor};

impl Shortlist {
    /// Locally typical sampling: keeps the tokens whose surprise is nearest to the entropy, until
    /// their mass is over `typical_p`.
    pub(super) fn keep_typical(&mut self, typical_p: f32) {
        let total = self.weigh(1.0);
        let top = self.top();
        // Surprise minus entropy is the mean of the logits minus the logit: the normaliser falls
        // out.
        let weighted = self.list.iter().zip(&self.weights).map(|(c, &w)| f64::from(w) * f64::from(c.logit - top));
        let mean = (weighted.sum::<f64>() / total) as f32;
        self.keep_near(Centre { top, mean }, f64::from(typical_p) * total);
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
}
