//! The rules of the chain written down naively: f64, full sorts, counting by search. Slow and easy to check by eye.

use plateau::sampling::{Mask, SamplingParams};

#[derive(Clone, Debug)]
pub struct Case {
    pub logits: Vec<f32>,
    pub params: SamplingParams,
    pub history: Vec<u32>,
    pub mask: Option<Vec<u32>>,
}

/// A sum this near to its limit may be on either side of it in another precision.
const MARGIN: f64 = 3e-6;

/// Candidates and probabilities after the whole chain.
pub struct Reference {
    /// (token, logit), ascending by token.
    list: Vec<(u32, f64)>,
    temperature: f64,
    pub ambiguous: bool,
}

/// Logits after bias, penalties, DRY and mask, in f32 as the chain has them.
pub fn changed(case: &Case) -> Vec<f32> {
    let (params, history) = (&case.params, &case.history);
    let costs = dry_costs(case);
    let from = params.penalty_last_n.map_or(0, |n| history.len().saturating_sub(n as usize));
    let mut counts = std::collections::BTreeMap::new();
    history[from..].iter().for_each(|&token| *counts.entry(token).or_insert(0_u32) += 1);
    (0..case.logits.len() as u32)
        .map(|token| {
            let mut logit = case.logits[token as usize];
            for (_, bias) in params.logit_bias.iter().filter(|entry| entry.0 == token) {
                logit += bias;
            }
            if let Some(&count) = counts.get(&token) {
                logit = if logit <= 0.0 { logit * params.repeat_penalty } else { logit / params.repeat_penalty };
                logit -= count as f32 * params.frequency_penalty + params.presence_penalty;
            }
            if let Some((_, cost)) = costs.iter().find(|entry| entry.0 == token) {
                logit -= cost;
            }
            let allowed = case.mask.as_deref().is_none_or(|mask| Mask(mask).allows(token));
            if allowed { logit } else { f32::NEG_INFINITY }
        })
        .collect()
}

fn dry_costs(case: &Case) -> Vec<(u32, f32)> {
    let dry = &case.params.dry;
    let last_n = dry.last_n.map_or(case.history.len(), |n| n as usize);
    let window = &case.history[case.history.len().saturating_sub(last_n)..];
    let allowed = dry.allowed_length as usize;
    if dry.multiplier == 0.0 || window.len() <= allowed {
        return Vec::new();
    }
    let back = |i: usize| window[window.len() - 1 - i];
    let reach = (0..window.len()).find(|&i| dry.breakers.contains(&back(i))).unwrap_or(window.len());
    if reach < allowed {
        return Vec::new();
    }
    let mut longest = std::collections::BTreeMap::new();
    for place in 1..window.len() {
        let same = (0..window.len() - place).take_while(|&i| i < reach && back(i) == back(place + i)).count();
        if same >= allowed && !dry.breakers.contains(&back(place - 1)) {
            let entry = longest.entry(back(place - 1)).or_insert(same);
            *entry = same.max(*entry);
        }
    }
    let cost = |length: usize| {
        let bound = if dry.base > 1.000_001 { 88.722_839 / f64::from(dry.base).ln() } else { 1e9 };
        let exponent = (length - allowed).min(bound as usize);
        (f64::from(dry.multiplier) * f64::from(dry.base).powf(exponent as f64)).min(f64::from(f32::MAX)) as f32
    };
    longest.into_iter().map(|(token, length)| (token, cost(length))).collect()
}

/// The largest logit, lowest id on ties.
pub fn greedy(case: &Case) -> Option<u32> {
    by_logit(&changed(case)).first().copied()
}

/// Tokens that are not -inf, best first.
pub fn by_logit(logits: &[f32]) -> Vec<u32> {
    let mut tokens: Vec<u32> = (0..logits.len() as u32).filter(|&t| logits[t as usize] > f32::NEG_INFINITY).collect();
    tokens.sort_by(|&a, &b| logits[b as usize].partial_cmp(&logits[a as usize]).unwrap().then(a.cmp(&b)));
    tokens
}

pub fn log_softmax(logits: &[f32]) -> Vec<f64> {
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let total: f64 = logits.iter().map(|&x| (f64::from(x) - f64::from(top)).exp()).sum();
    let of =
        |x: f32| if x == f32::NEG_INFINITY { f64::NEG_INFINITY } else { f64::from(x) - f64::from(top) - total.ln() };
    logits.iter().map(|&x| of(x)).collect()
}

