//! When the step that runs began, and when the request came that waits for longest: two numbers
//! that are read without the engine thread, because they matter most when that thread hangs in the
//! device.
//!
//! What is done about a step that lasts too long is decided elsewhere (`/health`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No moment.
const NONE: u64 = u64::MAX;

/// Moments are milliseconds since `start`. They stand for themselves alone, so no order with other
/// memory is asked for.
pub(in crate::engine) struct Watchdog {
    start: Instant,
    step_began: AtomicU64,
    oldest_queued: AtomicU64,
}

impl Watchdog {
    pub fn new() -> Watchdog {
        Watchdog { start: Instant::now(), step_began: AtomicU64::new(NONE), oldest_queued: AtomicU64::new(NONE) }
    }

    /// A step runs until the value is dropped, also by a panic.
    pub fn step(&self) -> RunningStep<'_> {
        self.step_began.store(self.moment(Instant::now()), Ordering::Relaxed);
        RunningStep(self)
    }

    /// Called by the engine thread, which knows all requests that wait, before each step.
    pub fn set_oldest_queued(&self, arrived: Option<Instant>) {
        self.oldest_queued.store(arrived.map_or(NONE, |at| self.moment(at)), Ordering::Relaxed);
    }

    /// A request is on its way to the engine thread, which may be busy with a step. Nothing changes
    /// if another waits.
    pub fn queued(&self, arrived: Instant) {
        let (current, new) = (NONE, self.moment(arrived));
        // An error means that one waits already, and that one came first.
        let _ = self.oldest_queued.compare_exchange(current, new, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn step_age(&self) -> Option<Duration> {
        self.age(&self.step_began)
    }

    pub fn oldest_queued(&self) -> Option<Duration> {
        self.age(&self.oldest_queued)
    }

    fn age(&self, moment: &AtomicU64) -> Option<Duration> {
        let began = Some(moment.load(Ordering::Relaxed)).filter(|&began| began != NONE)?;
        Some(Duration::from_millis(self.moment(Instant::now()).saturating_sub(began)))
    }

    /// What came before the start counts from there.
    fn moment(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.start).as_millis()).unwrap_or(NONE - 1)
    }
}

/// A step that runs.
pub(in crate::engine) struct RunningStep<'a>(&'a Watchdog);

impl Drop for RunningStep<'_> {
    fn drop(&mut self) {
        self.0.step_began.store(NONE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_known_only_while_there_is_something_to_be_old() {
        let watchdog = Watchdog::new();
        assert_eq!((watchdog.step_age(), watchdog.oldest_queued()), (None, None));
        let running = watchdog.step();
        assert!(watchdog.step_age().is_some());
        drop(running);
        assert_eq!(watchdog.step_age(), None);
    }

    #[test]
    fn the_first_that_waits_is_the_oldest_until_the_engine_says_otherwise() {
        let watchdog = Watchdog::new();
        let after = |seconds| watchdog.start + Duration::from_secs(seconds);
        watchdog.queued(after(10));
        watchdog.queued(after(20));
        assert_eq!(watchdog.oldest_queued.load(Ordering::Relaxed), 10_000, "a later one is no older");
        watchdog.set_oldest_queued(Some(after(20)));
        assert_eq!(watchdog.oldest_queued.load(Ordering::Relaxed), 20_000, "the first one is in a slot");
        watchdog.set_oldest_queued(None);
        assert_eq!(watchdog.oldest_queued(), None);
    }
}
