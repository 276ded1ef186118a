//! What a test sees of the scripted model and does to it: recorded calls, gates, faults.

use std::sync::mpsc as gate_channel;

use tokio::sync::mpsc;

use crate::engine::request::error::RunnerErrorKind;
use crate::engine::runner::{BatchRow, DraftRow};
use crate::engine::vision::image::ImageKey;
use crate::units::{Pos, SeqId};

/// What happens instead of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Error(RunnerErrorKind),
    Panic,
}

/// What the engine did to the model, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A step begins (a gated one then waits for its ticket).
    Step(Vec<BatchRow>),
    /// A truncation from position `from`; 0 is a clear. `kept` is the runner's answer.
    Truncate { seq: SeqId, from: Pos, kept: bool },
    /// A pass of the MTP head.
    Draft(Vec<DraftRow>),
    /// An image is encoded (behind a gate of its own it then waits for its ticket).
    Encode(ImageKey),
    /// A step found no free cells.
    NoRoom,
    /// A state was copied out, with the rows from position `from`.
    Save { seq: SeqId, from: Pos },
    /// A state was put back; positions `0..kept` were held already, by `donor`.
    Restore { seq: SeqId, donor: SeqId, kept: Pos, end: Pos },
}

/// Reads what the engine did. Calls are recorded only while this exists, without a bound: tests are
/// short.
pub struct Calls {
    pub(super) receiver: mpsc::UnboundedReceiver<Call>,
}

impl Calls {
    /// Waits for the next call; `None` when the runner is gone and all was read.
    pub async fn next(&mut self) -> Option<Call> {
        self.receiver.recv().await
    }
    /// Waits for the next step and gives its rows.
    pub async fn next_step(&mut self) -> Option<Vec<BatchRow>> {
        loop {
            if let Call::Step(rows) = self.next().await? {
                return Some(rows);
            }
        }
    }
    /// What was recorded so far and not read yet.
    pub fn drain(&mut self) -> Vec<Call> {
        std::iter::from_fn(|| self.receiver.try_recv().ok()).collect()
    }
}

/// Holds the runner at the beginning of every step until a ticket is given. Dropping it lets all
/// steps run.
pub struct Gate {
    pub(super) tickets: gate_channel::Sender<()>,
}

impl Gate {
    /// Lets `n` more steps run.
    pub fn allow(&self, n: usize) {
        for _ in 0..n {
            // The runner may be gone already: then there is nothing to let through.
            let _ = self.tickets.send(());
        }
    }
}
