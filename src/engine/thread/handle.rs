//! The async side's door to the engine: submit a request, read its events, cancel by dropping the
//! stream.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, TryAcquireError, mpsc, watch};

use super::stats::EngineStats;
use super::watchdog::Watchdog;
use crate::engine::lost::{Lost, Watch};
use crate::engine::prefix::cache::CacheView;
use crate::engine::request::error::SubmitError;
use crate::engine::request::generation::GenerationRequest;
use crate::engine::request::images;
use crate::engine::request::item::PromptItem;
use crate::engine::runner::RunnerFacts;
use crate::engine::sequence::Sequence;
use crate::engine::sequence::context::EngineContext;
use crate::engine::sequence::sink::{EventStream, Sink};
use crate::text::Tokenizer;

/// Is the engine alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    Ok,
    Stopping,
    /// With the reason; the process is about to exit with 70.
    Dead(String),
}

/// What the engine thread is told.
pub(in crate::engine) enum Command {
    Submit(Box<Sequence>),
    /// Forget all saved states.
    ClearCache,
    /// Look at the deadline: the engine is asked to stop.
    Wake,
}

/// Cheap to clone. Dropping the last one (and all streams) stops the engine.
#[derive(Clone)]
pub struct Handle {
    pub(in crate::engine) commands: mpsc::Sender<Command>,
    /// One permit for each request that may be accepted and not ended: all sequences and the queue.
    pub(in crate::engine) places: Arc<Semaphore>,
    pub(in crate::engine) context: Arc<EngineContext>,
    pub(in crate::engine) health: watch::Receiver<Health>,
    pub(in crate::engine) lost: Lost,
    pub(in crate::engine) stats: watch::Receiver<EngineStats>,
    pub(in crate::engine) cache: watch::Receiver<Arc<CacheView>>,
    pub(in crate::engine) watchdog: Arc<Watchdog>,
}

impl Handle {
    /// Never waits: a full queue is `Busy`. The sampler is primed with the prompt here, off the
    /// engine thread.
    pub fn submit(&self, request: GenerationRequest) -> Result<EventStream, SubmitError> {
        self.alive()?;
        let n_ctx = self.context.facts.n_ctx;
        images::check(&request, self.context.facts.vision.as_ref()).map_err(SubmitError::Images)?;
        let n_prompt = request.prompt.iter().map(PromptItem::n_tokens).sum();
        if n_prompt >= n_ctx {
            return Err(SubmitError::TooLong { n_prompt, n_ctx });
        }
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|error| match error {
            TryAcquireError::NoPermits => SubmitError::Busy,
            TryAcquireError::Closed => SubmitError::Stopping,
        })?;
        let (sink, stream) = Sink::open(place, &self.lost);
        let sequence = Box::new(Sequence::new(request, sink, &self.context));
        self.watchdog.queued(sequence.clock.arrived);
        match self.commands.try_send(Command::Submit(sequence)) {
            Ok(()) => Ok(stream),
            Err(mpsc::error::TrySendError::Full(_)) => Err(SubmitError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(self.alive().err().unwrap_or(SubmitError::Stopping)),
        }
    }

    fn alive(&self) -> Result<(), SubmitError> {
        match self.health() {
            Health::Ok => Ok(()),
            Health::Stopping => Err(SubmitError::Stopping),
            Health::Dead(_) => Err(SubmitError::Dead),
        }
    }

    pub fn health(&self) -> Health {
        match self.lost.reason() {
            Some(reason) => Health::Dead(reason.to_string()),
            None => self.health.borrow().clone(),
        }
    }

    /// The signal for whoever finds that the engine's thread will not come back.
    pub fn lost(&self) -> Lost {
        self.lost.clone()
    }

    pub fn stats(&self) -> EngineStats {
        self.stats.borrow().clone()
    }

    /// The prefix cache as it was after the last step.
    pub fn cache(&self) -> Arc<CacheView> {
        Arc::clone(&self.cache.borrow())
    }

    /// Has the engine forget all states that are saved or left in idle sequences. Never waits.
    pub fn clear_cache(&self) -> Result<(), SubmitError> {
        self.alive()?;
        self.commands.try_send(Command::ClearCache).map_err(|_| SubmitError::Busy)
    }

    /// How long the step lasts that runs now; `None` between steps. Asks no lock and not the engine
    /// thread, so it is known also when that thread hangs in the device.
    pub fn step_age(&self) -> Option<Duration> {
        self.watchdog.step_age()
    }

    /// How long the request has waited that came first of those that wait; `None` when none does.
    pub fn oldest_queued(&self) -> Option<Duration> {
        self.watchdog.oldest_queued()
    }

    /// The loaded context: `n_ctx`, number of sequences, end-of-generation tokens.
    pub fn facts(&self) -> &RunnerFacts {
        &self.context.facts
    }

    /// The tokenizer of the loaded model.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.context.tokenizer
    }

    /// Resolves with the reason when the engine dies of a panic or a device error; never on an
    /// orderly stop.
    pub async fn died(&self) -> String {
        died(self.health.clone(), self.lost.watch()).await
    }
}

pub(in crate::engine) async fn died(mut health: watch::Receiver<Health>, mut lost: Watch) -> String {
    tokio::select! {
        reason = dead(&mut health) => reason,
        reason = lost.told() => reason.to_string(),
    }
}

async fn dead(health: &mut watch::Receiver<Health>) -> String {
    let reason = match health.wait_for(|h| matches!(h, Health::Dead(_))).await.as_deref() {
        Ok(Health::Dead(reason)) => Some(reason.clone()),
        _ => None,
    };
    match reason {
        Some(reason) => reason,
        None => std::future::pending().await,
    }
}
