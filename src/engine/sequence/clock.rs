//! The times of one request, and what is reported of it at its end: the log line and the metrics.

use std::time::{Duration, Instant};

use crate::engine::request::draft::{DraftCount, DraftTotals, MAX_DRAFT_TOKENS};
use crate::engine::request::error::EngineError;
use crate::engine::request::event::{FinishReason, Timings, Usage};
use crate::telemetry::{DRAFT_POSITIONS, DraftRecord, Drafted, Metrics, Outcome, RequestRecord};

const _: () = assert!(MAX_DRAFT_TOKENS <= DRAFT_POSITIONS, "a position would not be counted");

/// Tokens of the MTP head before its acceptance tells anything.
const COLLAPSE_DRAFTED: u32 = 100;

/// A head that works is far above it on any text, one that reads a broken cache is at its bottom.
const COLLAPSE_PERCENT: u32 = 10;

/// How a request ends.
#[derive(Clone, Debug)]
pub(in crate::engine) enum Ending {
    Finished(FinishReason),
    Failed(EngineError),
}

impl Ending {
    fn outcome(&self) -> Outcome {
        match self {
            Ending::Finished(FinishReason::Eos(_)) => Outcome::Eos,
            Ending::Finished(FinishReason::Stop(_)) => Outcome::Stop,
            Ending::Finished(FinishReason::Complete) => Outcome::Complete,
            Ending::Finished(FinishReason::MaxTokens) => Outcome::MaxTokens,
            Ending::Finished(FinishReason::ContextFull) => Outcome::ContextFull,
            Ending::Finished(FinishReason::Cancelled) => Outcome::Cancelled,
            Ending::Failed(_) => Outcome::Failed,
        }
    }
}

/// What a request came to.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Totals {
    pub usage: Usage,
    /// Not one character of text was made.
    pub empty: bool,
    pub drafts: DraftTotals,
}

impl Totals {
    /// Tokens a step.
    fn acceptance_length(&self) -> Option<f64> {
        let n_steps = self.drafts.n_steps;
        (n_steps > 0).then(|| self.usage.completion as f64 / f64::from(n_steps))
    }

    /// Nearly everything that the MTP head drafted was rejected.
    fn collapsed(&self) -> bool {
        let DraftCount { drafted, accepted } = self.drafts.mtp;
        drafted >= COLLAPSE_DRAFTED && u64::from(accepted) * 100 < u64::from(drafted) * u64::from(COLLAPSE_PERCENT)
    }

    fn report_drafts(&self, id: &str, finished: bool, metrics: &Metrics) {
        let count = |c: DraftCount| Drafted { drafted: c.drafted.into(), accepted: c.accepted.into() };
        let collapsed = finished && self.collapsed();
        metrics.drafts_ended(&DraftRecord {
            n_steps: self.drafts.n_steps.into(),
            mtp: count(self.drafts.mtp),
            lookup: count(self.drafts.lookup),
            forced: count(self.drafts.forced),
            by_position: &self.drafts.by_position.map(count),
            acceptance_length: self.acceptance_length().filter(|_| finished),
            collapsed,
        });
        if collapsed {
            tracing::warn!(
                id,
                drafted = self.drafts.mtp.drafted,
                accepted = self.drafts.mtp.accepted,
                "nearly every token of the MTP head was rejected: set speculative.cache_type_k and speculative.cache_type_v \
                 to f16 if they are not, and check that the file's MTP block belongs to its trunk; --mtp false switches it off"
            );
        }
    }
}

/// Moments in the life of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Clock {
    pub arrived: Instant,
    /// First admission to a slot.
    pub admitted: Option<Instant>,
    /// Begin of the first step with a row of it.
    pub prefill_started: Option<Instant>,
    /// The first logits were there.
    pub prefilled: Option<Instant>,
    pub last_token: Option<Instant>,
    /// Spent on encoding its images, and how many that were.
    pub encoded: Duration,
    pub n_encoded: usize,
}

