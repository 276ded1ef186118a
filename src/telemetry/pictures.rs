//! Metrics of pictures: how many, where their encoding came from, what encoding took.

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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: &'static str,
}

pub(super) struct PictureMetrics {
    pictures: Family<SourceLabel, Counter>,
    failed: Counter,
    pixels: Counter,
    encode: Histogram,
    bytes: Gauge<u64, AtomicU64>,
}

impl PictureMetrics {
    pub fn new(r: &mut Registry) -> PictureMetrics {
        PictureMetrics {
            pictures: register(
                r,
                names::PICTURES,
                "Pictures of prompts: encoded, kept encoded by the gallery, or restored with their rows by the prefix cache",
                Family::default(),
            ),
            failed: counter(r, names::PICTURES_FAILED, "Pictures that could not be encoded"),
            pixels: counter(r, names::PICTURE_PIXELS, "Pixels encoded"),
            // 1 ms to 32 s.
            encode: register(
                r,
                names::PICTURE_ENCODE_SECONDS,
                "Time to encode a picture",
                Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            ),
            bytes: register(r, names::PICTURE_CACHE_BYTES, "Bytes of encoded pictures", Gauge::default()),
        }
    }

    pub fn encoded(&self, took: Duration, n_pixels: u64) {
        self.found("encoded", 1);
        self.pixels.inc_by(n_pixels);
        self.encode.observe(took.as_secs_f64());
    }

    pub fn failed(&self) {
        self.failed.inc();
    }

    pub fn found(&self, source: &'static str, n: usize) {
        if n > 0 {
            self.pictures.get_or_create(&SourceLabel { source }).inc_by(n as u64);
        }
    }

    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.set(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Metrics;

    #[test]
    fn pictures_are_counted_by_where_their_encoding_came_from() {
        let metrics = Metrics::new();
        metrics.picture_encoded(Duration::from_millis(10), 9216);
        metrics.pictures_found(0, 2);
        metrics.set_picture_cache(512);
        let text = metrics.render();
        for line in [
            "plateau_pictures_total{source=\"encoded\"} 1\n",
            "plateau_pictures_total{source=\"gallery\"} 2\n",
            "plateau_picture_pixels_total 9216\n",
            "plateau_picture_encode_seconds_count 1\n",
            "plateau_picture_cache_bytes 512\n",
            "plateau_pictures_failed_total 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("restored\"}"), "{text}");
    }
}
