//! Where the images of a prompt stand.

use crate::engine::request::item::PromptItem;
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::engine::vision::image::{Grid, ImageKey};

/// An image in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ImageSpan {
    key: ImageKey,
    grid: Grid,
    /// Its items.
    start: usize,
    end: usize,
}

/// The image that a sequence needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct NextImage {
    pub key: ImageKey,
    pub grid: Grid,
    /// Its first item that is still to come.
    pub at: usize,
}

/// The images of a prompt, in order.
pub(in crate::engine) struct ImageSpans(Vec<ImageSpan>);

impl ImageSpans {
    pub fn of(prompt: &[PromptItem]) -> ImageSpans {
        let first = |(start, item): (usize, &PromptItem)| {
            let row = item.image().filter(|row| row.index == 0)?;
            Some(ImageSpan { key: row.key, grid: row.grid, start, end: start + row.grid.n_tokens() })
        };
        ImageSpans(prompt.iter().enumerate().filter_map(first).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Images among the first `n_done` items.
    pub fn n_before(&self, n_done: usize) -> usize {
        self.0.partition_point(|span| span.end <= n_done)
    }

    /// The first image with rows beyond `n_done` items.
    pub fn next(&self, n_done: usize) -> Option<NextImage> {
        let span = self.0.get(self.n_before(n_done))?;
        Some(NextImage { key: span.key, grid: span.grid, at: span.start.max(n_done) })
    }

    /// The first item beyond `n_done` of an image that `encoded` has not.
    pub fn first_unencoded(&self, n_done: usize, encoded: &EncoderCache) -> Option<usize> {
        let mut rest = self.0[self.n_before(n_done)..].iter();
        let missing = rest.find(|span| !encoded.has(span.key, span.grid));
        missing.map(|span| span.start.max(n_done))
    }
}
