//! Bias, penalties and DRY applied to the few tokens that they touch: a short list of replaced
//! logits beside the raw row, never a changed copy of it.

use super::dry::DryState;
use super::error::SampleError;
use super::params::SamplingParams;
use super::penalties::Penalties;

/// What one sequence changes in a row before anything is chosen.
#[derive(Clone)]
pub(super) struct Overlay {
    /// Ascending by token, each token once.
    bias: Vec<(u32, f32)>,
    penalties: Option<Penalties>,
    dry: Option<DryState>,
    changed: Vec<(u32, f32)>,
}

impl Overlay {
    pub(super) fn new(params: &SamplingParams) -> Overlay {
        Overlay {
            bias: by_token(&params.logit_bias),
            penalties: Penalties::new(params),
            dry: DryState::new(&params.dry),
            changed: Vec::new(),
        }
    }

    pub(super) fn accept(&mut self, token: u32) {
        if let Some(penalties) = &mut self.penalties {
            penalties.accept(token);
        }
        if let Some(dry) = &mut self.dry {
            dry.accept(token);
        }
    }

    /// The changed logits of this row, ascending by token: bias first, then penalties, then DRY.
    pub(super) fn changed(&mut self, logits: &[f32]) -> Result<&[(u32, f32)], SampleError> {
        if let Some(penalties) = &mut self.penalties {
            penalties.settle();
        }
        let mut bias = &self.bias[..];
        let mut counts = self.penalties.as_ref().map_or(&[][..], Penalties::counts);
        let mut costs = self.dry.as_mut().map_or(&[][..], DryState::costs);
        self.changed.clear();
        while let Some(token) = [head(bias), head(counts), head(costs)].into_iter().flatten().min() {
            // The lists are sorted, so what follows lies past the row's end too.
            let Some(&raw) = logits.get(token as usize) else { break };
            let mut logit = raw;
            if let Some(bias) = take(&mut bias, token) {
                logit = biased(logit, bias);
            }
            if let Some(count) = take(&mut counts, token)
                && let Some(penalties) = &self.penalties
            {
                logit = penalties.apply(logit, count);
            }
            if let Some(cost) = take(&mut costs, token) {
                logit -= cost;
            }
            if logit.is_nan() {
                return Err(SampleError::NotANumber { token });
            }
            self.changed.push((token, logit));
        }
        Ok(&self.changed)
    }
}

/// A ban holds whatever the model says, and so does the model's own -inf.
fn biased(logit: f32, bias: f32) -> f32 {
    if bias == f32::NEG_INFINITY || logit == f32::NEG_INFINITY { f32::NEG_INFINITY } else { logit + bias }
}

fn head<T>(list: &[(u32, T)]) -> Option<u32> {
    list.first().map(|entry| entry.0)
}

/// The value for `token` where it heads the list.
fn take<T: Copy>(list: &mut &[(u32, T)], token: u32) -> Option<T> {
    let (first, rest) = list.split_first().filter(|(first, _)| first.0 == token)?;
    *list = rest;
    Some(first.1)
}

/// Sorts; a token that is named twice gets both biases.
fn by_token(bias: &[(u32, f32)]) -> Vec<(u32, f32)> {
    let mut sorted = bias.to_vec();
    sorted.sort_by_key(|entry| entry.0);
    sorted.dedup_by(|later, first| {
        let same = later.0 == first.0;
        if same {
            first.1 = biased(first.1, later.1);
        }
        same
    });
    sorted
}
