//! Gauges of GPUs.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::family::{RealGauge, register};
use super::names;

/// A reading of a GPU. What the GPU does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GpuGauges {
    pub index: u32,
    pub memory_used_bytes: Option<f64>,
    pub memory_total_bytes: Option<f64>,
    pub temperature_celsius: Option<f64>,
    pub power_watts: Option<f64>,
    pub sm_clock_hertz: Option<f64>,
    pub memory_clock_hertz: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GpuLabel {
    gpu: u32,
}

impl From<u32> for GpuLabel {
    fn from(gpu: u32) -> GpuLabel {
        GpuLabel { gpu }
    }
}

/// As the label was called before.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CardLabel {
    card: u32,
}

impl From<u32> for CardLabel {
    fn from(card: u32) -> CardLabel {
        CardLabel { card }
    }
}

/// Empty, and so left out of the text, until a GPU was read.
pub(super) struct GpuFamilies {
    now: Families<GpuLabel>,
    /// Under the names of the release before.
    old: Families<CardLabel>,
}

impl GpuFamilies {
    pub fn new(r: &mut Registry) -> GpuFamilies {
        let (new, old) = names::RENAMED_GPU;
        GpuFamilies {
            now: Families::new(r, |name, help| (name.to_owned(), help.to_owned())),
            old: Families::new(r, |name, _| (name.replacen(new, old, 1), format!("Old name of {name}"))),
        }
    }

    pub fn set(&self, gpu: &GpuGauges) {
        self.now.set(gpu);
        self.old.set(gpu);
    }
}

/// One family a gauge, with the GPU's index as label.
struct Families<L> {
    memory_used: Family<L, RealGauge>,
    memory_total: Family<L, RealGauge>,
    temperature: Family<L, RealGauge>,
    power: Family<L, RealGauge>,
    sm_clock: Family<L, RealGauge>,
    memory_clock: Family<L, RealGauge>,
}

impl<L> Families<L>
where
    L: EncodeLabelSet + Clone + std::fmt::Debug + Eq + std::hash::Hash + From<u32> + Send + Sync + 'static,
{
    fn new(r: &mut Registry, called: impl Fn(&str, &str) -> (String, String)) -> Families<L> {
        let mut family = |name: &str, help: &str| {
            let (name, help) = called(name, help);
            register(r, &name, &help, Family::default())
        };
        Families {
            memory_used: family(names::GPU_MEMORY_USED, "Memory of the GPU in use by all"),
            memory_total: family(names::GPU_MEMORY_TOTAL, "Memory of the GPU"),
            temperature: family(names::GPU_TEMPERATURE, "Temperature of the GPU"),
            power: family(names::GPU_POWER, "Power that the GPU draws"),
            sm_clock: family(names::GPU_SM_CLOCK, "Clock of the multiprocessors"),
            memory_clock: family(names::GPU_MEMORY_CLOCK, "Clock of the GPU's memory"),
        }
    }

    fn set(&self, gpu: &GpuGauges) {
        let label = L::from(gpu.index);
        for (family, value) in [
            (&self.memory_used, gpu.memory_used_bytes),
            (&self.memory_total, gpu.memory_total_bytes),
            (&self.temperature, gpu.temperature_celsius),
            (&self.power, gpu.power_watts),
            (&self.sm_clock, gpu.sm_clock_hertz),
            (&self.memory_clock, gpu.memory_clock_hertz),
        ] {
            match value {
                Some(value) => {
                    family.get_or_create(&label).set(value);
                }
                // No old value in the place of one that cannot be read any more.
                None => {
                    family.remove(&label);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn a_machine_without_a_gpu_shows_no_gauges_of_one() {
        let metrics = Metrics::new();
        assert!(!metrics.render().contains("plateau_gpu"), "{}", metrics.render());
        let gpu =
            GpuGauges { index: 1, memory_used_bytes: Some(1024.0), power_watts: Some(87.5), ..GpuGauges::default() };
        metrics.set_gpu(&gpu);
        let text = metrics.render();
        assert!(text.contains("plateau_gpu_memory_used_bytes{gpu=\"1\"} 1024.0\n"), "{text}");
        assert!(text.contains("plateau_gpu_power_watts{gpu=\"1\"} 87.5\n"), "{text}");
        assert!(!text.contains("plateau_gpu_temperature"), "what the GPU does not tell: {text}");
        assert!(text.contains("plateau_card_power_watts{card=\"1\"} 87.5\n"), "the old name: {text}");
        metrics.set_gpu(&GpuGauges { index: 1, ..GpuGauges::default() });
        assert!(
            !metrics.render().contains("plateau_gpu") && !metrics.render().contains("plateau_card"),
            "a GPU that is gone shows no old values"
        );
    }
}
