//! Metrics of images: how many, where their encoding came from, what encoding took.

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

pub(super) struct ImageMetrics {
    images: Family<SourceLabel, Counter>,
    failed: Counter,
    pixels: Counter,
    encode: Histogram,
    bytes: Gauge<u64, AtomicU64>,
}

impl ImageMetrics {
    pub fn new(r: &mut Registry) -> ImageMetrics {
        ImageMetrics {
            images: register(
                r,
                names::IMAGES,
                "Images of prompts: encoded, kept encoded by the encoder cache, or restored with their rows by the prefix cache",
                Family::default(),
            ),
            failed: counter(r, names::IMAGES_FAILED, "Images that could not be encoded"),
            pixels: counter(r, names::IMAGE_PIXELS, "Pixels encoded"),
            // 1 ms to 32 s.
            encode: register(
                r,
                names::IMAGE_ENCODE_SECONDS,
                "Time to encode an image",
                Histogram::new(exponential_buckets(0.001, 2.0, 16)),
            ),
            bytes: register(r, names::IMAGE_CACHE_BYTES, "Bytes of encoded images", Gauge::default()),
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
            self.images.get_or_create(&SourceLabel { source }).inc_by(n as u64);
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
    fn images_are_counted_by_where_their_encoding_came_from() {
        let metrics = Metrics::new();
        metrics.image_encoded(Duration::from_millis(10), 9216);
        metrics.images_found(0, 2);
        metrics.set_image_cache(512);
        let text = metrics.render();
        for line in [
            "plateau_images_total{source=\"encoded\"} 1\n",
            "plateau_images_total{source=\"encoder_cache\"} 2\n",
            "plateau_image_pixels_total 9216\n",
            "plateau_image_encode_seconds_count 1\n",
            "plateau_image_cache_bytes 512\n",
            "plateau_images_failed_total 0\n",
            // The old name.
            "plateau_pictures_total{source=\"encoded\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("restored\"}"), "{text}");
    }
}
