//! The masks after the tokens tried so far, kept until the tokens are taken or others come.

use std::collections::VecDeque;

use crate::units::Token;

#[derive(Debug, Default)]
struct Slot {
    words: Vec<u32>,
    known: bool,
    /// The token that was tried after it.
    then: Option<Token>,
}

/// `slots[i]` belongs to the state after `i` tried tokens. Buffers are used again: nothing is
/// allocated once it is warm.
#[derive(Debug, Default)]
pub(super) struct MaskPrecompute {
    slots: VecDeque<Slot>,
    spare: Vec<Slot>,
}

impl MaskPrecompute {
    pub fn is_known(&self, depth: usize) -> bool {
        self.slots.get(depth).is_some_and(|slot| slot.known)
    }

    /// A buffer to write the mask at `depth` into, to be given to `put`.
    pub fn blank(&mut self, depth: usize) -> Vec<u32> {
        std::mem::take(&mut self.slot(depth).words)
    }

    pub fn put(&mut self, depth: usize, words: Vec<u32>, known: bool) {
        let slot = self.slot(depth);
        (slot.words, slot.known) = (words, known);
    }

    /// The mask at `depth`; empty where it is not known.
    pub fn mask(&self, depth: usize) -> &[u32] {
        self.slots.get(depth).filter(|slot| slot.known).map_or(&[], |slot| &slot.words)
    }

    /// `token` was tried at `depth`: what was known of another one is forgotten.
    pub fn tried(&mut self, depth: usize, token: Token) {
        if self.slot(depth).then != Some(token) {
            self.slot(depth).then = Some(token);
            self.forget_from(depth + 1);
        }
    }

    /// `token` was taken for good.
    pub fn took(&mut self, token: Token) {
        let Some(first) = self.slots.pop_front() else { return };
        let same = first.then == Some(token);
        self.recycle(first);
        if !same {
            self.forget_from(0);
        }
    }

    fn slot(&mut self, depth: usize) -> &mut Slot {
        while self.slots.len() <= depth {
            let slot = self.spare.pop().unwrap_or_default();
            self.slots.push_back(slot);
        }
        &mut self.slots[depth]
    }

    fn forget_from(&mut self, depth: usize) {
        while self.slots.len() > depth {
            if let Some(slot) = self.slots.pop_back() {
                self.recycle(slot);
            }
        }
    }

    fn recycle(&mut self, slot: Slot) {
        self.spare.push(Slot { words: slot.words, known: false, then: None });
    }
}