impl Clock {
    pub fn new(arrived: Instant) -> Clock {
        Clock {
            arrived,
            admitted: None,
            prefill_started: None,
            prefilled: None,
            last_token: None,
            encoded: Duration::ZERO,
            n_encoded: 0,
        }
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
            encode_n: self.n_encoded,
            encode_ms: self.encoded.as_secs_f64() * 1000.0,
        }
    }

    /// The log line of a request and its share of the metrics.
    pub fn report(&self, id: &str, ending: &Ending, totals: Totals, metrics: &Metrics) {
        let Totals { usage, empty, drafts } = totals;
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
        totals.report_drafts(id, finished, metrics);
        let DraftCount { drafted, accepted } = drafts.all();
        let timings = self.timings(usage);
        tracing::info!(
            id,
            prompt = usage.prompt,
            cached = usage.cached,
            generated = usage.completion,
            drafted,
            accepted,
            acceptance_length = totals.acceptance_length().unwrap_or(0.0),
            queue_ms = timings.queue_ms,
            ttft_ms = timings.ttft_ms,
            encoded = timings.encode_n,
            encode_ms = timings.encode_ms,
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
        let clock = Clock {
            admitted: at(10),
            prefill_started: at(20),
            prefilled: at(120),
            last_token: at(1120),
            ..Clock::new(arrived)
        };
        let timings = clock.timings(Usage { prompt: 300, cached: 100, completion: 51 });
        assert_eq!((timings.queue_ms, timings.prompt_ms, timings.ttft_ms), (10.0, 100.0, 120.0));
        assert_eq!((timings.prompt_n, timings.predicted_n, timings.predicted_ms), (200, 51, 1000.0));
        assert_eq!(rate(50, clock.decode()), Some(50.0));
    }

    fn ended(drafted: u32, accepted: u32, ending: &Ending) -> String {
        let metrics = Metrics::new();
        let mtp = DraftCount { drafted, accepted };
        let mut drafts = DraftTotals { n_steps: 40, mtp, ..DraftTotals::default() };
        drafts.by_position[0] = mtp;
        let usage = Usage { prompt: 5, cached: 0, completion: 90 };
        Clock::new(Instant::now()).report("id", ending, Totals { usage, empty: false, drafts }, &metrics);
        metrics.render()
    }

    #[test]
    fn drafts_of_a_request_show_in_the_metrics() {
        let text = ended(120, 60, &Ending::Finished(FinishReason::MaxTokens));
        for line in [
            "plateau_draft_tokens_total{source=\"mtp\"} 120\n",
            "plateau_draft_position_accepted_tokens_total{position=\"0\"} 60\n",
            "plateau_acceptance_length_sum 2.25\n",
            "plateau_draft_collapse_total 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    /// Users ran a quantized cache for the head for weeks, at an acceptance near zero.
    #[test]
    fn a_head_that_is_never_right_raises_the_alarm_once_enough_was_drafted() {
        let finished = Ending::Finished(FinishReason::MaxTokens);
        for (drafted, accepted, ending, alarms) in [
            (100, 9, &finished, 1),
            (100, 10, &finished, 0),
            (99, 0, &finished, 0),
            (0, 0, &finished, 0),
            (500, 0, &Ending::Finished(FinishReason::Cancelled), 0),
        ] {
            let line = format!("plateau_draft_collapse_total {alarms}\n");
            assert!(ended(drafted, accepted, ending).contains(&line), "{accepted} of {drafted}");
        }
    }

    #[test]
    fn a_request_that_left_counts_its_drafts_and_has_no_acceptance_length() {
        let text = ended(30, 20, &Ending::Finished(FinishReason::Cancelled));
        assert!(text.contains("plateau_draft_tokens_total{source=\"mtp\"} 30\n"), "{text}");
        assert!(text.contains("plateau_acceptance_length_count 0\n"), "{text}");
    }
}
