//! The engine thread: start-up, the command loop, an orderly stop, and what is left when it dies.
//!
//! A std thread, because a model is bound to the thread that made it and because nothing here may
//! await.

mod engine_core;
pub mod handle;
mod published;
pub mod stats;
mod watchdog;

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc as ready_channel};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, mpsc, watch};

use crate::config::Profile;
use crate::engine::lost::Lost;
use crate::engine::prefix::cache::{CacheView, PrefixCache, PrefixSettings};
use crate::engine::request::error::{EngineError, EngineStartError, RunnerError};
use crate::engine::runner::{Loaded, RunnerFacts};
use crate::engine::scheduler::state::Limits;
use crate::engine::sequence::context::EngineContext;
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::telemetry::Metrics;
use engine_core::{CoreParts, EngineCore};
use handle::{Command, Handle, Health};
use published::Published;
use stats::EngineStats;
use watchdog::Watchdog;

/// How long a stop waits for the step that runs when the grace is over. A longer one hangs in the
/// device.
const LAST_STEP: Duration = Duration::from_secs(10);
/// Grace periods beyond it are shortened: a point in time must not overflow.
const MAX_GRACE: Duration = Duration::from_secs(24 * 3600);

/// What the engine needs to know beside the runner's facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Requests that may wait when all sequences are taken.
    pub queue_capacity: usize,
    /// Rows of a step while anything decodes.
    pub prefill_chunk_tokens: usize,
    /// Host memory for encoded images beyond those that are needed next.
    pub image_cache_bytes: u64,
}

impl From<&Profile> for EngineSettings {
    fn from(profile: &Profile) -> EngineSettings {
        EngineSettings {
            queue_capacity: profile.engine.queue_capacity as usize,
            prefill_chunk_tokens: profile.engine.prefill_chunk_tokens as usize,
            image_cache_bytes: u64::from(profile.vision.cache_mib) << 20,
        }
    }
}

/// How a stop went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The thread has ended.
    Clean,
    /// It was dead, with the reason.
    Died(String),
    /// It hangs in a step, or is lost in one; it is left behind.
    Stuck,
}

/// The way to start an engine.
pub struct Engine;

impl Engine {
    /// Starts the thread, makes the model on it with `factory` and waits until it is loaded.
    /// Blocks, so call it outside of the runtime or through `spawn_blocking`.
    pub fn spawn<F, E>(
        factory: F,
        settings: EngineSettings,
        metrics: Metrics,
    ) -> Result<(Handle, Joiner), EngineStartError>
    where
        F: FnOnce() -> Result<Loaded, E> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Engine::with_cache(factory, settings, PrefixSettings::OFF, metrics)
    }

    /// As `spawn`, with a prefix cache.
    pub fn with_cache<F, E>(
        factory: F,
        settings: EngineSettings,
        cache: PrefixSettings,
        metrics: Metrics,
    ) -> Result<(Handle, Joiner), EngineStartError>
    where
        F: FnOnce() -> Result<Loaded, E> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let (ready_sender, ready) = ready_channel::sync_channel(1);
        let (stop, stop_receiver) = watch::channel(None);
        let body = move || {
            let loaded = match catch_unwind(AssertUnwindSafe(factory)) {
                Ok(Ok(loaded)) => check(loaded.runner.facts()).map(|()| loaded),
                Ok(Err(error)) => Err(EngineStartError::Load(error.into())),
                Err(panic) => Err(EngineStartError::Panicked(panic_message(&*panic))),
            };
            match loaded {
                Err(error) => drop(ready_sender.send(Err(error))),
                Ok(loaded) => {
                    let parts = ThreadParts { loaded, settings, cache, metrics, stop: stop_receiver };
                    let (handle, thread) = EngineThread::new(parts);
                    // If the starter is gone, so is the handle, and the loop below ends at once.
                    drop(ready_sender.send(Ok(handle)));
                    thread.run();
                }
            }
        };
        let thread =
            std::thread::Builder::new().name("engine".to_owned()).spawn(body).map_err(EngineStartError::Thread)?;
        let handle = match ready.recv() {
            Ok(ready) => ready?,
            Err(_) => return Err(EngineStartError::Panicked("the thread ended while it loaded".to_owned())),
        };
        let (commands, health) = (handle.commands.downgrade(), handle.health.clone());
        let joiner = Joiner { thread, stop, commands, health, lost: handle.lost() };
        Ok((handle, joiner))
    }
}

