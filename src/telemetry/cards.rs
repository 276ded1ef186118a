//! Gauges of graphics cards.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::family::{RealGauge, register};
use super::names;

/// A reading of a graphics card. What the card does not tell is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CardGauges {
    pub index: u32,
    pub memory_used_bytes: Option<f64>,
    pub memory_total_bytes: Option<f64>,
    pub temperature_celsius: Option<f64>,
    pub power_watts: Option<f64>,
    pub sm_clock_hertz: Option<f64>,
    pub memory_clock_hertz: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CardLabel {
    card: u32,
}

/// Empty, and so left out of the text, until a card was read.
pub(super) struct CardFamilies {
    memory_used: Family<CardLabel, RealGauge>,
    memory_total: Family<CardLabel, RealGauge>,
    temperature: Family<CardLabel, RealGauge>,
    power: Family<CardLabel, RealGauge>,
    sm_clock: Family<CardLabel, RealGauge>,
    memory_clock: Family<CardLabel, RealGauge>,
}

impl CardFamilies {
    pub fn new(r: &mut Registry) -> CardFamilies {
        CardFamilies {
            memory_used: register(r, names::CARD_MEMORY_USED, "Memory of the card in use by all", Family::default()),
            memory_total: register(r, names::CARD_MEMORY_TOTAL, "Memory of the card", Family::default()),
            temperature: register(r, names::CARD_TEMPERATURE, "Temperature of the card", Family::default()),
            power: register(r, names::CARD_POWER, "Power that the card draws", Family::default()),
            sm_clock: register(r, names::CARD_SM_CLOCK, "Clock of the multiprocessors", Family::default()),
            memory_clock: register(r, names::CARD_MEMORY_CLOCK, "Clock of the card's memory", Family::default()),
        }
    }

    pub fn set(&self, card: &CardGauges) {
        let label = CardLabel { card: card.index };
        for (family, value) in [
            (&self.memory_used, card.memory_used_bytes),
            (&self.memory_total, card.memory_total_bytes),
            (&self.temperature, card.temperature_celsius),
            (&self.power, card.power_watts),
            (&self.sm_clock, card.sm_clock_hertz),
            (&self.memory_clock, card.memory_clock_hertz),
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
    fn a_machine_without_a_card_shows_no_gauges_of_one() {
        let metrics = Metrics::new();
        assert!(!metrics.render().contains("plateau_card"), "{}", metrics.render());
        let card =
            CardGauges { index: 1, memory_used_bytes: Some(1024.0), power_watts: Some(87.5), ..CardGauges::default() };
        metrics.set_card(&card);
        let text = metrics.render();
        assert!(text.contains("plateau_card_memory_used_bytes{card=\"1\"} 1024.0\n"), "{text}");
        assert!(text.contains("plateau_card_power_watts{card=\"1\"} 87.5\n"), "{text}");
        assert!(!text.contains("plateau_card_temperature"), "what the card does not tell: {text}");
        metrics.set_card(&CardGauges { index: 1, ..CardGauges::default() });
        assert!(!metrics.render().contains("plateau_card"), "a card that is gone shows no old values");
    }
}
