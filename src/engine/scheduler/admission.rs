//! Who may come in.
//!
//! All sequences share one cache of `n_ctx` tokens. A request with `max_tokens` is promised prompt
//! and answer in full; one without is promised its prompt and some headroom and grows. Promises
//! never exceed the cache. What finished sequences left behind is promised to nobody: it is reused
//! or evicted.

use super::state::{Pressure, SlotState, running};

/// An elastic request is admitted with room for this part of the cache beyond its prompt, so that
/// it is not set back at once: 1/16, at most `MAX_HEADROOM_TOKENS`.
const HEADROOM_PART: usize = 16;
/// About a minute of decoding; more would only keep others out.
const MAX_HEADROOM_TOKENS: usize = 1024;

/// What a waiting request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Demand {
    /// `None`: it is elastic.
    pub max_tokens: Option<u32>,
    pub n_prompt: usize,
    /// Tokens of prompt and answer so far.
    pub n_tokens: usize,
}

/// Tokens that are promised to a request when it is admitted.
pub(in crate::engine) fn reserve_tokens(demand: Demand, n_ctx: usize) -> usize {
    let wanted = match demand.max_tokens {
        Some(max) => demand.n_prompt.saturating_add(max as usize),
        None => demand.n_tokens + (n_ctx / HEADROOM_PART).clamp(1, MAX_HEADROOM_TOKENS),
    };
    wanted.min(n_ctx)
}

/// The promise to the head of the queue if it may come in beside those that run. Nobody else is
/// asked: a head that does not fit is not overtaken, so it is never starved.
pub(in crate::engine) fn admissible(
    head: Demand,
    slots: &[SlotState],
    pressure: Pressure,
    n_ctx: usize,
) -> Option<usize> {
    let reserve = reserve_tokens(head, n_ctx);
    let committed: usize = running(slots).map(|(_, running)| running.reserve).sum();
    let held = pressure.hold_admission && running(slots).next().is_some();
    (!held && committed + reserve <= n_ctx).then_some(reserve)
}