fn limits(facts: &RunnerFacts, settings: &EngineSettings) -> Limits {
    Limits {
        n_ctx: facts.n_ctx,
        n_batch: facts.n_batch,
        n_ubatch: facts.n_ubatch,
        prefill_chunk: settings.prefill_chunk_tokens.max(1),
    }
}

/// Facts that the scheduler counts on: every sequence has its decode row and its output in each
/// step.
fn check(facts: &RunnerFacts) -> Result<(), EngineStartError> {
    let RunnerFacts { n_ctx, n_seq_max, n_batch, n_outputs_max, .. } = *facts;
    let wrong = if n_seq_max == 0 || n_ctx < 2 {
        format!("{n_seq_max} sequences over {n_ctx} tokens")
    } else if n_batch <= n_seq_max {
        format!("a batch of {n_batch} rows for {n_seq_max} sequences and their prefill")
    } else if n_outputs_max < n_seq_max {
        format!("{n_outputs_max} outputs a step for {n_seq_max} sequences")
    } else {
        return Ok(());
    };
    Err(EngineStartError::Facts(wrong))
}

/// Waits for the end of the thread. Dropping it lets the thread end by itself, with the last
/// handle.
pub struct Joiner {
    thread: std::thread::JoinHandle<()>,
    /// Point in time at which running generations fail.
    stop: watch::Sender<Option<Instant>>,
    commands: mpsc::WeakSender<Command>,
    health: watch::Receiver<Health>,
    lost: Lost,
}

impl Joiner {
    /// Stops: waiting requests fail at once, running generations when `grace` is over.
    pub async fn shutdown(self, grace: Duration) -> Shutdown {
        let (_keep, mut nobody) = mpsc::channel(1);
        self.shutdown_unless(grace, &mut nobody).await
    }

    /// As `shutdown`, for somebody impatient: the first message of `hurry` ends the grace, the
    /// second also the wait for the step that runs.
    pub async fn shutdown_unless(mut self, grace: Duration, hurry: &mut mpsc::Receiver<()>) -> Shutdown {
        let grace = grace.min(MAX_GRACE);
        let mut lost = self.lost.watch();
        self.stop_at(Instant::now() + grace);
        let hurried = tokio::select! {
            () = ended(&mut self.health) => false,
            () = tokio::time::sleep(grace + LAST_STEP) => return Shutdown::Stuck,
            _ = lost.told() => return Shutdown::Stuck,
            () = message(hurry) => true,
        };
        if hurried {
            self.stop_at(Instant::now());
            tokio::select! {
                () = ended(&mut self.health) => {}
                () = tokio::time::sleep(LAST_STEP) => return Shutdown::Stuck,
                _ = lost.told() => return Shutdown::Stuck,
                () = message(hurry) => return Shutdown::Stuck,
            }
        }
        let joined = self.thread.join();
        match (&*self.health.borrow(), joined) {
            (Health::Dead(reason), _) => Shutdown::Died(reason.clone()),
            (_, Err(panic)) => Shutdown::Died(panic_message(&*panic)),
            (_, Ok(())) => Shutdown::Clean,
        }
    }

    /// Waits, blocking, for the end of an engine that does nothing: `handle` must be the last one.
    pub fn join(self, handle: Handle) {
        drop(handle);
        // A panic is in the log already.
        let _ = self.thread.join();
    }

    fn stop_at(&self, deadline: Instant) {
        self.stop.send_replace(Some(deadline));
        if let Some(commands) = self.commands.upgrade() {
            // The channel has a place for one. If it is full or closed, the thread looks at the
            // deadline anyway.
            let _ = commands.try_send(Command::Wake);
        }
    }

    /// Resolves with the reason when the engine dies of a panic or a device error; never on an
    /// orderly stop.
    pub async fn died(&self) -> String {
        handle::died(self.health.clone(), self.lost.watch()).await
    }
}

