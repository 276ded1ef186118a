//! Connections: accepting them, HTTP on each of them, and their end. A client that is silent is cut off, because it holds a
//! file descriptor; one that is being answered never is.
//!
//! What is asked and answered is the router's affair, and so is a body that stops coming.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

/// Before the next try where nothing can be accepted: as a rule file descriptors are short, and one is free again when a
/// connection ends.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Serves `router` until `until`, then closes the port and waits for the answers that are under way. A client has
/// `read_timeout` for the head of each request.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    read_timeout: Duration,
    until: impl Future<Output = ()>,
) {
    let connections = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(read_timeout);
    let mut until = pin!(until);
    loop {
        let socket = tokio::select! {
            socket = accepted(|| listener.accept(), ACCEPT_PAUSE) => socket,
            () = &mut until => break,
        };
        // Without it the kernel holds a small chunk back until the last one is acknowledged.
        if let Err(error) = socket.set_nodelay(true) {
            tracing::debug!(%error, "TCP_NODELAY");
        }
        let connection = http.serve_connection(TokioIo::new(socket), TowerToHyperService::new(router.clone()));
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended");
            }
        });
    }
    drop(listener);
    connections.shutdown().await;
}

/// The next connection. A failure is waited out and never ends the server.
async fn accepted<S, F>(mut accept: impl FnMut() -> F, pause: Duration) -> S
where
    F: Future<Output = io::Result<(S, SocketAddr)>>,
{
    loop {
        match accept().await {
            Ok((socket, _)) => return socket,
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "no connection can be accepted; trying again");
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// The client was gone before its connection was taken; the next one may be there already.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use futures_util::FutureExt;

    use super::*;

    /// Linux' EMFILE.
    const TOO_MANY_OPEN_FILES: i32 = 24;
    const HOUR: Duration = Duration::from_secs(3600);

    /// Fails with each of `errors`, then gives a connection. Also how often it was called.
    async fn taken(errors: Vec<io::Error>, pause: Duration) -> usize {
        let (mut errors, mut n_calls) = (errors.into_iter(), 0);
        let accept = || {
            n_calls += 1;
            let peer = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
            std::future::ready(errors.next().map_or(Ok(((), peer)), Err))
        };
        accepted(accept, pause).await;
        n_calls
    }

    #[tokio::test]
    async fn a_server_without_free_file_descriptors_goes_on_when_one_is_free() {
        let full = || io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES);
        assert_eq!(taken(vec![full(), full()], Duration::from_millis(1)).await, 3);
    }

    #[tokio::test]
    async fn a_server_without_free_file_descriptors_does_not_spin() {
        let full = io::Error::from_raw_os_error(TOO_MANY_OPEN_FILES);
        assert_eq!(taken(vec![full], HOUR).now_or_never(), None, "it waits before it tries again");
        let gone = io::Error::from(io::ErrorKind::ConnectionAborted);
        assert_eq!(taken(vec![gone], HOUR).now_or_never(), Some(2), "the next client does not wait for one that left");
    }
}
