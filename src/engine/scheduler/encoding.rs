//! Which image is encoded next: the one that the oldest request needs first, just before its rows
//! come. So others decode in between, and a request that leaves costs one image at most.

use super::slots::Slots;
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::engine::vision::image::ImageKey;

/// Images of one turn. Used again from turn to turn.
#[derive(Debug, Default)]
pub(in crate::engine) struct EncodePlan {
    /// The next image of every sequence, encoded or not: they stay in memory.
    pub needed: Vec<ImageKey>,
    /// Slot and image to encode now.
    pub next: Option<(usize, ImageKey)>,
}

impl EncodePlan {
    /// `n_batch`: an image further away than the rows of a step is not needed yet.
    pub fn fill(&mut self, slots: &Slots, encoded: &EncoderCache, n_batch: usize) {
        self.needed.clear();
        let mut first: Option<(u64, usize, ImageKey)> = None;
        for (slot, sequence) in slots.active() {
            let n_done = slots[slot].fill.n_items;
            let Some(image) = sequence.image_spans.next(n_done) else { continue };
            self.needed.push(image.key);
            let far = image.at - n_done >= n_batch;
            let older = first.is_none_or(|(serial, ..)| sequence.serial < serial);
            if !far && older && !encoded.has(image.key, image.grid) {
                first = Some((sequence.serial, slot, image.key));
            }
        }
        self.next = first.map(|(_, slot, key)| (slot, key));
    }
}
