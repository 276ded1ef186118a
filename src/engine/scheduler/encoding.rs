//! Which picture is encoded next: the one that the oldest request needs first, just before its rows
//! come. So others decode in between, and a request that leaves costs one picture at most.

use super::slots::Slots;
use crate::engine::vision::encoder_cache::Gallery;
use crate::engine::vision::picture::PictureKey;

/// Pictures of one turn. Used again from turn to turn.
#[derive(Debug, Default)]
pub(in crate::engine) struct EncodePlan {
    /// The next picture of every sequence, encoded or not: they stay in memory.
    pub needed: Vec<PictureKey>,
    /// Slot and picture to encode now.
    pub next: Option<(usize, PictureKey)>,
}

impl EncodePlan {
    /// `n_batch`: a picture further away than the rows of a step is not needed yet.
    pub fn fill(&mut self, slots: &Slots, encoded: &Gallery, n_batch: usize) {
        self.needed.clear();
        let mut first: Option<(u64, usize, PictureKey)> = None;
        for (slot, sequence) in slots.active() {
            let n_done = slots[slot].fill.n_items;
            let Some(picture) = sequence.picture_spans.next(n_done) else { continue };
            self.needed.push(picture.key);
            let far = picture.at - n_done >= n_batch;
            let older = first.is_none_or(|(serial, ..)| sequence.serial < serial);
            if !far && older && !encoded.has(picture.key, picture.grid) {
                first = Some((sequence.serial, slot, picture.key));
            }
        }
        self.next = first.map(|(_, slot, key)| (slot, key));
    }
}
