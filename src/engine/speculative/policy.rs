//! How many tokens to draft, and from where: for all decoding sequences of a step together, from
//! measured acceptance and measured costs, for the most tokens per second.
//!
//! A hybrid model computes sequences with the same number of rows together and others one after
//! another, a pass over the weights each, so the sequences of a step share one width; shorter
//! drafts are padded by the caller. A width is worth the sum of the expected tokens of its
//! sequences over the time of the step and of the passes of the MTP head that it takes.
//! Deterministic: no clock, no randomness, no I/O. It drafts nothing itself.

pub(in crate::engine) mod acceptance;
mod cost;
pub(in crate::engine) mod offer;
mod options;
#[cfg(test)]
mod tests;

use cost::Curve;
use offer::{DraftChoice, Offer};
use options::{Costs, Options, Plan};

/// Another width must promise this much more: below it, noise would decide.
const HYSTERESIS: f64 = 1.03;
/// After so many steps at a width this much is enough: a small loss is not kept for ever.
const SETTLED_STEPS: u32 = 32;
const SETTLED_HYSTERESIS: f64 = 1.005;
/// Steps for which a width is kept where the device replays recorded steps: recording one costs
/// about as much as it saves in a dozen.
const STEADY_STEPS: u32 = 16;
/// A gain that is worth recording a step at once: a quotation found or left, drafts that all fail.
const STEADY_HYSTERESIS: f64 = 1.2;
/// Plain steps between probes while drafting does not pay: the first pause and, doubled after each
/// that failed, the longest.
const BACKOFF_MIN: u32 = 16;
const BACKOFF_MAX: u32 = 256;
/// The longest pause is shorter where a probe costs little: plain steps for each step that it is
/// expected to lose (half a percent then), and what a step at another width loses beyond its rows
/// where the device replays recorded steps.
const PAUSE_PER_LOSS: f64 = 200.0;
const STEADY_PROBE_LOSS: f64 = 0.5;
/// Drafted tokens of such a probe: enough to see whether the text has become predictable.
const PROBE_WIDTH: usize = 2;
/// Steps with drafts after which the next pause is the shortest again.
const GOOD_RUN: u32 = 32;
/// Steps that only measure a cost: so many at first, one in a hundred later.
const COST_PROBES_AT_FIRST: u64 = 4;
const STEPS_PER_COST_PROBE: u64 = 100;
/// Measurements of others after which a cost is measured again.
const COST_STALE: u64 = 400;
/// A neighbour that promises less than this part of the chosen width is not worth a look.
const COST_PROBE_WORTH: f64 = 0.8;
/// Steps of a cost probe where the device replays recorded steps, and how many of them only warm it
/// up.
const STEADY_PROBE: u64 = 3;
const STEADY_WARM_UP: u32 = 2;

/// A run of steps at a width chosen to measure its cost.
#[derive(Clone, Copy)]
struct CostProbe {
    width: usize,
    n_left: u64,
}

/// A draft made while drafting does not pay.
#[derive(Clone, Copy)]
struct DraftProbe {
    /// Accepted tokens of all sequences before it.
    accepted: u64,
    /// Accepted tokens with which it would have paid.
    needed: f64,
}

/// When to try drafts again.
struct Backoff {
    /// Plain steps since the last draft, and how many there are to be.
    n_plain: u32,
    pause: u32,
    /// The pause after the next failure, before doubling.
    length: u32,
    /// Its outcome is not known yet.
    probe: Option<DraftProbe>,
    /// Steps with drafts in a row.
    n_drafting: u32,
}

/// The policy of one engine.
pub(in crate::engine) struct Policy {
    steady_width: bool,
    costs: Costs,
    options: Options,
    width: usize,
    /// Steps since it was chosen.
    held: u32,
    backoff: Backoff,
    cost_probe: Option<CostProbe>,
    n_steps: u64,
    n_cost_probes: u64,
    last_cost_probe: u64,
    /// Rows of the last measured step and for how many in a row before it they were the same.
    last_rows: (usize, u32),
    gain: Option<f64>,
}

