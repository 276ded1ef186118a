//! The times of one request, and what is reported of it at its end: the log line and the metrics.

use std::time::{Duration, Instant};

use super::EngineError;
use super::request::{FinishReason, Timings, Usage};
use crate::telemetry::{Metrics, Outcome, RequestRecord};

/// How a request ends.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Finished(FinishReason),
    Failed(EngineError),
}

impl Ending {
    fn outcome(&self) -> Outcome {
        match self {
            Ending::Finished(FinishReason::Eos(_)) => Outcome::Eos,
            Ending::Finished(FinishReason::Stop(_)) => Outcome::Stop,
            Ending::Finished(FinishReason::MaxTokens) => Outcome::MaxTokens,
            Ending::Finished(FinishReason::ContextFull) => Outcome::ContextFull,
            Ending::Finished(FinishReason::Cancelled) => Outcome::Cancelled,
            Ending::Failed(_) => Outcome::Failed,
        }
    }
}

/// What a request came to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    pub usage: Usage,
    /// Not one character of text was made.
    pub empty: bool,
}

/// Moments in the life of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub arrived: Instant,
    /// First admission to a slot.
    pub admitted: Option<Instant>,
    /// Begin of the first step with a row of it.
    pub prefill_started: Option<Instant>,
    /// The first logits were there.
    pub prefilled: Option<Instant>,
    pub last_token: Option<Instant>,
}

impl Clock {
    pub fn new(arrived: Instant) -> Clock {
        Clock { arrived, admitted: None, prefill_started: None, prefilled: None, last_token: None }
    }

    fn prefill(&self) -> Option<Duration> {
        Some(self.prefilled?.saturating_duration_since(self.prefill_started?))
    }

    fn since_arrival(&self, moment: Option<Instant>) -> Option<Duration> {
        Some(moment?.saturating_duration_since(self.arrived))
    }

    /// From the first token to the last.
    fn decode(&self) -> Option<Duration> {
        Some(self.last_token?.saturating_duration_since(self.prefilled?))
    }

    pub fn timings(&self, usage: Usage) -> Timings {
        Timings {
            queue_ms: millis(self.since_arrival(self.admitted)),
            prompt_n: usage.prompt - usage.cached,
            prompt_ms: millis(self.prefill()),
            predicted_n: usage.completion,
            predicted_ms: millis(self.decode()),
            ttft_ms: millis(self.since_arrival(self.last_token.and(self.prefilled))),
        }
    }

    /// The log line of a request and its share of the metrics.
    pub fn report(&self, id: &str, ending: &Ending, totals: Totals, metrics: &Metrics) {
        let Totals { usage, empty } = totals;
        let outcome = ending.outcome();
        let finished = !matches!(outcome, Outcome::Cancelled | Outcome::Failed);
        let record = RequestRecord {
            outcome,
            n_prompt: usage.prompt,
            n_cached: usage.cached,
            n_generated: usage.completion,
            empty: empty && finished,
            queued: self.since_arrival(self.admitted),
            ttft: self.since_arrival(self.last_token.and(self.prefilled)),
            prefill_tps: rate(usage.prompt - usage.cached, self.prefill()),
            // The first token comes with the prefill.
            decode_tps: rate(usage.completion.saturating_sub(1), self.decode()),
        };
        metrics.request_ended(&record);
        let timings = self.timings(usage);
        tracing::info!(
            id,
            prompt = usage.prompt,
            cached = usage.cached,
            generated = usage.completion,
            queue_ms = timings.queue_ms,
            ttft_ms = timings.ttft_ms,
            prefill_tps = record.prefill_tps.unwrap_or(0.0),
            decode_tps = record.decode_tps.unwrap_or(0.0),
            finish = outcome.as_str(),
            error = match ending {
                Ending::Failed(error) => Some(error.to_string()),
                Ending::Finished(_) => None,
            },
            "request"
        );
    }
}

fn millis(duration: Option<Duration>) -> f64 {
    duration.map_or(0.0, |d| d.as_secs_f64() * 1000.0)
}

fn rate(n: usize, time: Option<Duration>) -> Option<f64> {
    let seconds = time?.as_secs_f64();
    (n > 0 && seconds > 0.0).then(|| n as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_never_started_has_no_times() {
        let clock = Clock::new(Instant::now());
        let timings = clock.timings(Usage { prompt: 5, cached: 0, completion: 0 });
        assert_eq!(timings, Timings { prompt_n: 5, ..Timings::default() });
    }

    #[test]
    fn times_are_differences_of_the_moments() {
        let arrived = Instant::now();
        let at = |ms| Some(arrived + Duration::from_millis(ms));
        let clock =
            Clock { arrived, admitted: at(10), prefill_started: at(20), prefilled: at(120), last_token: at(1120) };
        let timings = clock.timings(Usage { prompt: 300, cached: 100, completion: 51 });
        assert_eq!((timings.queue_ms, timings.prompt_ms, timings.ttft_ms), (10.0, 100.0, 120.0));
        assert_eq!((timings.prompt_n, timings.predicted_n, timings.predicted_ms), (200, 51, 1000.0));
        assert_eq!(rate(50, clock.decode()), Some(50.0));
    }
}
