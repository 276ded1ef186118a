//! When pictures are encoded: on the engine thread, between two steps, at most one a turn, just before their rows come.
//!
//! So others decode in between, and a request that leaves costs at most the picture that is being encoded. What is saved in the
//! prefix cache is not encoded again; the rest is kept in the gallery.

use std::sync::Arc;
use std::time::Instant;

use super::EngineError;
use super::clock::Ending;
use super::error::{RunnerError, RunnerErrorKind};
use super::picture::{Picture, PictureKey};
use super::scheduler::Scheduler;

impl Scheduler {
    /// Encodes the picture that is needed first, if one is. `true`: that took its time.
    pub fn encode_next(&mut self) -> Result<bool, RunnerError> {
        if self.fixed.facts.vision.is_none() {
            return Ok(false);
        }
        let mut pinned: Vec<PictureKey> = Vec::new();
        let mut wanted: Option<(u64, usize, PictureKey)> = None;
        for (slot, sequence) in self.slots.active() {
            let Some(row) = sequence.next_picture(self.slots[slot].fill.n_items) else { continue };
            pinned.push(row.key);
            let far = row.at - self.slots[slot].fill.n_items >= self.fixed.facts.n_batch;
            if !far && !self.gallery.has(row.key, row.grid) {
                let first = wanted.is_none_or(|(serial, ..)| sequence.serial < serial);
                wanted = if first { Some((sequence.serial, slot, row.key)) } else { wanted };
            }
        }
        let Some((_, slot, key)) = wanted else {
            pinned.iter().for_each(|key| self.gallery.touch(*key));
            self.gallery.trim(&pinned);
            return Ok(false);
        };
        self.encode_for(slot, key)?;
        self.gallery.trim(&pinned);
        Ok(true)
    }

    fn encode_for(&mut self, slot: usize, key: PictureKey) -> Result<(), RunnerError> {
        let Some(sequence) = &self.slots[slot].occupant else { return Ok(()) };
        let Some(picture) = sequence.pictures.iter().find(|picture| picture.key == key).map(Arc::clone) else {
            return self.not_encoded(slot, missing());
        };
        let started = Instant::now();
        let outcome = self.runner.encode(&picture).and_then(|embedding| match embedding.grid == picture.grid {
            true => Ok(embedding),
            false => Err(missing()),
        });
        let took = started.elapsed();
        match outcome {
            Ok(embedding) => {
                self.gallery.insert(key, embedding);
                self.metrics.picture_encoded(took, pixels(&picture));
                if let Some(sequence) = &mut self.slots[slot].occupant {
                    sequence.clock.encoded += took;
                    sequence.clock.n_encoded += 1;
                    sequence.clock.prefill_started.get_or_insert(started);
                }
                Ok(())
            }
            Err(error) => self.not_encoded(slot, error),
        }
    }

    /// That request fails, and nothing else, unless the device is lost.
    fn not_encoded(&mut self, slot: usize, error: RunnerError) -> Result<(), RunnerError> {
        if error.kind == RunnerErrorKind::Fatal {
            return Err(error);
        }
        self.metrics.picture_failed();
        self.end(slot, Ending::Failed(EngineError::Encode(error)));
        Ok(())
    }
}

fn missing() -> RunnerError {
    RunnerError { call: "encoding a picture", kind: RunnerErrorKind::InvalidBatch, code: None }
}

fn pixels(picture: &Picture) -> u64 {
    u64::from(picture.width_px) * u64::from(picture.height_px)
}
