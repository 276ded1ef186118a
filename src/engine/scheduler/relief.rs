//! What gives way when the device says that the cache has no room although the sums said so (its
//! cells are handed out in blocks, for instance).

use super::state::{SlotState, newest_elastic, oldest_idle, running};

/// In the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Relief {
    /// Drop what a finished sequence left in the slot.
    Evict(usize),
    /// Draft no more.
    DropDrafts,
    /// Set the sequence in the slot back to the queue, and admit nobody beside others: the sums
    /// would let it in again at once.
    Preempt(usize),
    /// Prefill at most so many rows a step.
    SmallerChunks(usize),
    /// The last sequence ends. `begun`: it has an answer, and no context left for more of it.
    End { slot: usize, begun: bool },
    /// Nobody is there.
    Nothing,
}

/// `n_rows`: rows of the step that did not fit.
pub(in crate::engine) fn relieve(slots: &[SlotState], n_rows: usize) -> Relief {
    if let Some(slot) = oldest_idle(slots, &[]) {
        return Relief::Evict(slot);
    }
    if running(slots).any(|(_, running)| running.n_drafted > 0) {
        return Relief::DropDrafts;
    }
    let newest = running(slots).max_by_key(|(_, running)| running.serial);
    let Some((newest, _)) = newest else { return Relief::Nothing };
    let slot = newest_elastic(slots, &[]).unwrap_or(newest);
    if running(slots).count() > 1 {
        return Relief::Preempt(slot);
    }
    if n_rows > 1 {
        return Relief::SmallerChunks(n_rows / 2);
    }
    let begun = slots[slot].running.is_some_and(|running| running.begun);
    Relief::End { slot, begun }
}
