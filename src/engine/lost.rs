//! The engine's thread is lost in the middle of a call: what everyone who waits for it is told
//! then.
//!
//! A device error that llama.cpp cannot return ends in an abort on the thread that met it. That
//! thread never comes back, so nothing of the engine's own ending runs. This signal stands in for
//! it: it needs neither the thread nor what it owns.

use std::sync::Arc;

use tokio::sync::watch;

/// Cheap to clone; every clone is the same signal. It is given once and stays.
#[derive(Clone)]
pub struct Lost(Arc<watch::Sender<Option<Arc<str>>>>);

impl Lost {
    pub(super) fn new() -> Lost {
        Lost(Arc::new(watch::Sender::new(None)))
    }

    /// Ends all open streams with their error, from any thread. The first reason stays.
    pub fn tell(&self, reason: &str) {
        self.0.send_if_modified(|told| {
            let is_first = told.is_none();
            told.get_or_insert_with(|| reason.into());
            is_first
        });
    }

    pub(super) fn reason(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    pub(super) fn watch(&self) -> Watch {
        Watch(self.0.subscribe())
    }
}

/// Waits for the signal.
pub(super) struct Watch(watch::Receiver<Option<Arc<str>>>);

impl Watch {
    /// Resolves with the reason; never, where the engine ends in another way.
    pub async fn told(&mut self) -> Arc<str> {
        let reason = match self.0.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(reason)) => Some(Arc::clone(reason)),
            _ => None,
        };
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}
