//! Empties what the model holds of a slot.

use crate::engine::runner::ModelRunner;
use crate::engine::scheduler::slots::Slot;

/// Empties a slot's state, in the model and here. An occupant stays and starts over.
pub(super) fn clear(runner: &mut dyn ModelRunner, slot: &mut Slot) {
    if slot.fill.n_tokens > 0 || slot.truncated {
        runner.clear(slot.seq);
    }
    slot.forget();
}

/// As `clear`, where it is not known what the model holds.
pub(super) fn clear_unknown(runner: &mut dyn ModelRunner, slot: &mut Slot) {
    runner.clear(slot.seq);
    slot.forget();
}
