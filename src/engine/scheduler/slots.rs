//! The slots of the context: who is in which, and what is in the KV cache for it.

use crate::engine::request::item::{Extent, PromptItem, whole};
use crate::engine::sequence::Sequence;
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::units::SeqId;

/// One sequence of the context.
pub(in crate::engine) struct Slot {
    pub seq: SeqId,
    /// What of the occupant's items, or of `left`, is in the KV cache.
    pub fill: Extent,
    /// Items in the KV cache while nobody is in the slot.
    pub left: Vec<PromptItem>,
    /// Was truncated and has not been in a step since: a second truncation is not possible.
    pub truncated: bool,
    /// Step of the last row.
    pub last_used: u64,
    /// Tokens of the KV cache that are promised to the occupant.
    pub reserve: usize,
    pub occupant: Option<Box<Sequence>>,
}

impl Slot {
    fn new(seq: SeqId) -> Slot {
        Slot {
            seq,
            fill: Extent::default(),
            left: Vec::new(),
            truncated: false,
            reserve: 0,
            last_used: 0,
            occupant: None,
        }
    }

    /// Items that the occupant must still have processed.
    pub fn n_pending(&self) -> usize {
        self.occupant.as_ref().map_or(0, |sequence| sequence.items.len() - self.fill.n_items)
    }

    /// Items that the occupant's next chunk may take: it ends where a state is checkpointed.
    pub fn n_to_boundary(&self) -> usize {
        let to_boundary = self.occupant.as_ref().map_or(0, |sequence| sequence.to_next_boundary(self.fill.n_items));
        to_boundary.min(self.n_pending())
    }

    /// Those of them that come before an image which is not encoded yet.
    pub fn n_ready(&self, encoder_cache: &EncoderCache) -> usize {
        let done = self.fill.n_items;
        let missing =
            self.occupant.as_ref().and_then(|sequence| sequence.image_spans.first_unencoded(done, encoder_cache));
        missing.map_or(usize::MAX, |at| at - done).min(self.n_to_boundary())
    }

    /// The items whose rows are in the KV cache.
    pub fn held(&self) -> &[PromptItem] {
        let items = self.occupant.as_ref().map_or(&self.left, |sequence| &sequence.items);
        &items[..self.fill.n_items]
    }

    /// The model has forgotten the slot.
    pub fn forget(&mut self) {
        self.fill = Extent::default();
        self.left.clear();
        self.truncated = false;
    }

    pub fn is_idle(&self) -> bool {
        self.occupant.is_none()
    }
}

/// The slot of an admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct SlotChoice {
    pub slot: usize,
    /// Items of the slot's state that the new sequence begins with.
    pub n_common: usize,
}

/// All slots.
pub(in crate::engine) struct Slots {
    slots: Vec<Slot>,
}

impl std::ops::Index<usize> for Slots {
    type Output = Slot;
    fn index(&self, slot: usize) -> &Slot {
        &self.slots[slot]
    }
}

impl std::ops::IndexMut<usize> for Slots {
    fn index_mut(&mut self, slot: usize) -> &mut Slot {
        &mut self.slots[slot]
    }
}

impl Slots {
    pub fn new(n: usize) -> Slots {
        Slots { slots: (0..n as u32).map(|seq| Slot::new(SeqId(seq))).collect() }
    }

    pub fn len(&self) -> usize {
        self.slots.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }

    /// Slots with a sequence in them.
    pub fn active(&self) -> impl Iterator<Item = (usize, &Sequence)> {
        self.slots.iter().enumerate().filter_map(|(i, slot)| Some((i, slot.occupant.as_deref()?)))
    }

    /// As `active`, to be changed.
    pub fn occupants_mut(&mut self) -> impl Iterator<Item = (usize, &mut Sequence)> {
        self.slots.iter_mut().enumerate().filter_map(|(i, slot)| Some((i, slot.occupant.as_deref_mut()?)))
    }

    pub fn n_active(&self) -> usize {
        self.active().count()
    }

    /// Tokens in the KV cache.
    pub fn n_fill(&self) -> usize {
        self.slots.iter().map(|slot| slot.fill.n_tokens).sum()
    }

    /// The idle slot for `sequence`: the one with the longest usable common prefix, else an empty
    /// one, else the one that was not used for longest. `None`: all are taken. A hybrid model
    /// cannot be truncated, so there a state is usable only where the prompt goes on from its very
    /// end.
    pub fn choose(&self, sequence: &Sequence, hybrid: bool) -> Option<SlotChoice> {
        let idle = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_idle());
        let choices = idle.map(|(i, slot)| {
            let usable = if sequence.cache_prompt { usable_prefix(&slot.left, &sequence.items, hybrid) } else { 0 };
            let rank = (usable, slot.left.is_empty(), std::cmp::Reverse(slot.last_used));
            (rank, SlotChoice { slot: i, n_common: usable })
        });
        choices.max_by_key(|(rank, choice)| (*rank, std::cmp::Reverse(choice.slot))).map(|(_, choice)| choice)
    }

    /// The idle slot with state that was not used for longest, other than `slot`.
    pub fn oldest_idle_but(&self, slot: usize) -> Option<usize> {
        let others = self.slots.iter().enumerate().filter(|(i, place)| *i != slot && place.is_idle());
        let filled = others.filter(|(_, place)| place.fill.n_tokens > 0);
        filled.min_by_key(|(_, place)| place.last_used).map(|(i, _)| i)
    }
}

/// Leading items of `state` that a sequence with `items` may keep, images whole. One item is
/// always left to decode, for its logits.
fn usable_prefix(state: &[PromptItem], items: &[PromptItem], hybrid: bool) -> usize {
    let n_common = state.iter().zip(items).take_while(|(a, b)| a == b).count();
    let usable = whole(items, n_common.min(items.len().saturating_sub(1)));
    if hybrid && usable < state.len() { 0 } else { usable }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::units::Token;

    fn items(tokens: &[u32]) -> Vec<PromptItem> {
        tokens.iter().map(|&t| PromptItem::Token(Token(t))).collect()
    }

    #[test]
    fn a_prefix_leaves_one_item_to_decode() {
        assert_eq!(usable_prefix(&items(&[1, 2, 3]), &items(&[1, 2, 3]), false), 2);
        assert_eq!(usable_prefix(&items(&[1, 2, 3]), &items(&[1, 2, 3, 4]), false), 3);
        assert_eq!(usable_prefix(&items(&[1, 2, 3]), &items(&[1, 9, 3, 4]), false), 1);
    }

    #[test]
    fn a_hybrid_state_is_kept_whole_or_not_at_all() {
        assert_eq!(usable_prefix(&items(&[1, 2, 3]), &items(&[1, 2, 3]), true), 0);
        assert_eq!(usable_prefix(&items(&[1, 2, 3]), &items(&[1, 2, 3, 4]), true), 3);
        assert_eq!(usable_prefix(&items(&[1, 2, 3]), &items(&[1, 2, 9, 4]), true), 0);
    }

    proptest! {
        #[test]
        fn a_usable_prefix_is_a_prefix_of_both(
            state in prop::collection::vec(0u32..3, 0..8),
            prompt in prop::collection::vec(0u32..3, 1..8),
            hybrid: bool,
        ) {
            let n = usable_prefix(&items(&state), &items(&prompt), hybrid);
            prop_assert!(n < prompt.len());
            prop_assert_eq!(&state[..n], &prompt[..n]);
            prop_assert!(!hybrid || n == 0 || n == state.len());
        }
    }
}
