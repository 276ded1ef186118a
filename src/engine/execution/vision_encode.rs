//! Encodes pictures: on the engine thread, between two steps, at most one a turn.
//!
//! What is saved in the prefix cache is not encoded again; the rest is kept in the encoder cache.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::request::error::{RunnerError, RunnerErrorKind};
use crate::engine::runner::ModelRunner;
use crate::engine::scheduler::encoding::EncodePlan;
use crate::engine::scheduler::slots::Slots;
use crate::engine::vision::encoder_cache::Gallery;
use crate::engine::vision::picture::{Picture, PictureKey};
use crate::telemetry::Metrics;

/// A picture of the sequence in `slot` could not be encoded.
pub(in crate::engine) struct NotEncoded {
    pub slot: usize,
    pub error: RunnerError,
}

/// Has the model encode, and keeps what it gave.
pub(in crate::engine) struct VisionEncoder {
    cache: Gallery,
    metrics: Metrics,
}

impl VisionEncoder {
    pub fn new(cache: Gallery, metrics: Metrics) -> VisionEncoder {
        VisionEncoder { cache, metrics }
    }

    pub fn cache(&self) -> &Gallery {
        &self.cache
    }

    /// `true`: a picture was encoded, which took its time.
    pub(super) fn run(
        &mut self,
        plan: &EncodePlan,
        slots: &mut Slots,
        runner: &mut dyn ModelRunner,
    ) -> Result<bool, NotEncoded> {
        let Some((slot, key)) = plan.next else {
            plan.needed.iter().for_each(|key| self.cache.touch(*key));
            self.cache.trim(&plan.needed);
            return Ok(false);
        };
        let outcome = self.encode_for(slot, key, slots, runner);
        if outcome.as_ref().is_err_and(|error| error.kind != RunnerErrorKind::Fatal) {
            self.metrics.picture_failed();
        }
        self.cache.trim(&plan.needed);
        self.metrics.set_picture_cache(self.cache.bytes());
        outcome.map(|()| true).map_err(|error| NotEncoded { slot, error })
    }

    fn encode_for(
        &mut self,
        slot: usize,
        key: PictureKey,
        slots: &mut Slots,
        runner: &mut dyn ModelRunner,
    ) -> Result<(), RunnerError> {
        let Some(sequence) = &mut slots[slot].occupant else { return Ok(()) };
        let picture = sequence.pictures.iter().find(|picture| picture.key == key).map(Arc::clone);
        let picture = picture.ok_or_else(missing)?;
        let started = Instant::now();
        let embedding = runner.encode(&picture)?;
        if embedding.grid != picture.grid {
            return Err(missing());
        }
        let took = started.elapsed();
        self.cache.insert(key, embedding);
        self.metrics.picture_encoded(took, pixels(&picture));
        sequence.clock.encoded += took;
        sequence.clock.n_encoded += 1;
        sequence.clock.prefill_started.get_or_insert(started);
        Ok(())
    }
}

fn missing() -> RunnerError {
    RunnerError { call: "encoding a picture", kind: RunnerErrorKind::InvalidBatch, code: None }
}

fn pixels(picture: &Picture) -> u64 {
    u64::from(picture.width_px) * u64::from(picture.height_px)
}
