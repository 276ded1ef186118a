//! All metrics as typed values, and their text.

use std::fmt::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::drafts::DraftMetrics;
use super::family::{RealGauge, counter, histogram, register};
use super::gpus::{GpuFamilies, GpuGauges};
use super::image_files::ImageFileMetrics;
use super::images::ImageMetrics;
use super::kernels::{KernelMetrics, KernelReader, KernelState};
use super::names;
use super::prefix::{CacheGauges, CacheMetrics};
use super::records::{DraftRecord, EngineAges, EngineGauges, Outcome, RequestRecord};

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(self.as_str())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

/// All metrics. Cheap to clone; every clone counts into the same values.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    ttft: Histogram,
    itl: Histogram,
    queue: Histogram,
    prefill_tps: Histogram,
    decode_tps: Histogram,
    /// Resolved once: a look-up in a family takes a lock.
    requests: [Counter; Outcome::ALL.len()],
    errors: Family<CodeLabel, Counter>,
    prompt_tokens: Counter,
    cached_tokens: Counter,
    generated_tokens: Counter,
    empty_completion: Counter,
    preemptions: Counter,
    queue_depth: Gauge<u64, AtomicU64>,
    kv_fill: Gauge<u64, AtomicU64>,
    kv_size: Gauge<u64, AtomicU64>,
    active: Gauge<u64, AtomicU64>,
    step_age: RealGauge,
    oldest_queued: RealGauge,
    gpus: GpuFamilies,
    drafts: DraftMetrics,
    cache: CacheMetrics,
    images: ImageMetrics,
    image_files: ImageFileMetrics,
    kernels: KernelMetrics,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// A fresh set, all zero.
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        let kernels = KernelMetrics::default();
        registry.register_collector(Box::new(kernels.clone()));
        let r = &mut registry;
        let inner = Inner {
            // 1 ms to 524 s; a prefill of a full context belongs in it.
            ttft: histogram(r, names::TTFT_SECONDS, "Arrival to the first generated token", 0.001, 20),
            // 0.25 ms to 4 s.
            itl: histogram(r, names::ITL_SECONDS, "Time between two generated tokens of a request", 0.000_25, 15),
            queue: histogram(r, names::QUEUE_SECONDS, "Arrival to the first admission", 0.001, 20),
            prefill_tps: histogram(r, names::PREFILL_TPS, "Prompt tokens processed a second, per request", 1.0, 18),
            decode_tps: histogram(r, names::DECODE_TPS, "Tokens generated a second, per request", 1.0, 14),
            requests: outcome_counters(r),
            errors: register(r, names::ERRORS, "Error answers by code", Family::default()),
            prompt_tokens: counter(r, names::PROMPT_TOKENS, "Prompt tokens of finished requests, cached ones included"),
            cached_tokens: counter(r, names::CACHED_TOKENS, "Prompt tokens that were reused and not processed again"),
            generated_tokens: counter(r, names::GENERATED_TOKENS, "Tokens generated"),
            empty_completion: counter(r, names::EMPTY_COMPLETION, "Requests that ended without one character of text"),
            preemptions: counter(r, names::PREEMPTIONS, "Generations set back to the queue to make room for others"),
            queue_depth: register(r, names::QUEUE_DEPTH, "Requests that wait for a sequence", Gauge::default()),
            kv_fill: register(r, names::KV_FILL_TOKENS, "Tokens in the KV cache", Gauge::default()),
            kv_size: register(r, names::KV_SIZE_TOKENS, "Tokens that the KV cache holds", Gauge::default()),
            active: register(r, names::ACTIVE_SEQUENCES, "Sequences in prefill or decode", Gauge::default()),
            step_age: register(
                r,
                names::STEP_AGE_SECONDS,
                "Age of the step that runs, 0 between steps",
                Gauge::default(),
            ),
            oldest_queued: register(r, names::OLDEST_QUEUED_SECONDS, "Longest wait in the queue now", Gauge::default()),
            gpus: GpuFamilies::new(r),
            drafts: DraftMetrics::new(r),
            cache: CacheMetrics::new(r),
            images: ImageMetrics::new(r),
            image_files: ImageFileMetrics::new(r),
            kernels,
            registry,
        };
        Metrics { inner: Arc::new(inner) }
    }

    /// Counts an accepted request at its end.
    pub fn request_ended(&self, record: &RequestRecord) {
        let m = &*self.inner;
        m.requests[record.outcome as usize].inc();
        m.prompt_tokens.inc_by(record.n_prompt as u64);
        m.cached_tokens.inc_by(record.n_cached as u64);
        m.generated_tokens.inc_by(record.n_generated as u64);
        if record.empty {
            m.empty_completion.inc();
        }
        let seconds = |histogram: &Histogram, value: Option<Duration>| {
            value.into_iter().for_each(|v| histogram.observe(v.as_secs_f64()));
        };
        seconds(&m.queue, record.queued);
        seconds(&m.ttft, record.ttft);
        record.prefill_tps.into_iter().for_each(|v| m.prefill_tps.observe(v));
        record.decode_tps.into_iter().for_each(|v| m.decode_tps.observe(v));
    }

    /// Time between two tokens of one request. (The histogram's own lock is contended by a scrape at most.)
    pub fn token_interval(&self, interval: Duration) {
        self.inner.itl.observe(interval.as_secs_f64());
    }

    /// A generation went back to the queue to make room.
    pub fn preempted(&self) {
        self.inner.preemptions.inc();
    }

    /// An error answer with its public code.
    pub fn error(&self, code: &'static str) {
        self.inner.errors.get_or_create(&CodeLabel { code }).inc();
    }

    /// The engine's state after a step.
    pub fn set_engine(&self, gauges: EngineGauges) {
        let m = &*self.inner;
        m.queue_depth.set(gauges.n_queued as u64);
        m.active.set(gauges.n_active as u64);
        m.kv_fill.set(gauges.n_fill as u64);
        m.kv_size.set(gauges.n_ctx as u64);
    }

    /// What waits or runs now, for how long.
    pub fn set_ages(&self, ages: EngineAges) {
        let seconds = |age: Option<Duration>| age.map_or(0.0, |age| age.as_secs_f64());
        self.inner.step_age.set(seconds(ages.step));
        self.inner.oldest_queued.set(seconds(ages.oldest_queued));
    }

    /// A reading of a GPU. (The families' locks are taken by whoever reads GPUs, and by a scrape.)
    pub fn set_gpu(&self, gpu: &GpuGauges) {
        self.inner.gpus.set(gpu);
    }

    /// Where the counts of a plug-in's kernels come from. The first reader stays.
    pub fn set_kernel_reader(&self, reader: KernelReader) {
        self.inner.kernels.set_reader(reader);
    }

    /// The kernels of the plug-in now; empty without one.
    pub fn kernels(&self) -> Vec<KernelState> {
        self.inner.kernels.read()
    }

    /// Counts the drafts of a request at its end.
    pub fn drafts_ended(&self, record: &DraftRecord<'_>) {
        self.inner.drafts.count(record);
    }

    /// Expected speed against no drafting, as the engine measures it; 1 is none gained.
    pub fn set_draft_gain(&self, gain: f64) {
        self.inner.drafts.set_gain(gain);
    }

    /// A request began from a state of `tier`, with so many tokens of its prompt; 0 ms where none was put back.
    pub fn restored(&self, tier: &'static str, n_tokens: usize, restore_ms: f64) {
        self.inner.cache.restored(tier, n_tokens, restore_ms);
    }

    /// A state was saved.
    pub fn cache_saved(&self, took: Duration) {
        self.inner.cache.saved(took);
    }

    /// A saved state was compared with one computed anew.
    pub fn cache_checked(&self, verdict: &'static str) {
        self.inner.cache.checked(verdict);
    }

    /// The prefix cache after a step.
    pub fn set_cache(&self, gauges: &CacheGauges) {
        self.inner.cache.set(gauges);
    }

    /// An image was encoded.
    pub fn image_encoded(&self, took: Duration, n_pixels: u64) {
        self.inner.images.encoded(took, n_pixels);
    }

    pub fn image_failed(&self) {
        self.inner.images.failed();
    }

    /// Images of a prompt that did not have to be encoded: their rows were restored, or their encoding was still there.
    pub fn images_found(&self, n_restored: usize, n_kept: usize) {
        self.inner.images.found("restored", n_restored);
        self.inner.images.found("encoder_cache", n_kept);
    }

    /// An image of a request was decoded and brought to size.
    pub fn image_decoded(&self, kind: &'static str, n_pixels: u64, took: Duration) {
        self.inner.image_files.decoded(kind, n_pixels, took);
    }

    /// An image was fetched.
    pub fn image_fetched(&self, took: Duration) {
        self.inner.image_files.fetched(took);
    }

    /// A request was refused for one of its images, for the reason of the error's public code.
    pub fn image_refused(&self, code: &'static str) {
        self.inner.image_files.refused(code);
    }

    /// Bytes of encoded images now.
    pub fn set_image_cache(&self, bytes: u64) {
        self.inner.images.set_bytes(bytes);
    }

    /// All metrics as OpenMetrics text (`application/openmetrics-text; version=1.0.0`).
    pub fn render(&self) -> String {
        let mut out = String::new();
        text::encode(&mut out, &self.inner.registry).expect("writing to a String never fails");
        out
    }
}

