//! Taking connections: bounded in number, in the time for a request's head, and in its size.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use weal_rpc::{Callers, peer_uid};

use super::access::Peer;

/// Open connections at most, per listener: dashboards hold one each.
pub(super) const CONNECTIONS: usize = 512;
/// A request's head must be there within this.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that a request's head may have.
const HEAD_LIMIT: usize = 32 << 10;

/// Serves `router` on TCP, over TLS where `tls` is given, until the future is dropped.
pub(crate) async fn serve_tcp(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = permit(&connections).await;
        match listener.accept().await {
            Ok((stream, address)) => {
                // Only costs latency when it fails.
                let _ = stream.set_nodelay(true);
                let (peer, router) = (Peer::Address(address), router.clone());
                match tls.clone() {
                    None => serve(stream, peer, router, permit),
                    Some(tls) => drop(tokio::spawn(async move {
                        // Who shakes no hands in time, or shows no certificate that is good, is told so by TLS itself.
                        match tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                            Ok(Ok(stream)) => serve(stream, peer, router, permit),
                            Ok(Err(error)) => tracing::debug!(%error, "no TLS with a caller of the API"),
                            Err(_) => {}
                        }
                    })),
                }
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Serves `router` on a local socket to `operators`, whom the kernel names, and `strangers` to all others, until the future is dropped.
pub(crate) async fn serve_local(listener: UnixListener, operators: &Callers, router: Router, strangers: Router) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = permit(&connections).await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(uid) = peer_uid(&stream) else { continue };
                let router = if operators.admit(uid) { &router } else { &strangers };
                serve(stream, Peer::User(uid), router.clone(), permit);
            }
            Err(error) => pause(&error).await,
        }
    }
}

async fn permit(connections: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    Arc::clone(connections).acquire_owned().await.expect("the semaphore is never closed")
}

/// Out of file descriptors, most likely: the next attempt would fail at once and spin.
async fn pause(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection to the API");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    router: Router,
    permit: OwnedSemaphorePermit,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        router.call(request)
    });
    tokio::spawn(async move {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(HEAD_LIMIT)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a caller of the API broke off");
        }
        drop(permit);
    });
}
