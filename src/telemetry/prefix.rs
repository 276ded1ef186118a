//! Metrics of the prefix cache.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::family::{counter, register};
use super::names;

/// The cache after a step; totals since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheGauges {
    pub ram_bytes: u64,
    pub disk_bytes: u64,
    pub n_nodes: usize,
    pub saved: u64,
    pub evicted_ram: u64,
    pub evicted_disk: u64,
    pub lost: u64,
    pub unreadable: u64,
    pub unwritten: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TierLabel {
    tier: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct VerdictLabel {
    verdict: &'static str,
}

pub(super) struct CacheMetrics {
    requests: Family<TierLabel, Counter>,
    tokens: Family<TierLabel, Counter>,
    bytes: Family<TierLabel, Gauge<u64, AtomicU64>>,
    evictions: Family<TierLabel, Counter>,
    checks: Family<VerdictLabel, Counter>,
    nodes: Gauge<u64, AtomicU64>,
    saved: Counter,
    lost: Counter,
    unreadable: Counter,
    unwritten: Counter,
    save: Histogram,
    restore: Histogram,
}

impl CacheMetrics {
    pub fn new(r: &mut Registry) -> CacheMetrics {
        CacheMetrics {
            requests: register(r, names::CACHE_REQUESTS, "Requests by where their state came from", Family::default()),
            tokens: register(r, names::CACHE_TOKENS, "Prompt tokens reused, by tier", Family::default()),
            bytes: register(r, names::CACHE_BYTES, "Bytes of saved states, by tier", Family::default()),
            evictions: register(
                r,
                names::CACHE_EVICTIONS,
                "Saved states given up for room, by tier",
                Family::default(),
            ),
            checks: register(r, names::CACHE_CHECKS, "Saved states compared with new ones", Family::default()),
            nodes: register(r, names::CACHE_NODES, "Places in prompts with saved state", Gauge::default()),
            saved: counter(r, names::CACHE_SAVED, "States saved"),
            lost: counter(r, names::CACHE_LOST, "Saved states that were gone with their eviction"),
            unreadable: counter(
                r,
                names::CACHE_UNREADABLE,
                "Files of saved states that were incomplete, altered or missing",
            ),
            unwritten: counter(r, names::CACHE_UNWRITTEN, "Saved states that could not be written to disk"),
            save: register(
                r,
                names::CACHE_SAVE_SECONDS,
                "Time to save a state and for the MTP head to catch up with it; steps wait for it",
                Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            ),
            restore: register(
                r,
                names::CACHE_RESTORE_SECONDS,
                "Time to put a saved state back",
                Histogram::new(exponential_buckets(0.000_25, 2.0, 16)),
            ),
        }
    }

    /// A request began from a state.
    pub fn restored(&self, tier: &'static str, n_tokens: usize, restore_ms: f64) {
        self.requests.get_or_create(&TierLabel { tier }).inc();
        self.tokens.get_or_create(&TierLabel { tier }).inc_by(n_tokens as u64);
        if restore_ms > 0.0 {
            self.restore.observe(restore_ms / 1000.0);
        }
    }

    pub fn saved(&self, took: Duration) {
        self.save.observe(took.as_secs_f64());
    }

    pub fn checked(&self, verdict: &'static str) {
        self.checks.get_or_create(&VerdictLabel { verdict }).inc();
    }

    /// The engine thread alone calls this, so the difference to what was counted is what is new.
    pub fn set(&self, gauges: &CacheGauges) {
        let upto = |counter: &Counter, total: u64| {
            counter.inc_by(total.saturating_sub(counter.get()));
        };
        self.nodes.set(gauges.n_nodes as u64);
        for (tier, bytes, evicted) in
            [("ram", gauges.ram_bytes, gauges.evicted_ram), ("disk", gauges.disk_bytes, gauges.evicted_disk)]
        {
            self.bytes.get_or_create(&TierLabel { tier }).set(bytes);
            upto(&self.evictions.get_or_create(&TierLabel { tier }), evicted);
        }
        upto(&self.saved, gauges.saved);
        upto(&self.lost, gauges.lost);
        upto(&self.unreadable, gauges.unreadable);
        upto(&self.unwritten, gauges.unwritten);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn tiers_and_totals_show_once() {
        let metrics = Metrics::new();
        metrics.restored("ram", 1499, 2.5);
        metrics.cache_checked("identical");
        metrics.cache_saved(Duration::from_millis(3));
        for saved in [3, 5] {
            let gauges = CacheGauges { ram_bytes: 10, disk_bytes: 20, n_nodes: 4, saved, ..CacheGauges::default() };
            metrics.set_cache(&gauges);
        }
        let text = metrics.render();
        for line in [
            "plateau_cache_requests_total{tier=\"ram\"} 1\n",
            "plateau_cache_restored_tokens_total{tier=\"ram\"} 1499\n",
            "plateau_cache_bytes{tier=\"disk\"} 20\n",
            "plateau_cache_states_saved_total 5\n",
            "plateau_cache_nodes 4\n",
            "plateau_cache_checks_total{verdict=\"identical\"} 1\n",
            "plateau_cache_restore_seconds_count 1\n",
            "plateau_cache_save_seconds_count 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
