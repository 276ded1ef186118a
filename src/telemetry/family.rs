//! How a metric is made and put into the registry: shared by all groups of metrics.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::names;

pub(super) type RealGauge = Gauge<f64, AtomicU64>;

pub(super) fn register<M>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M
where
    M: Clone + prometheus_client::registry::Metric,
{
    registry.register(name, help, metric.clone());
    if let Some((_, old)) = names::RENAMED.iter().find(|(new, _)| *new == name) {
        registry.register(*old, format!("Old name of {name}"), metric.clone());
    }
    metric
}

pub(super) fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    register(registry, name, help, Counter::default())
}

/// Buckets that double from `first`, `length` of them.
pub(super) fn histogram(registry: &mut Registry, name: &str, help: &str, first: f64, length: u16) -> Histogram {
    register(registry, name, help, Histogram::new(exponential_buckets(first, 2.0, length)))
}
