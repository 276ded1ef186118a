//! Metrics of the files that images come in: kinds, pixels, times, refusals.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::family::{counter, register};
use super::names;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabel {
    code: &'static str,
}

pub(super) struct ImageFileMetrics {
    files: Family<KindLabel, Counter>,
    refusals: Family<CodeLabel, Counter>,
    pixels: Counter,
    decode: Histogram,
    fetch: Histogram,
}

impl ImageFileMetrics {
    pub fn new(r: &mut Registry) -> ImageFileMetrics {
        // 1 ms to 32 s.
        let times = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        ImageFileMetrics {
            files: register(r, names::IMAGE_FILES, "Image files decoded, by kind", Family::default()),
            refusals: register(r, names::IMAGE_REFUSALS, "Requests refused for an image, by code", Family::default()),
            pixels: counter(r, names::IMAGE_FILE_PIXELS, "Pixels decoded"),
            decode: register(r, names::IMAGE_DECODE_SECONDS, "Time to decode an image and bring it to size", times()),
            fetch: register(r, names::IMAGE_FETCH_SECONDS, "Time to fetch an image", times()),
        }
    }

    pub fn decoded(&self, kind: &'static str, n_pixels: u64, took: Duration) {
        self.files.get_or_create(&KindLabel { kind }).inc();
        self.pixels.inc_by(n_pixels);
        self.decode.observe(took.as_secs_f64());
    }

    pub fn fetched(&self, took: Duration) {
        self.fetch.observe(took.as_secs_f64());
    }

    pub fn refused(&self, code: &'static str) {
        self.refusals.get_or_create(&CodeLabel { code }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn files_and_refusals_are_counted() {
        let metrics = Metrics::new();
        metrics.image_decoded("png", 9216, Duration::from_millis(3));
        metrics.image_fetched(Duration::from_millis(30));
        metrics.image_refused("invalid_image");
        let text = metrics.render();
        for line in [
            "plateau_image_files_total{kind=\"png\"} 1\n",
            "plateau_image_file_pixels_total 9216\n",
            "plateau_image_decode_seconds_count 1\n",
            "plateau_image_fetch_seconds_count 1\n",
            "plateau_image_refusals_total{code=\"invalid_image\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
