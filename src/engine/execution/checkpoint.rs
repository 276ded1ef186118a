//! When the state of a sequence is saved: where a chunk of its prompt ends for that, and when it
//! ends, whichever way.
//!
//! Only what is settled is saved: rows of a draft are rolled back before.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::prefix::cache::{CacheView, PrefixCache, Verdict, compare};
use crate::engine::request::breakpoint::BreakpointKind;
use crate::engine::request::error::{RunnerError, RunnerErrorKind};
use crate::engine::request::event::MissReason;
use crate::engine::runner::{ModelRunner, Saved};
use crate::engine::scheduler::slots::Slot;
use crate::engine::sequence::context::EngineContext;
use crate::telemetry::{CacheGauges, Metrics};
use crate::units::Pos;

/// Moves states between the model and the prefix cache: saves here, `restore` puts them back.
pub(in crate::engine) struct Checkpoints {
    pub prefix: PrefixCache,
    pub(super) context: Arc<EngineContext>,
    pub(super) metrics: Metrics,
}

impl Checkpoints {
    pub fn new(prefix: PrefixCache, context: Arc<EngineContext>, metrics: Metrics) -> Checkpoints {
        Checkpoints { prefix, context, metrics }
    }

    /// Saves the state of the sequence in `slot` where a chunk of its prompt ends for that.
    pub fn at_boundary(&mut self, slot: &Slot, runner: &mut dyn ModelRunner) -> Result<(), RunnerError> {
        let Some(sequence) = &slot.occupant else { return Ok(()) };
        let boundaries = &sequence.chunk_boundaries;
        match boundaries.binary_search_by_key(&slot.fill.n_items, |boundary| boundary.at) {
            Ok(i) => self.save(slot, boundaries[i].kind, runner),
            Err(_) => Ok(()),
        }
    }

    /// Saves the state at the end of an answer, or of what there is of it.
    pub fn answer(&mut self, slot: &Slot, runner: &mut dyn ModelRunner) {
        if let Err(error) = self.save(slot, BreakpointKind::AnswerEnd, runner) {
            // A device that is lost ends the engine with the next step.
            tracing::warn!(%error, "the state after an answer could not be saved");
        }
    }

    fn save(&mut self, slot: &Slot, kind: BreakpointKind, runner: &mut dyn ModelRunner) -> Result<(), RunnerError> {
        let Some(sequence) = slot.occupant.as_ref().filter(|s| s.store && s.is_whole(slot.fill.n_items)) else {
            return Ok(());
        };
        let items = &sequence.items[..slot.fill.n_items];
        if sequence.restored.why == MissReason::Checked {
            return self.check(slot, runner);
        }
        let Some(target) = self.prefix.place(items) else { return Ok(()) };
        // The step before is not part of what saving takes.
        runner.wait();
        let start = Instant::now();
        match runner.save(slot.seq, Pos(target.start)) {
            Ok(saved) => {
                self.prefix.insert(target, items, kind, saved);
                self.metrics.cache_saved(start.elapsed());
            }
            Err(error) if error.kind == RunnerErrorKind::Fatal => return Err(error),
            Err(error) => tracing::warn!(%error, "a state could not be saved"),
        }
        Ok(())
    }

    /// Compares the state that was computed anew with the saved one of the same place, if there is
    /// one.
    fn check(&mut self, slot: &Slot, runner: &mut dyn ModelRunner) -> Result<(), RunnerError> {
        let Some(sequence) = &slot.occupant else { return Ok(()) };
        let items = &sequence.items[..slot.fill.n_items];
        let Some((node, point)) = self.prefix.point_at(items) else { return Ok(()) };
        let end = slot.fill.pos();
        let anew = match runner.save(slot.seq, end) {
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

    /// The cache as it is, where it has changed; its gauges are up to date then.
    pub fn view(&mut self) -> Option<CacheView> {
        let view = self.prefix.view()?;
        self.metrics.set_cache(&CacheGauges {
            ram_bytes: view.ram_bytes,
            disk_bytes: view.disk_bytes,
            n_nodes: view.n_nodes,
            saved: view.totals.saved,
            evicted_ram: view.totals.evicted_ram,
            evicted_disk: view.totals.evicted_disk,
            lost: view.totals.lost,
            unreadable: view.totals.unreadable,
            unwritten: view.totals.unwritten,
        });
        Some(view)
    }
}
