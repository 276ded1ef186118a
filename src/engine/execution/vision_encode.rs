//! Encodes images: on the engine thread, between two steps, at most one a turn.
//!
//! What is saved in the prefix cache is not encoded again; the rest is kept in the encoder cache.

use std::sync::Arc;
use std::time::Instant;

use crate::engine::request::error::{RunnerError, RunnerErrorKind};
use crate::engine::runner::ModelRunner;
use crate::engine::scheduler::encoding::EncodePlan;
use crate::engine::scheduler::slots::Slots;
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::engine::vision::image::{Image, ImageKey};
use crate::telemetry::Metrics;

/// An image of the sequence in `slot` could not be encoded.
pub(in crate::engine) struct NotEncoded {
    pub slot: usize,
    pub error: RunnerError,
}

/// Has the model encode, and keeps what it gave.
pub(in crate::engine) struct VisionEncoder {
    cache: EncoderCache,
    metrics: Metrics,
}

impl VisionEncoder {
    pub fn new(cache: EncoderCache, metrics: Metrics) -> VisionEncoder {
        VisionEncoder { cache, metrics }
    }

    pub fn cache(&self) -> &EncoderCache {
        &self.cache
    }

    /// `true`: an image was encoded, which took its time.
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
            self.metrics.image_failed();
        }
        self.cache.trim(&plan.needed);
        self.metrics.set_image_cache(self.cache.bytes());
        outcome.map(|()| true).map_err(|error| NotEncoded { slot, error })
    }

    fn encode_for(
        &mut self,
        slot: usize,
        key: ImageKey,
        slots: &mut Slots,
        runner: &mut dyn ModelRunner,
    ) -> Result<(), RunnerError> {
        let Some(sequence) = &mut slots[slot].occupant else { return Ok(()) };
        let image = sequence.images.iter().find(|image| image.key == key).map(Arc::clone);
        let image = image.ok_or_else(missing)?;
        let started = Instant::now();
        let embedding = runner.encode(&image)?;
        if embedding.grid != image.grid {
            return Err(missing());
        }
        let took = started.elapsed();
        self.cache.insert(key, embedding);
        self.metrics.image_encoded(took, pixels(&image));
        sequence.clock.encoded += took;
        sequence.clock.n_encoded += 1;
        sequence.clock.prefill_started.get_or_insert(started);
        Ok(())
    }
}

fn missing() -> RunnerError {
    RunnerError { call: "encoding an image", kind: RunnerErrorKind::InvalidBatch, code: None }
}

fn pixels(image: &Image) -> u64 {
    u64::from(image.width_px) * u64::from(image.height_px)
}