async fn message(messages: &mut mpsc::Receiver<()>) {
    if messages.recv().await.is_none() {
        std::future::pending().await
    }
}

/// The thread drops its end of `health` last.
async fn ended(health: &mut watch::Receiver<Health>) {
    while health.changed().await.is_ok() {}
}

/// What the thread is made of.
struct ThreadParts {
    loaded: Loaded,
    settings: EngineSettings,
    cache: PrefixSettings,
    metrics: Metrics,
    stop: watch::Receiver<Option<Instant>>,
}

/// What the thread owns. Fields are dropped in order: `health` last, when the model is gone.
struct EngineThread {
    core: EngineCore,
    commands: mpsc::Receiver<Command>,
    stop: watch::Receiver<Option<Instant>>,
    deadline: Option<Instant>,
    health: watch::Sender<Health>,
}

impl EngineThread {
    fn new(parts: ThreadParts) -> (Handle, EngineThread) {
        let ThreadParts { loaded, settings, cache, metrics, stop } = parts;
        let Loaded { runner, tokenizer } = loaded;
        let facts = runner.facts().clone();
        let n_places = facts.n_seq_max + settings.queue_capacity;
        // A message for every accepted request, and one to wake the thread: sending never fails for
        // lack of room.
        let (commands, receiver) = mpsc::channel(n_places + 1);
        let (health_sender, health) = watch::channel(Health::Ok);
        let (stats_sender, stats) = watch::channel(EngineStats::of(&facts));
        let context = Arc::new(EngineContext { facts, tokenizer });
        let watchdog = Arc::new(Watchdog::new());
        let (cache_sender, cache_view) = watch::channel(Arc::new(CacheView::default()));
        let published = Published { stats: stats_sender, cache: cache_sender, watchdog: Arc::clone(&watchdog) };
        let core = EngineCore::new(CoreParts {
            runner,
            limits: limits(&context.facts, &settings),
            prefix: PrefixCache::open(cache, &context.facts),
            encoder_cache: EncoderCache::new(settings.image_cache_bytes),
            context: Arc::clone(&context),
            metrics,
            published,
        });
        let places = Arc::new(Semaphore::new(n_places));
        let thread = EngineThread { core, commands: receiver, stop, deadline: None, health: health_sender };
        (Handle { commands, places, context, health, lost: Lost::new(), stats, cache: cache_view, watchdog }, thread)
    }

    fn run(mut self) {
        let reason = match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(panic) => panic_message(&*panic),
        };
        tracing::error!(reason, "the engine stopped");
        self.health.send_replace(Health::Dead(reason));
        self.commands.close();
        // What a panic left behind may be inconsistent. Sinks that this does not reach end when
        // they are dropped.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            self.core.fail_all(&EngineError::Dead);
            self.core.publish();
        }));
        while let Some(command) = self.commands.blocking_recv() {
            drop(command);
        }
        // The runner of a lost device may panic once more in its destructor.
        let EngineThread { core, health, .. } = self;
        let _ = catch_unwind(AssertUnwindSafe(|| drop(core)));
        drop(health);
    }

    /// Runs until the last handle is gone or a stop is done. An error is the death of the engine.
    fn serve(&mut self) -> Result<(), RunnerError> {
        self.core.publish();
        loop {
            if self.core.is_idle() {
                match self.commands.blocking_recv() {
                    None => return Ok(()),
                    Some(command) => self.take(command),
                }
            }
            while let Ok(command) = self.commands.try_recv() {
                self.take(command);
            }
            self.check_stop();
            self.core.advance()?;
        }
    }

    fn take(&mut self, command: Command) {
        match command {
            Command::Submit(sequence) => self.core.accept(sequence),
            Command::ClearCache => self.core.clear_cache(),
            Command::Wake => {}
        }
    }

    fn check_stop(&mut self) {
        // An error means that nobody will ask for a stop any more.
        if self.stop.has_changed().unwrap_or(false) {
            self.deadline = *self.stop.borrow_and_update();
            self.health.send_replace(Health::Stopping);
            self.commands.close();
            self.core.stop_accepting();
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.core.fail_all(&EngineError::Stopping);
        }
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("without a message"))
}
