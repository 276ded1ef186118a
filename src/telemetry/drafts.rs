//! Metrics of drafting.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::family::{RealGauge, counter, register};
use super::names;
use super::records::{DraftRecord, Drafted};

/// Places in a draft that are counted apart.
pub const DRAFT_POSITIONS: usize = 16;

/// Tokens a step: fine where MTP moves, coarse where lookup flies.
const LENGTH_BUCKETS: [f64; 16] =
    [1.0, 1.25, 1.5, 1.75, 2.0, 2.25, 2.5, 2.75, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 12.0, 17.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabel {
    source: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PositionLabel {
    position: u32,
}

/// Two counters with one label.
struct Pair {
    drafted: Counter,
    accepted: Counter,
}

impl Pair {
    fn add(&self, count: Drafted) {
        self.drafted.inc_by(count.drafted);
        self.accepted.inc_by(count.accepted);
    }
}

/// Counters are resolved once: a look-up in a family takes a lock.
pub(super) struct DraftMetrics {
    steps: Counter,
    mtp: Pair,
    lookup: Pair,
    forced: Pair,
    by_position: [Pair; DRAFT_POSITIONS],
    acceptance_length: Histogram,
    gain: RealGauge,
    collapse: Counter,
}

impl DraftMetrics {
    pub fn new(r: &mut Registry) -> DraftMetrics {
        let steps = counter(r, names::DECODE_STEPS, "Steps that gave tokens, counted once a sequence");
        let drafted: Family<SourceLabel, Counter> =
            register(r, names::DRAFT_TOKENS, "Tokens drafted, by source", Family::default());
        let accepted: Family<SourceLabel, Counter> =
            register(r, names::DRAFT_ACCEPTED_TOKENS, "Drafted tokens that the model said too", Family::default());
        let source = |source| Pair {
            drafted: drafted.get_or_create_owned(&SourceLabel { source }),
            accepted: accepted.get_or_create_owned(&SourceLabel { source }),
        };
        let help = "Tokens drafted, by their place in the draft from 0";
        let at: Family<PositionLabel, Counter> = register(r, names::DRAFT_POSITION_TOKENS, help, Family::default());
        let help = "Drafted tokens that the model said too, by their place in the draft from 0";
        let accepted_at: Family<PositionLabel, Counter> =
            register(r, names::DRAFT_POSITION_ACCEPTED_TOKENS, help, Family::default());
        let position = |position: usize| {
            let label = PositionLabel { position: position as u32 };
            Pair { drafted: at.get_or_create_owned(&label), accepted: accepted_at.get_or_create_owned(&label) }
        };
        let gain = register(
            r,
            names::DRAFT_GAIN,
            "Expected speed against no drafting; 1 where nothing is drafted",
            RealGauge::default(),
        );
        gain.set(1.0);
        DraftMetrics {
            steps,
            mtp: source("mtp"),
            lookup: source("lookup"),
            forced: source("forced"),
            by_position: std::array::from_fn(position),
            acceptance_length: register(
                r,
                names::ACCEPTANCE_LENGTH,
                "Tokens a step, per request",
                Histogram::new(LENGTH_BUCKETS),
            ),
            gain,
            collapse: counter(r, names::DRAFT_COLLAPSE, "Requests whose MTP drafts were nearly all rejected"),
        }
    }

    pub fn count(&self, record: &DraftRecord<'_>) {
        self.steps.inc_by(record.n_steps);
        self.mtp.add(record.mtp);
        self.lookup.add(record.lookup);
        self.forced.add(record.forced);
        self.by_position.iter().zip(record.by_position).for_each(|(pair, count)| pair.add(*count));
        record.acceptance_length.into_iter().for_each(|length| self.acceptance_length.observe(length));
        if record.collapsed {
            self.collapse.inc();
        }
    }

    pub fn set_gain(&self, gain: f64) {
        self.gain.set(gain);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn drafts_are_counted_by_source_and_by_position() {
        let metrics = Metrics::new();
        let count = |drafted, accepted| Drafted { drafted, accepted };
        let record = DraftRecord {
            n_steps: 10,
            mtp: count(20, 12),
            lookup: count(3, 1),
            forced: count(4, 4),
            by_position: &[count(10, 8), count(8, 4), count(5, 1)],
            acceptance_length: Some(2.3),
            collapsed: false,
        };
        metrics.drafts_ended(&record);
        metrics.drafts_ended(&DraftRecord { acceptance_length: None, collapsed: true, ..record });
        metrics.set_draft_gain(1.75);
        let text = metrics.render();
        for line in [
            "plateau_decode_steps_total 20\n",
            "plateau_draft_tokens_total{source=\"mtp\"} 40\n",
            "plateau_draft_tokens_total{source=\"lookup\"} 6\n",
            "plateau_draft_tokens_total{source=\"forced\"} 8\n",
            "plateau_draft_accepted_tokens_total{source=\"mtp\"} 24\n",
            "plateau_draft_accepted_tokens_total{source=\"lookup\"} 2\n",
            "plateau_draft_position_tokens_total{position=\"0\"} 20\n",
            "plateau_draft_position_accepted_tokens_total{position=\"2\"} 2\n",
            "plateau_draft_position_tokens_total{position=\"15\"} 0\n",
            "plateau_acceptance_length_count 1\n",
            "plateau_acceptance_length_bucket{le=\"2.25\"} 0\n",
            "plateau_acceptance_length_bucket{le=\"2.5\"} 1\n",
            "plateau_draft_gain 1.75\n",
            "plateau_draft_collapse_total 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn without_drafting_nothing_is_gained_and_nothing_counted() {
        let text = Metrics::new().render();
        for line in ["plateau_draft_gain 1.0\n", "plateau_draft_tokens_total{source=\"mtp\"} 0\n"] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
