//! What would fit: the smallest changes to a configuration that does not. Each alternative changes
//! one thing; only when no single change helps, several are tried together.

use super::sizes::{ModelSizes, cache_types_fit};
use super::table::{FreeMemory, Plan};
use crate::config::profile::{CacheType, EngineConfig, SpeculativeConfig};

/// Contexts below this are no help to anybody.
const MIN_CTX_TOKENS: u32 = 2048;

/// Smallest micro-batch worth offering: below it prefill is several times slower.
const MIN_UBATCH_TOKENS: u32 = 128;

/// Pairs with kernels in every build of the CUDA backend, most precise first.
const CACHE_PAIRS: [(CacheType, CacheType); 3] =
    [(CacheType::F16, CacheType::F16), (CacheType::Q8_0, CacheType::Q8_0), (CacheType::Q4_0, CacheType::Q4_0)];

/// One setting with a value that helps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub key: &'static str,
    pub value: String,
}

/// Changes that make the model fit when made together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    pub changes: Vec<Change>,
    pub plan: Plan,
}

/// A configuration that may be changed.
#[derive(Clone)]
struct Candidate<'a> {
    model: &'a ModelSizes,
    free: &'a FreeMemory,
    engine: EngineConfig,
    speculative: SpeculativeConfig,
    gpu_layers: Option<u32>,
}

impl Candidate<'_> {
    fn plan(&self) -> Plan {
        Plan::new(self.model, &self.engine, &self.speculative, self.gpu_layers, self.free.gpu.is_some())
    }
    fn fits(&self) -> bool {
        self.cache_types_fit() && self.plan().fits(self.free)
    }
    fn cache_types_fit(&self) -> bool {
        cache_types_fit(self.model, &self.engine, &self.speculative).is_ok()
    }
    fn drafting(&self) -> SpeculativeConfig {
        self.speculative.in_effect(self.model.has_mtp_head())
    }
    fn ctx(&self) -> u32 {
        self.engine.ctx_tokens.unwrap_or(self.model.n_ctx_train)
    }
}

/// Single changes that fit, in the order in which a person would try them; else the best
/// combination; empty: nothing helps.
pub fn alternatives(
    model: &ModelSizes,
    engine: &EngineConfig,
    speculative: &SpeculativeConfig,
    gpu_layers: Option<u32>,
    free: &FreeMemory,
) -> Vec<Alternative> {
    let base = Candidate { model, free, engine: engine.clone(), speculative: speculative.clone(), gpu_layers };
    let singles = [
        cache_types(&base),
        shorter_drafts(&base),
        fewer_sources(&base),
        parallel(&base),
        ubatch(&base),
        ctx(&base),
        layers(&base),
    ];
    let mut found: Vec<Alternative> = singles.into_iter().flatten().map(finish).collect();
    if found.is_empty() {
        found.extend(together(&base).map(finish));
    }
    found
}

type Found<'a> = (Candidate<'a>, Vec<Change>);

fn finish((candidate, changes): Found<'_>) -> Alternative {
    Alternative { plan: candidate.plan(), changes }
}

fn change(key: &'static str, value: impl ToString) -> Change {
    Change { key, value: value.to_string() }
}

fn bytes_of(pair: (CacheType, CacheType)) -> u64 {
    pair.0.bytes_per_32() + pair.1.bytes_per_32()
}

fn cache_types<'a>(base: &Candidate<'a>) -> Option<Found<'a>> {
    let now = bytes_of((base.engine.cache_type_k, base.engine.cache_type_v));
    CACHE_PAIRS
        .into_iter()
        .filter(|pair| bytes_of(*pair) < now)
        .map(|pair| with_cache(base, pair))
        .find(|(c, _)| c.fits())
}

fn with_cache<'a>(base: &Candidate<'a>, (k, v): (CacheType, CacheType)) -> Found<'a> {
    let mut candidate = base.clone();
    candidate.engine.cache_type_k = k;
    candidate.engine.cache_type_v = v;
    (candidate, vec![change("engine.cache_type_k", k.word()), change("engine.cache_type_v", v.word())])
}

/// The longest draft that fits: each token of it is a recurrent state for rollback.
fn shorter_drafts<'a>(base: &Candidate<'a>) -> Option<Found<'a>> {
    let now = base.drafting().draft_tokens_max();
    (1..now).rev().map(|n| with_draft_max(base, n)).find(|(c, _)| c.fits())
}

fn with_draft_max<'a>(base: &Candidate<'a>, n: u32) -> Found<'a> {
    let mut candidate = base.clone();
    let mut changes = Vec::new();
    let (drafting, speculative) = (base.drafting(), &mut candidate.speculative);
    if drafting.mtp && drafting.n_max > n {
        speculative.n_max = n;
        changes.push(change("speculative.n_max", n));
    }
    if drafting.mtp && drafting.n_min > n {
        speculative.n_min = n;
        changes.push(change("speculative.n_min", n));
    }
    if drafting.lookup && drafting.lookup_n_max > n {
        speculative.lookup_n_max = n;
        changes.push(change("speculative.lookup_n_max", n));
    }
    (candidate, changes)
}

