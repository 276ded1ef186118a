//! The server's life: load, bind, say so, serve, drain.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use crate::api::{ApiState, Images, Preparing, router};
use crate::config::{Profile, ServerConfig};
use crate::engine::{Joiner, Shutdown};

use super::failure::Failure;
use super::gpu_watch::GpuWatch;
use super::options::StartOptions;
use super::process::runtime;
use super::start::{Started, start};
use super::terminal;

mod connections;

/// What connections get after the engine has ended, to carry the last bytes to their clients.
const LAST_BYTES: Duration = Duration::from_secs(2);

/// Runs the server until it is told to stop. An error is the reason why it did not start or did not
/// go on.
pub fn serve(profile: Profile, options: &StartOptions) -> Result<(), Failure> {
    let started = start(profile, options, load_bar())?;
    let runtime = runtime()?;
    let served = runtime.block_on(serve_started(started));
    // A connection that will not end must not keep the process.
    runtime.shutdown_background();
    served
}

/// Loading is shown to people; logs get one line at its end.
fn load_bar() -> super::start::Progress {
    let bar = terminal::bar("loading the model");
    Box::new(move |done| bar.set(done))
}

async fn serve_started(started: Started) -> Result<(), Failure> {
    let (listener, signals) = match open(&started).await {
        Ok(opened) => opened,
        Err(failure) => {
            let Started { handle, joiner, .. } = started;
            drop(handle);
            return Err(reason_of(joiner.shutdown(Duration::ZERO).await, failure));
        }
    };
    let config = &started.profile.server;
    let grace = Duration::from_secs(config.grace_seconds.into());
    let read_timeout = Duration::from_secs(config.read_timeout_seconds.into());
    let _gpus = GpuWatch::start(started.metrics.clone());
    let (router, joiner) = compose(started);
    run(Server { listener, router, joiner, signals, grace, read_timeout }).await
}

/// Everything that can fail before the first request, and the word that it did not.
async fn open(started: &Started) -> Result<(TcpListener, mpsc::Receiver<()>), Failure> {
    let signals = signals()?;
    let listener = bind(&started.profile.server).await?;
    let address = listener.local_addr().map_err(|e| Failure::Internal(format!("the socket has no address: {e}")))?;
    terminal::say(&announcement(started, address))?;
    Ok((listener, signals))
}

/// The layers put together.
fn compose(started: Started) -> (axum::Router, Joiner) {
    let Started { profile, model, build, handle, joiner, metrics, template, grammars } = started;
    let images = Images::new(&profile.images, handle.facts().vision.clone(), metrics.clone());
    let state = ApiState {
        images,
        tokenizer: handle.tokenizer().clone(),
        handle,
        template: Arc::new(template),
        preparing: Preparing::new(&profile.engine),
        profile: Arc::new(profile),
        model: Arc::new(model),
        metrics,
        build: Arc::new(build),
        grammars,
    };
    (router(state), joiner)
}

async fn bind(config: &ServerConfig) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind((config.host.as_str(), config.port)).await;
    let listener = bound.map_err(|e| {
        let (host, port) = (&config.host, config.port);
        Failure::Unavailable(format!("cannot listen at {host} port {port}: {e}; choose another with --host and --port"))
    })?;
    let open = listener.local_addr().is_ok_and(|a| !a.ip().is_loopback());
    if open && config.api_key.is_none() {
        tracing::warn!("everyone who reaches this address may use the model: set server.api_key to ask for a key");
    }
    Ok(listener)
}

/// One line: where, what, how much, and a first request.
fn announcement(started: &Started, address: SocketAddr) -> String {
    let facts = started.handle.facts();
    let name = &started.model.id;
    let url = url(address);
    format!(
        "plateau serves {name} at {url} ({} tokens of context, {} sequences, profile {}); try: \
         curl {url}/v1/chat/completions -H 'Content-Type: application/json' \
         -d '{{\"messages\":[{{\"role\":\"user\",\"content\":\"Hello\"}}]}}'\n",
        facts.n_ctx, facts.n_seq_max, started.profile.name,
    )
}

/// An address that a client on this machine can use.
fn url(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    format!("http://{}", SocketAddr::new(ip, address.port()))
}

/// Everything that runs.
struct Server {
    listener: TcpListener,
    router: axum::Router,
    joiner: Joiner,
    signals: mpsc::Receiver<()>,
    grace: Duration,
    read_timeout: Duration,
}

/// Serves until a signal or the death of the engine, then drains.
async fn run(server: Server) -> Result<(), Failure> {
    let Server { listener, router, joiner, mut signals, grace, read_timeout } = server;
    let (stop, stopped) = oneshot::channel::<()>();
    // A sender that is gone stops the server too: there is nothing left to wait for.
    let until = async move { drop(stopped.await) };
    let mut connections = tokio::spawn(connections::serve(listener, router, read_timeout, until));
    let died = tokio::select! {
        _ = signals.recv() => None,
        reason = joiner.died() => Some(reason),
        ended = &mut connections => return Err(Failure::Internal(format!("the HTTP server ended: {ended:?}"))),
    };
    drop(stop);
    if let Some(reason) = died {
        // Clients still get their errors.
        let _ = tokio::time::timeout(LAST_BYTES, connections).await;
        // The thread frees the model: the process must not go before it.
        let failure = Failure::Internal(format!("the engine stopped: {reason}"));
        return Err(reason_of(joiner.shutdown_unless(Duration::ZERO, &mut signals).await, failure));
    }
    tracing::info!(
        grace_seconds = grace.as_secs(),
        "stopping: running answers may end; a second signal ends them, a third does not wait for the device"
    );
    let ended = joiner.shutdown_unless(grace, &mut signals).await;
    let _ = tokio::time::timeout(LAST_BYTES, connections).await;
    match ended {
        Shutdown::Clean => Ok(()),
        Shutdown::Died(reason) => Err(Failure::Internal(format!("the engine stopped: {reason}"))),
        Shutdown::Stuck => Err(Failure::Stuck(String::new())),
    }
}

/// Why the process ends. A thread that was left behind decides how it exits, so that goes first.
fn reason_of(ended: Shutdown, cause: Failure) -> Failure {
    match ended {
        Shutdown::Stuck => Failure::Stuck(format!(", after this: {cause}")),
        Shutdown::Clean | Shutdown::Died(_) => cause,
    }
}

/// One message for each SIGINT and SIGTERM.
fn signals() -> Result<mpsc::Receiver<()>, Failure> {
    let (sender, receiver) = mpsc::channel(2);
    for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
        let mut stream = signal(kind).map_err(|e| Failure::Internal(format!("signals cannot be received: {e}")))?;
        let sender = sender.clone();
        tokio::spawn(async move { while stream.recv().await.is_some() && sender.send(()).await.is_ok() {} });
    }
    Ok(receiver)
}

#[cfg(test)]
mod tests;