fn outcome_counters(registry: &mut Registry) -> [Counter; Outcome::ALL.len()] {
    let family = Family::<OutcomeLabel, Counter>::default();
    registry.register(names::REQUESTS, "Accepted requests by how they ended", family.clone());
    Outcome::ALL.map(|outcome| family.get_or_create_owned(&OutcomeLabel { outcome }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(outcome: Outcome) -> RequestRecord {
        RequestRecord {
            outcome,
            n_prompt: 100,
            n_cached: 40,
            n_generated: 7,
            empty: false,
            queued: Some(Duration::from_millis(3)),
            ttft: Some(Duration::from_millis(30)),
            prefill_tps: Some(2000.0),
            decode_tps: None,
        }
    }

    #[test]
    fn an_ended_request_shows_in_every_metric_it_has_a_value_for() {
        let metrics = Metrics::new();
        metrics.request_ended(&record(Outcome::Stop));
        metrics.clone().request_ended(&record(Outcome::Stop));
        let text = metrics.render();
        assert!(text.contains("plateau_requests_total{outcome=\"stop\"} 2\n"), "{text}");
        assert!(text.contains("plateau_requests_total{outcome=\"failed\"} 0\n"), "{text}");
        assert!(text.contains("plateau_cached_tokens_total 80\n"), "{text}");
        assert!(text.contains("plateau_ttft_seconds_count 2\n"), "{text}");
        assert!(text.contains("plateau_decode_tokens_per_second_count 0\n"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn outcomes_are_counted_in_their_own_slot() {
        let metrics = Metrics::new();
        for (i, outcome) in Outcome::ALL.into_iter().enumerate() {
            (0..=i).for_each(|_| metrics.request_ended(&record(outcome)));
        }
        let text = metrics.render();
        for (i, outcome) in Outcome::ALL.into_iter().enumerate() {
            let line = format!("plateau_requests_total{{outcome=\"{}\"}} {}\n", outcome.as_str(), i + 1);
            assert!(text.contains(&line), "{line} in {text}");
        }
    }

    #[test]
    fn errors_gauges_and_intervals_render() {
        let metrics = Metrics::new();
        metrics.error("engine_busy");
        metrics.preempted();
        metrics.token_interval(Duration::from_millis(20));
        metrics.set_engine(EngineGauges { n_queued: 3, n_active: 2, n_fill: 900, n_ctx: 1024 });
        let text = metrics.render();
        for line in [
            "plateau_errors_total{code=\"engine_busy\"} 1\n",
            "plateau_preemptions_total 1\n",
            "plateau_itl_seconds_count 1\n",
            "plateau_queue_depth 3\n",
            "plateau_active_sequences 2\n",
            "plateau_kv_fill_tokens 900\n",
            "plateau_kv_size_tokens 1024\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn ages_are_zero_when_nothing_runs_or_waits() {
        let metrics = Metrics::new();
        metrics.set_ages(EngineAges { step: Some(Duration::from_millis(1500)), oldest_queued: None });
        assert!(metrics.render().contains("plateau_step_age_seconds 1.5\n"));
        metrics.set_ages(EngineAges::default());
        assert!(metrics.render().contains("plateau_step_age_seconds 0.0\n"));
    }
}
