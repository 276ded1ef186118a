//! Encoded images in host memory, so that none is encoded twice while the budget lasts.
//!
//! Pure bookkeeping: `scheduler` says when, `execution` encodes.

use std::collections::BTreeMap;

use crate::engine::vision::image::{Embedding, Grid, ImageKey, ImageRow};

/// Embeddings by image. What is needed next stays whatever the budget says; the rest goes in the
/// order of its last use.
#[derive(Debug, Default)]
pub struct EncoderCache {
    entries: BTreeMap<ImageKey, Cached>,
    budget: u64,
    bytes: u64,
    clock: u64,
}

#[derive(Debug)]
struct Cached {
    embedding: Embedding,
    last_used: u64,
}

impl EncoderCache {
    /// For steps of tokens alone.
    pub const EMPTY: EncoderCache = EncoderCache::new(0);

    pub const fn new(budget: u64) -> EncoderCache {
        EncoderCache { entries: BTreeMap::new(), budget, bytes: 0, clock: 0 }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn has(&self, key: ImageKey, grid: Grid) -> bool {
        self.entries.get(&key).is_some_and(|entries| entries.embedding.grid == grid)
    }

    /// The numbers of one row; `None`: the image is not there.
    pub fn row(&self, row: ImageRow) -> Option<&[f32]> {
        let entries = self.entries.get(&row.key).filter(|entries| entries.embedding.grid == row.grid)?;
        entries.embedding.row(row.index)
    }

    /// It is of use now.
    pub fn touch(&mut self, key: ImageKey) {
        self.clock += 1;
        if let Some(entries) = self.entries.get_mut(&key) {
            entries.last_used = self.clock;
        }
    }

    pub fn insert(&mut self, key: ImageKey, embedding: Embedding) {
        self.clock += 1;
        self.bytes += embedding.bytes();
        let old = self.entries.insert(key, Cached { embedding, last_used: self.clock });
        self.bytes -= old.map_or(0, |old| old.embedding.bytes());
    }

    /// Lets go of what is over the budget, but for `pinned`.
    pub fn trim(&mut self, pinned: &[ImageKey]) {
        while self.bytes > self.budget {
            let free = self.entries.iter().filter(|(key, _)| !pinned.contains(key));
            let Some(oldest) = free.min_by_key(|(_, entries)| entries.last_used).map(|(key, _)| *key) else { return };
            let gone = self.entries.remove(&oldest);
            self.bytes -= gone.map_or(0, |gone| gone.embedding.bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(n: u16) -> Embedding {
        Embedding { grid: Grid { nx: n, ny: 1 }, n_embd: 2, floats: vec![f32::from(n); 2 * usize::from(n)] }
    }

    fn has(encoder_cache: &EncoderCache, n: u16) -> bool {
        encoder_cache.has(ImageKey::new(n.into()), Grid { nx: n, ny: 1 })
    }

    #[test]
    fn the_longest_unused_gives_way_and_what_is_needed_stays() {
        let mut encoder_cache = EncoderCache::new(8 * 6);
        for n in [1, 2, 3] {
            encoder_cache.insert(ImageKey::new(n.into()), of(n));
        }
        encoder_cache.touch(ImageKey::new(1));
        encoder_cache.insert(ImageKey::new(4), of(4));
        encoder_cache.trim(&[ImageKey::new(4)]);
        assert_eq!([1, 2, 3, 4].map(|n| has(&encoder_cache, n)), [true, false, false, true]);
        encoder_cache.insert(ImageKey::new(9), of(9));
        encoder_cache.trim(&[ImageKey::new(9)]);
        assert_eq!(
            [1, 4, 9].map(|n| has(&encoder_cache, n)),
            [false, false, true],
            "larger than the budget and needed"
        );
        encoder_cache.trim(&[]);
        assert_eq!(encoder_cache.bytes(), 0);
    }

    #[test]
    fn a_row_is_found_by_image_grid_and_index() {
        let mut encoder_cache = EncoderCache::new(1000);
        let grid = Grid { nx: 2, ny: 1 };
        encoder_cache.insert(ImageKey::new(7), Embedding { grid, n_embd: 2, floats: vec![1.0, 2.0, 3.0, 4.0] });
        let row = |index, grid| ImageRow { key: ImageKey::new(7), grid, index };
        assert_eq!(encoder_cache.row(row(1, grid)), Some(&[3.0, 4.0][..]));
        assert_eq!(encoder_cache.row(row(2, grid)), None);
        assert_eq!(encoder_cache.row(row(0, Grid { nx: 1, ny: 2 })), None);
    }

    proptest! {
        #[test]
        fn the_budget_holds_and_the_sum_is_right(budget in 0u64..200, uses in prop::collection::vec((1u16..9, any::<bool>()), 0..60)) {
            let mut encoder_cache = EncoderCache::new(budget);
            for (n, pinned) in uses {
                let key = ImageKey::new(n.into());
                if !has(&encoder_cache, n) {
                    encoder_cache.insert(key, of(n));
                }
                encoder_cache.trim(if pinned { std::slice::from_ref(&key) } else { &[] });
                prop_assert!(!pinned || has(&encoder_cache, n));
                let sum: u64 = encoder_cache.entries.values().map(|entries| entries.embedding.bytes()).sum();
                prop_assert_eq!(sum, encoder_cache.bytes());
                prop_assert!(sum <= budget || (pinned && encoder_cache.entries.len() == 1));
            }
        }
    }
}