impl Reference {
    /// `None`: nothing is left.
    pub fn of(case: &Case) -> Option<Reference> {
        let params = &case.params;
        let logits = changed(case);
        let mut tokens = by_logit(&logits);
        if params.top_k > 0 {
            tokens.truncate(params.top_k as usize);
        }
        let list = tokens.into_iter().map(|token| (token, f64::from(logits[token as usize]))).collect();
        let mut reference = Reference { list, temperature: f64::from(params.temperature), ambiguous: false };
        if reference.list.is_empty() {
            return None;
        }
        if params.typical_p < 1.0 {
            reference.typical(f64::from(params.typical_p));
        }
        if params.top_p < 1.0 {
            reference.top_p(f64::from(params.top_p));
        }
        if params.min_p > 0.0 {
            reference.min_p(f64::from(params.min_p));
        }
        if params.xtc.probability == 1.0 && params.xtc.threshold <= 0.5 {
            reference.xtc(f64::from(params.xtc.threshold));
        }
        reference.list.sort_by_key(|entry| entry.0);
        Some(reference)
    }

    /// Notes a comparison that rounding could turn.
    fn near(&mut self, a: f64, b: f64) {
        self.ambiguous |= (a - b).abs() < MARGIN;
    }

    fn softmax(&self, temperature: f64) -> Vec<f64> {
        let top = self.list.iter().map(|entry| entry.1).fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = self.list.iter().map(|entry| ((entry.1 - top) / temperature).exp()).collect();
        let total: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / total).collect()
    }

    fn best_first(&mut self) {
        self.list.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap().then(a.0.cmp(&b.0)));
    }

    fn typical(&mut self, limit: f64) {
        let p = self.softmax(1.0);
        let entropy: f64 = p.iter().filter(|&&p| p > 0.0).map(|p| -p * p.ln()).sum();
        let top = self.list.iter().map(|entry| entry.1).fold(f64::NEG_INFINITY, f64::max);
        let log_total = self.list.iter().map(|entry| (entry.1 - top).exp()).sum::<f64>().ln();
        let surprise = |logit: f64| log_total - (logit - top);
        let mut items: Vec<_> =
            self.list.iter().zip(&p).map(|(&entry, &p)| ((surprise(entry.1) - entropy).abs(), entry, p)).collect();
        // Equal logits have equal distances in exact arithmetic: the id decides.
        items.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap().then(a.1.0.cmp(&b.1.0)));
        let mut sum = 0.0;
        let mut kept = items.len();
        for (at, item) in items.iter().enumerate() {
            sum += item.2;
            self.near(sum, limit);
            if sum > limit {
                kept = at + 1;
                break;
            }
        }
        if let Some(next) = items.get(kept)
            && next.1.1 != items[kept - 1].1.1
        {
            self.near(next.0, items[kept - 1].0);
        }
        self.list = items[..kept].iter().map(|item| item.1).collect();
    }

    fn top_p(&mut self, limit: f64) {
        self.best_first();
        let p = self.softmax(1.0);
        let mut sum = 0.0;
        for (at, p) in p.iter().enumerate() {
            sum += p;
            self.near(sum, limit);
            if sum >= limit {
                self.list.truncate(at + 1);
                return;
            }
        }
    }

    fn min_p(&mut self, share: f64) {
        self.best_first();
        let floor = self.list[0].1 + share.ln();
        for at in 1..self.list.len() {
            self.near(self.list[at].1, floor);
        }
        let top = self.list[0];
        self.list.retain(|&entry| entry == top || entry.1 >= floor);
    }

    fn xtc(&mut self, threshold: f64) {
        self.best_first();
        let p = self.softmax(1.0);
        p.iter().for_each(|&p| self.near(p, threshold));
        let reaching = p.iter().filter(|&&p| p >= threshold).count();
        self.list.drain(..reaching.saturating_sub(1));
    }

    pub fn is_candidate(&self, token: u32) -> bool {
        self.list.binary_search_by_key(&token, |entry| entry.0).is_ok()
    }

    /// (token, probability), ascending by token.
    pub fn probabilities(&self) -> Vec<(u32, f64)> {
        self.list.iter().map(|entry| entry.0).zip(self.softmax(self.temperature)).collect()
    }

    /// The token at `unit` of the cumulated probabilities; `None` too near to a border to say.
    pub fn pick(&self, unit: f64) -> Option<u32> {
        let mut sum = 0.0;
        for (token, p) in self.probabilities() {
            sum += p;
            if (sum - unit).abs() < MARGIN {
                return None;
            }
            if sum > unit {
                return Some(token);
            }
        }
        self.list.last().map(|entry| entry.0)
    }
}
