//! What every common width of a step would give: expected tokens against expected time. Decides
//! nothing.

use super::acceptance::Expected;
use super::cost::Curve;
use super::offer::{DraftChoice, Offer, TextOffer};
use crate::engine::request::draft::{DraftSource, MAX_DRAFT_TOKENS};

/// A pass of the MTP head for one sequence in parts of a plain step, until one was measured: one
/// layer and the output matrix.
const PRIOR_PASS: f64 = 0.12;

/// Measured costs.
pub(super) struct Costs {
    /// Seconds of a step by rows.
    pub step: Curve,
    /// Passes of the MTP head by sequences, in parts of the level of `step`, so that a slower clock
    /// moves both.
    pub pass: Curve,
}

/// Drafted rows per sequence, and how many passes of the MTP head go into them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub width: usize,
    pub passes: usize,
    /// Expected tokens of the step, all sequences together.
    pub tokens: f64,
    /// Expected seconds.
    pub seconds: f64,
}

impl Plan {
    /// Tokens per second.
    pub fn rate(&self) -> f64 {
        self.tokens / self.seconds
    }
}

/// What one sequence can draft.
#[derive(Clone, Copy)]
struct Sequence {
    mtp_max: usize,
    mtp: Expected,
    text_max: usize,
    text: Expected,
    source: DraftSource,
}

impl Sequence {
    fn new(offer: &Offer<'_>) -> Sequence {
        let none = TextOffer { source: DraftSource::Lookup, n_tokens: 0, n_match: 0 };
        let TextOffer { source, n_tokens, n_match } = offer.text.unwrap_or(none);
        Sequence {
            mtp_max: offer.mtp_max.min(MAX_DRAFT_TOKENS),
            mtp: offer.acceptance.expected(DraftSource::Mtp, 0),
            text_max: n_tokens.min(MAX_DRAFT_TOKENS),
            text: offer.acceptance.expected(source, n_match),
            source,
        }
    }

    /// The better source for `width` drafted rows of which the MTP head may fill `passes`. Text
    /// wins a tie: it is free.
    fn best(&self, width: usize, passes: usize) -> (DraftChoice, f64) {
        let (n_mtp, n_text) = (self.mtp_max.min(passes).min(width), self.text_max.min(width));
        if n_text > 0 && self.text[n_text] >= self.mtp[n_mtp] {
            (DraftChoice { source: self.source, n: n_text }, self.text[n_text])
        } else {
            (DraftChoice { source: DraftSource::Mtp, n: n_mtp }, self.mtp[n_mtp])
        }
    }
}

/// The plans for one step. Allocates only while the number of sequences grows.
#[derive(Default)]
pub(super) struct Options {
    sequences: Vec<Sequence>,
    /// Best plan by width, `0..=longest`.
    by_width: [Plan; MAX_DRAFT_TOKENS + 1],
    longest: usize,
}

impl Options {
    /// Takes the offers; returns the longest draft among them.
    pub fn take(&mut self, offers: &[Offer<'_>]) -> usize {
        self.sequences.clear();
        self.sequences.extend(offers.iter().map(Sequence::new));
        self.longest = self.sequences.iter().map(|s| s.mtp_max.max(s.text_max)).max().unwrap_or(0);
        self.longest
    }

    /// All that is on offer, for when nothing is known about costs.
    pub fn all(&self) -> Plan {
        let passes = self.sequences.iter().map(|s| s.mtp_max).max().unwrap_or(0);
        Plan { width: self.longest, passes, tokens: 1.0, seconds: 1.0 }
    }

    /// Works out the best plan of every width. `Costs::step` must be known.
    pub fn price(&mut self, costs: &Costs) {
        let n = self.sequences.len();
        let level = costs.step.level().unwrap_or(1.0);
        for width in 0..=self.longest {
            let verify = costs.step.cost(n * (width + 1)).unwrap_or(1.0);
            let mut best: Option<Plan> = None;
            for passes in 0..=width {
                let (mut tokens, mut n_mtp, mut used, mut drafts) = (0.0, 0, 0, width == 0);
                for (choice, expected) in self.sequences.iter().map(|s| s.best(width, passes)) {
                    tokens += expected;
                    drafts |= choice.n > 0;
                    if choice.source == DraftSource::Mtp && choice.n > 0 {
                        n_mtp += 1;
                        used = used.max(choice.n);
                    }
                }
                // Rows that only pad are no draft: a probe of them would tell nothing.
                if !drafts {
                    continue;
                }
                let draft = if used == 0 {
                    0.0
                } else {
                    let prior = PRIOR_PASS * costs.step.cost(n_mtp).unwrap_or(1.0);
                    used as f64 * costs.pass.cost(n_mtp).map_or(prior, |parts| parts * level)
                };
                let plan = Plan { width, passes: used, tokens, seconds: verify + draft };
                if best.is_none_or(|b| plan.rate() > b.rate()) {
                    best = Some(plan);
                }
            }
            self.by_width[width] = best.unwrap_or_default();
        }
    }

    /// The best plan with `width` drafted rows, at most the longest on offer.
    pub fn at(&self, width: usize) -> Plan {
        self.by_width[width.min(self.longest)]
    }

    /// The best plan of the widths `from..=to`, both limited to the longest on offer.
    pub fn best(&self, from: usize, to: usize) -> Plan {
        let from = from.min(self.longest);
        let widths = &self.by_width[from..=to.clamp(from, self.longest)];
        widths.iter().fold(widths[0], |best, plan| if plan.rate() > best.rate() { *plan } else { best })
    }

    /// What each sequence drafts under `plan`, in the order of the offers.
    pub fn choices(&self, plan: Plan) -> impl Iterator<Item = DraftChoice> + '_ {
        self.sequences.iter().map(move |s| s.best(plan.width, plan.passes).0)
    }
}