/// Without the MTP head; without lookup, too, where that is what it takes.
fn fewer_sources<'a>(base: &Candidate<'a>) -> Option<Found<'a>> {
    let sources = base.drafting();
    let without_head = sources.mtp.then(|| without_sources(base, false));
    let without_any = (sources.mtp || sources.lookup).then(|| without_sources(base, true));
    [without_head, without_any].into_iter().flatten().find(|(c, _)| c.fits())
}

fn without_sources<'a>(base: &Candidate<'a>, lookup_too: bool) -> Found<'a> {
    let mut candidate = base.clone();
    let mut changes = Vec::new();
    let (sources, speculative) = (base.drafting(), &mut candidate.speculative);
    if sources.mtp {
        speculative.mtp = false;
        changes.push(change("speculative.mtp", false));
    }
    if sources.lookup && lookup_too {
        speculative.lookup = false;
        changes.push(change("speculative.lookup", false));
    }
    (candidate, changes)
}

fn parallel<'a>(base: &Candidate<'a>) -> Option<Found<'a>> {
    (1..base.engine.parallel).rev().map(|n| with_parallel(base, n)).find(|(c, _)| c.fits())
}

fn with_parallel<'a>(base: &Candidate<'a>, n: u32) -> Found<'a> {
    let mut candidate = base.clone();
    candidate.engine.parallel = n;
    (candidate, vec![change("engine.parallel", n)])
}

fn ubatch<'a>(base: &Candidate<'a>) -> Option<Found<'a>> {
    let smaller = std::iter::successors(Some(base.engine.ubatch_tokens / 2), |n| Some(n / 2));
    smaller.take_while(|n| *n >= MIN_UBATCH_TOKENS).map(|n| with_ubatch(base, n)).find(|(c, _)| c.fits())
}

fn with_ubatch<'a>(base: &Candidate<'a>, n: u32) -> Found<'a> {
    let mut candidate = base.clone();
    candidate.engine.ubatch_tokens = n;
    (candidate, vec![change("engine.ubatch_tokens", n)])
}

/// The largest context that fits, in steps of the cache's padding. Need grows with the context, so
/// halving finds it.
fn ctx<'a>(base: &Candidate<'a>) -> Option<Found<'a>> {
    let step = 256;
    let with = |blocks: u32| {
        let mut candidate = base.clone();
        candidate.engine.ctx_tokens = Some(blocks * step);
        candidate
    };
    let (mut fits, mut too_large) = (0, base.ctx() / step + 1);
    while fits + 1 < too_large {
        let middle = fits + (too_large - fits) / 2;
        if with(middle).fits() { fits = middle } else { too_large = middle }
    }
    let tokens = fits * step;
    (tokens >= MIN_CTX_TOKENS && tokens < base.ctx()).then(|| (with(fits), vec![change("engine.ctx_tokens", tokens)]))
}

/// The most layers on the GPU that fit while the host takes the rest.
fn layers<'a>(base: &Candidate<'a>) -> Option<Found<'a>> {
    base.free.gpu?;
    let all = base.model.n_layer_placed();
    let now = base.gpu_layers.unwrap_or(all).min(all);
    (0..now).rev().map(|n| with_layers(base, n)).find(|(c, _)| c.fits())
}

fn with_layers<'a>(base: &Candidate<'a>, n: u32) -> Found<'a> {
    let mut candidate = base.clone();
    candidate.gpu_layers = Some(n);
    (candidate, vec![change("model.gpu_layers", n)])
}

/// Smallest cache, no drafts, one sequence, smallest micro-batch, and then the largest context or
/// the most layers.
fn together<'a>(base: &Candidate<'a>) -> Option<Found<'a>> {
    let mut candidate = base.clone();
    let mut changes = Vec::new();
    let smallest = CACHE_PAIRS[CACHE_PAIRS.len() - 1];
    let now = bytes_of((candidate.engine.cache_type_k, candidate.engine.cache_type_v));
    if bytes_of(smallest) < now && with_cache(base, smallest).0.cache_types_fit() {
        changes.extend(apply(&mut candidate, |c| with_cache(c, smallest)));
    }
    if candidate.drafting().draft_tokens_max() > 0 {
        changes.extend(apply(&mut candidate, |c| without_sources(c, true)));
    }
    if candidate.engine.parallel > 1 {
        changes.extend(apply(&mut candidate, |c| with_parallel(c, 1)));
    }
    if candidate.engine.ubatch_tokens > MIN_UBATCH_TOKENS {
        changes.extend(apply(&mut candidate, |c| with_ubatch(c, MIN_UBATCH_TOKENS)));
    }
    let last = if candidate.fits() { None } else { Some(ctx(&candidate).or_else(|| layers(&candidate))?) };
    if let Some((better, more)) = last {
        candidate = better;
        changes.extend(more);
    }
    (!changes.is_empty()).then_some((candidate, changes))
}

fn apply<'a>(candidate: &mut Candidate<'a>, with: impl Fn(&Candidate<'a>) -> Found<'a>) -> Vec<Change> {
    let (changed, changes) = with(candidate);
    *candidate = changed;
    changes
}
