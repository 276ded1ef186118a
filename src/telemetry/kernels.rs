//! Counters of the kernels that a plug-in brings. The plug-in counts; a scrape asks it.

use std::fmt;
use std::sync::{Arc, OnceLock};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::names;

/// A kernel of a plug-in and its counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelState {
    pub name: String,
    pub on: bool,
    /// Launches and captures; the replay of a captured graph is not seen.
    pub calls: u64,
    /// Work it is made for that went to llama.cpp's kernels while it was on.
    pub fallbacks: u64,
    /// What it does, in a few words.
    pub purpose: String,
}

/// Asks the plug-in. Called by scrapes and `/props`, never while a token is made.
pub type KernelReader = fn() -> Vec<KernelState>;

/// Empty, and so left out of the text, until there is a reader that finds kernels.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelMetrics {
    reader: Arc<OnceLock<KernelReader>>,
}

impl KernelMetrics {
    pub fn set_reader(&self, reader: KernelReader) {
        // The first reader stays: there is one plug-in in a process.
        let _ = self.reader.set(reader);
    }
    pub fn read(&self) -> Vec<KernelState> {
        self.reader.get().map(|read| read()).unwrap_or_default()
    }
}

type Value = fn(&KernelState) -> u64;

impl Collector for KernelMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let kernels = self.read();
        if kernels.is_empty() {
            return Ok(());
        }
        let counters: [(&str, &str, Value); 2] = [
            (names::KERNEL_CALLS, "Launches and captures of a kernel of the plug-in", |kernel| kernel.calls),
            (names::KERNEL_FALLBACKS, "Work for a kernel that llama.cpp did while it was on", |kernel| {
                kernel.fallbacks
            }),
        ];
        for (name, help, value) in counters {
            let kind = ConstCounter::new(0_u64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for kernel in &kernels {
                let labels = [("kernel", kernel.name.as_str())];
                ConstCounter::new(value(kernel)).encode(family.encode_family(&labels)?)?;
            }
        }
        let kind = ConstGauge::new(0_u64).metric_type();
        let mut family =
            encoder.encode_descriptor(names::KERNEL_ON, "1 where the kernel is switched on", None, kind)?;
        for kernel in &kernels {
            let labels = [("kernel", kernel.name.as_str())];
            ConstGauge::new(u64::from(kernel.on)).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    fn one() -> Vec<KernelState> {
        let purpose = "attention in place".to_owned();
        vec![KernelState { name: "fattn_quant".to_owned(), on: true, calls: 7, fallbacks: 2, purpose }]
    }

    #[test]
    fn a_scrape_asks_the_plug_in_for_its_counts() {
        let metrics = Metrics::new();
        metrics.set_kernel_reader(one);
        let text = metrics.render();
        for line in [
            "plateau_kernel_calls_total{kernel=\"fattn_quant\"} 7\n",
            "plateau_kernel_fallbacks_total{kernel=\"fattn_quant\"} 2\n",
            "plateau_kernel_on{kernel=\"fattn_quant\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert_eq!(metrics.kernels(), one());
    }

    #[test]
    fn without_a_plug_in_there_are_no_lines_of_kernels() {
        let metrics = Metrics::new();
        metrics.set_kernel_reader(Vec::new);
        assert!(!metrics.render().contains("plateau_kernel"));
    }
}