impl Policy {
    /// `steady_width`: the device replays a recorded step as long as the number of rows stays.
    pub fn new(steady_width: bool) -> Policy {
        Policy {
            steady_width,
            costs: Costs { step: Curve::new(), pass: Curve::new() },
            options: Options::default(),
            width: 0,
            held: SETTLED_STEPS,
            backoff: Backoff { n_plain: 0, pause: BACKOFF_MIN, length: BACKOFF_MIN, probe: None, n_drafting: 0 },
            cost_probe: None,
            n_steps: 0,
            n_cost_probes: 0,
            last_cost_probe: 0,
            last_rows: (0, 0),
            gain: None,
        }
    }

    /// Fills one `DraftChoice` per offer, in their order; returns the drafted rows per sequence
    /// (the common width less one), 0: plain decode. Never more than the longest draft on offer.
    /// Before a step was measured: all that is on offer.
    pub fn choose(&mut self, offers: &[Offer<'_>], choices: &mut Vec<DraftChoice>) -> usize {
        choices.clear();
        let longest = self.options.take(offers);
        let plan = if longest == 0 {
            self.gain = self.gain.map(|_| 1.0);
            Plan::default()
        } else if self.costs.step.is_known() {
            self.options.price(&self.costs);
            self.n_steps += 1;
            self.decide(offers, longest)
        } else {
            self.options.all()
        };
        choices.extend(self.options.choices(plan));
        plan.width
    }

    /// As `choose`, without a question whether it pays.
    pub fn choose_most(&mut self, offers: &[Offer<'_>], choices: &mut Vec<DraftChoice>) -> usize {
        choices.clear();
        let longest = self.options.take(offers);
        let plan = if longest == 0 { Plan::default() } else { self.options.all() };
        choices.extend(self.options.choices(plan));
        plan.width
    }

    /// A step without prefill rows took so long. Times that cannot be are ignored.
    pub fn observe_step(&mut self, n_rows: usize, seconds: f64) {
        let same = if self.last_rows.0 == n_rows { self.last_rows.1.saturating_add(1) } else { 0 };
        self.last_rows = (n_rows, same);
        let settled = !self.steady_width || same >= STEADY_WARM_UP;
        self.costs.step.observe(n_rows, seconds, settled);
    }

    /// A pass of the MTP head for so many sequences took so long. Ignored until a step was
    /// measured.
    pub fn observe_draft_pass(&mut self, n_sequences: usize, seconds: f64) {
        if let Some(level) = self.costs.step.level() {
            self.costs.pass.observe(n_sequences, seconds / level, true);
        }
    }

    /// Speed-up expected of the last choice against no drafting (1.0: none); `None` while costs are
    /// unknown.
    pub fn gain(&self) -> Option<f64> {
        self.gain
    }

    fn decide(&mut self, offers: &[Offer<'_>], longest: usize) -> Plan {
        let accepted = offers.iter().map(|o| o.acceptance.accepted()).sum();
        self.backoff.settle(accepted);
        let next = self.settle_width(longest);
        self.gain = Some(next.rate() / self.options.at(0).rate());
        if next.width == 0 {
            self.cost_probe = None;
            let n = offers.len() as f64;
            let probe = self.options.best(1, PROBE_WIDTH);
            let extra = probe.seconds / next.seconds - 1.0;
            let recording = if self.steady_width { STEADY_PROBE_LOSS } else { 0.0 };
            let loss = extra - (probe.tokens / n - 1.0) + recording;
            if self.backoff.is_due(loss) {
                self.backoff.begin(DraftProbe { accepted, needed: extra * n });
                return probe;
            }
            return next;
        }
        self.backoff.drafting();
        match self.probe_cost(next, offers.len(), longest) {
            Some(width) => self.options.at(width),
            None => next,
        }
    }

    /// The width to go on with: the best one if it is enough better than the present one.
    fn settle_width(&mut self, longest: usize) -> Plan {
        let (best, current) = (self.options.best(0, longest), self.options.at(self.width));
        let threshold = match self.held {
            0..STEADY_STEPS if self.steady_width => STEADY_HYSTERESIS,
            0..SETTLED_STEPS => HYSTERESIS,
            _ => SETTLED_HYSTERESIS,
        };
        let next = if best.rate() > threshold * current.rate() { best } else { current };
        self.held = if next.width == self.width { self.held.saturating_add(1) } else { 0 };
        self.width = next.width;
        next
    }

    /// A width to measure instead of `next`, if it is time and one needs it: plain decoding, which
    /// every gain is measured against, before a neighbour.
    fn probe_cost(&mut self, next: Plan, n: usize, longest: usize) -> Option<usize> {
        if let Some(probe) = self.cost_probe.take_if(|p| p.n_left == 0 || p.width > longest) {
            self.last_cost_probe = self.n_steps + probe.n_left;
        }
        if let Some(probe) = &mut self.cost_probe {
            probe.n_left -= 1;
            return Some(probe.width);
        }
        let length = if self.steady_width { STEADY_PROBE } else { 1 };
        if self.n_cost_probes + length > COST_PROBES_AT_FIRST + self.n_steps / STEPS_PER_COST_PROBE {
            return None;
        }
        let age = |width: usize| self.costs.step.age(n * (width + 1));
        let stale = |width: usize| age(width).is_none_or(|age| age > COST_STALE);
        let early = age(0).is_none();
        if !early && self.n_steps - self.last_cost_probe.min(self.n_steps) < STEPS_PER_COST_PROBE {
            return None;
        }
        let worth = |width: &usize| {
            *width != next.width && stale(*width) && self.options.at(*width).rate() > COST_PROBE_WORTH * next.rate()
        };
        let near = next.width.saturating_sub(2).max(1)..=(next.width + 2).min(longest);
        let width = if stale(0) { 0 } else { near.filter(worth).max_by_key(|&w| age(w).unwrap_or(u64::MAX))? };
        self.n_cost_probes += length;
        self.last_cost_probe = self.n_steps;
        self.cost_probe = Some(CostProbe { width, n_left: length - 1 });
        Some(width)
    }
}

impl Backoff {
    /// Takes the outcome of the last probe: one that paid is repeated at once, one that did not
    /// doubles the pause.
    fn settle(&mut self, accepted: u64) {
        let Some(probe) = self.probe.take() else { return };
        if accepted.saturating_sub(probe.accepted) as f64 >= probe.needed.max(1.0) {
            self.length = (self.length / 2).max(BACKOFF_MIN);
            self.pause = 0;
        } else {
            self.length = (self.length * 2).min(BACKOFF_MAX);
            self.pause = self.length;
        }
    }

    /// Counts a plain step, unless it is time for a probe instead. `loss`: plain steps that the
    /// probe is expected to lose.
    fn is_due(&mut self, loss: f64) -> bool {
        if self.n_drafting >= GOOD_RUN {
            (self.length, self.pause) = (BACKOFF_MIN, BACKOFF_MIN);
        }
        self.n_drafting = 0;
        let longest = (loss * PAUSE_PER_LOSS).clamp(f64::from(BACKOFF_MIN), f64::from(BACKOFF_MAX)) as u32;
        if self.n_plain >= self.pause.min(longest) {
            return true;
        }
        self.n_plain += 1;
        false
    }

    fn begin(&mut self, probe: DraftProbe) {
        self.n_plain = 0;
        self.probe = Some(probe);
    }

    fn drafting(&mut self) {
        self.n_drafting = self.n_drafting.saturating_add(1);
        self.n_plain = 0;
    }
}
