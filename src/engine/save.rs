//! When the state of a sequence is saved: where its prompt is cut for it, and when it ends, whichever way.
//!
//! Only what is settled is saved: rows of a draft are rolled back before.

use std::sync::Arc;
use std::time::Instant;

use super::error::{RunnerError, RunnerErrorKind};
use super::prefix::cache::{Verdict, compare};
use super::request::{MarkKind, Why};
use super::runner::Saved;
use super::scheduler::Scheduler;
use crate::telemetry::CacheGauges;
use crate::units::Pos;

impl Scheduler {
    /// Saves the state of the sequence in `slot` where its prompt is cut for that.
    pub fn save_at_cut(&mut self, slot: usize) -> Result<(), RunnerError> {
        let place = &self.slots[slot];
        let Some(sequence) = &place.occupant else { return Ok(()) };
        let at = sequence.cuts.binary_search_by_key(&place.fill.n_items, |cut| cut.at);
        let Some(kind) = at.ok().map(|i| sequence.cuts[i].kind) else { return Ok(()) };
        self.save(slot, kind)
    }

    /// Saves the state at the end of an answer, or of what there is of it.
    pub fn save_answer(&mut self, slot: usize) {
        if let Err(error) = self.save(slot, MarkKind::AnswerEnd) {
            // A device that is lost ends the engine with the next step.
            tracing::warn!(%error, "the state after an answer could not be saved");
        }
    }

    fn save(&mut self, slot: usize, kind: MarkKind) -> Result<(), RunnerError> {
        let place = &self.slots[slot];
        let Some(sequence) = place.occupant.as_ref().filter(|s| s.store && s.is_whole(place.fill.n_items)) else {
            return Ok(());
        };
        let items = &sequence.items[..place.fill.n_items];
        if sequence.restored.why == Why::Checked {
            self.check(slot)?;
            return Ok(());
        }
        let Some(target) = self.prefix.place(items) else { return Ok(()) };
        // The step before is not part of what saving takes.
        self.runner.wait();
        let start = Instant::now();
        match self.runner.save(place.seq, Pos(target.start)) {
            Ok(saved) => {
                self.prefix.insert(target, items, kind, saved);
                self.metrics.cache_saved(start.elapsed());
            }
            Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
            Err(error) => tracing::warn!(%error, "a state could not be saved"),
        }
        Ok(())
    }

    /// Compares the state that was computed anew with the saved one of the same place, if there is one.
    fn check(&mut self, slot: usize) -> Result<(), RunnerError> {
        let place = &self.slots[slot];
        let Some(sequence) = &place.occupant else { return Ok(()) };
        let items = &sequence.items[..place.fill.n_items];
        let Some((node, point)) = self.prefix.point_at(items) else { return Ok(()) };
        let end = place.fill.pos();
        let anew = match self.runner.save(place.seq, end) {
            Ok(Saved { point, .. }) => point,
            Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
            Err(_) => return Ok(()),
        };
        let (id, tokens) = (sequence.id(), end.0);
        let verdict = compare(&point, &anew);
        match verdict {
            Verdict::Identical => self.prefix.checks.identical += 1,
            Verdict::Rounded(distance) => {
                self.prefix.checks.rounded += 1;
                tracing::info!(id, tokens, distance, "a saved state differs by rounding from one computed anew");
            }
            Verdict::Wrong(distance) => {
                self.prefix.checks.wrong += 1;
                tracing::error!(id, tokens, distance, "a saved state was wrong and is dropped");
                self.prefix.forget(node);
            }
        }
        self.metrics.cache_checked(match verdict {
            Verdict::Identical => "identical",
            Verdict::Rounded(_) => "rounded",
            Verdict::Wrong(_) => "wrong",
        });
        Ok(())
    }

    /// Shows the cache as it is, where it has changed.
    pub fn publish_cache(&mut self) {
        let Some(picture) = self.prefix.picture() else { return };
        self.metrics.set_cache(&CacheGauges {
            ram_bytes: picture.ram_bytes,
            disk_bytes: picture.disk_bytes,
            n_nodes: picture.n_nodes,
            saved: picture.totals.saved,
            evicted_ram: picture.totals.evicted_ram,
            evicted_disk: picture.totals.evicted_disk,
            lost: picture.totals.lost,
            unreadable: picture.totals.unreadable,
            unwritten: picture.totals.unwritten,
        });
        self.shown.cache.send_replace(Arc::new(picture));
    }
}
