//! Where the pictures of a prompt stand.

use crate::engine::request::item::PromptItem;
use crate::engine::vision::encoder_cache::Gallery;
use crate::engine::vision::picture::{Grid, PictureKey};

/// A picture in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PictureSpan {
    key: PictureKey,
    grid: Grid,
    /// Its items.
    start: usize,
    end: usize,
}

/// The picture that a sequence needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct NextPicture {
    pub key: PictureKey,
    pub grid: Grid,
    /// Its first item that is still to come.
    pub at: usize,
}

/// The pictures of a prompt, in order.
pub(in crate::engine) struct PictureSpans(Vec<PictureSpan>);

impl PictureSpans {
    pub fn of(prompt: &[PromptItem]) -> PictureSpans {
        let first = |(start, item): (usize, &PromptItem)| {
            let row = item.picture().filter(|row| row.index == 0)?;
            Some(PictureSpan { key: row.key, grid: row.grid, start, end: start + row.grid.n_tokens() })
        };
        PictureSpans(prompt.iter().enumerate().filter_map(first).collect())
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Pictures among the first `n_done` items.
    pub fn n_before(&self, n_done: usize) -> usize {
        self.0.partition_point(|span| span.end <= n_done)
    }

    /// The first picture with rows beyond `n_done` items.
    pub fn next(&self, n_done: usize) -> Option<NextPicture> {
        let span = self.0.get(self.n_before(n_done))?;
        Some(NextPicture { key: span.key, grid: span.grid, at: span.start.max(n_done) })
    }

    /// The first item beyond `n_done` of a picture that `encoded` has not.
    pub fn first_unencoded(&self, n_done: usize, encoded: &Gallery) -> Option<usize> {
        let mut rest = self.0[self.n_before(n_done)..].iter();
        let missing = rest.find(|span| !encoded.has(span.key, span.grid));
        missing.map(|span| span.start.max(n_done))
    }
}
