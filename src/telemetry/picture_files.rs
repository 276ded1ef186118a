//! Metrics of the files that pictures come in: kinds, pixels, times, refusals.

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

pub(super) struct PictureFileMetrics {
    files: Family<KindLabel, Counter>,
    refusals: Family<CodeLabel, Counter>,
    pixels: Counter,
    decode: Histogram,
    fetch: Histogram,
}

impl PictureFileMetrics {
    pub fn new(r: &mut Registry) -> PictureFileMetrics {
        // 1 ms to 32 s.
        let times = || Histogram::new(exponential_buckets(0.001, 2.0, 16));
        PictureFileMetrics {
            files: register(r, names::PICTURE_FILES, "Picture files decoded, by kind", Family::default()),
            refusals: register(
                r,
                names::PICTURE_REFUSALS,
                "Requests refused for a picture, by code",
                Family::default(),
            ),
            pixels: counter(r, names::PICTURE_FILE_PIXELS, "Pixels decoded"),
            decode: register(
                r,
                names::PICTURE_DECODE_SECONDS,
                "Time to decode a picture and bring it to size",
                times(),
            ),
            fetch: register(r, names::PICTURE_FETCH_SECONDS, "Time to fetch a picture", times()),
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
        metrics.picture_decoded("png", 9216, Duration::from_millis(3));
        metrics.picture_fetched(Duration::from_millis(30));
        metrics.picture_refused("invalid_image");
        let text = metrics.render();
        for line in [
            "plateau_picture_files_total{kind=\"png\"} 1\n",
            "plateau_picture_file_pixels_total 9216\n",
            "plateau_picture_decode_seconds_count 1\n",
            "plateau_picture_fetch_seconds_count 1\n",
            "plateau_picture_refusals_total{code=\"invalid_image\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
