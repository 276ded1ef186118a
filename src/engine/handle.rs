//! The async side's door to the engine: submit a request, read its events, cancel by dropping the stream.

use tokio::sync::{mpsc, watch};

use super::request::{Event, GenerationRequest};
use super::{SubmitError, stats::EngineStats};

/// Is the engine alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ok,
    Stopping,
    /// With the reason; the process is about to exit with 70.
    Dead(String),
}

/// Cheap to clone. Dropping the last one stops the engine.
#[derive(Clone)]
pub struct Handle {
    #[expect(dead_code)]
    commands: mpsc::Sender<()>,
    health: watch::Receiver<Health>,
    stats: watch::Receiver<EngineStats>,
}

impl Handle {
    /// Never waits: a full queue is `Busy`.
    pub fn submit(&self, request: GenerationRequest) -> Result<EventStream, SubmitError> {
        let _ = request;
        unimplemented!()
    }
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }
    pub fn stats(&self) -> EngineStats {
        self.stats.borrow().clone()
    }
}

/// Events of one request. Dropping it cancels the request within one step, also while it is queued.
pub struct EventStream {
    events: mpsc::Receiver<Event>,
}

impl EventStream {
    /// `None` after the terminal event.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}
