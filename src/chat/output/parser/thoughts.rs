//! Where in the text the think blocks lie, so that their tokens can be counted. The tags belong to
//! no block; the newlines beside them, which are not sent, do.

use std::ops::Range;

/// Byte ranges of the whole text, ascending. The end of an open block is `usize::MAX`.
#[derive(Clone, Debug, Default)]
pub(super) struct Thoughts(Vec<Range<usize>>);

impl Thoughts {
    pub(super) fn open(&mut self, at: usize) {
        self.0.push(at..usize::MAX);
    }

    pub(super) fn close(&mut self, at: usize) {
        if let Some(last) = self.0.last_mut() {
            last.end = at;
        }
    }

    /// Quick for places near the end of the text.
    pub(super) fn cover(&self, at: usize) -> bool {
        self.0.iter().rev().find(|block| block.start <= at).is_some_and(|block| at < block.end)
    }
}
