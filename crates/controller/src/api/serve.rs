//! Taking connections: bounded in number ([`super::room`] decides which is closed for another), in the time for a request's head, and in its
//! size.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::{Method, header};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio_rustls::TlsAcceptor;
use weal_rpc::{Callers, peer_uid};

use super::access::Peer;
use super::places::{ConnectionSlot, Connections};
use super::room::Owner;

/// What the stream's answer says of itself.
const STREAM: &str = "text/event-stream";
/// Open connections at most, per listener: dashboards hold one each.
pub(super) const CONNECTIONS: usize = 512;
/// A request's head must be there within this.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes that a request's head may have.
const HEAD_LIMIT: usize = 32 << 10;

/// Serves `router` on TCP, over TLS where `tls` is given, until the future is dropped.
pub(crate) async fn serve_tcp(listener: TcpListener, tls: Option<TlsAcceptor>, router: Router) {
    let connections = Connections::at_most(CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // Only costs latency when it fails.
                let _ = stream.set_nodelay(true);
                let (peer, router, tls) = (Peer::Address(address), router.clone(), tls.clone());
                let place = connections.enter(&Owner::at(address.ip())).await;
                place.keep(async move |place| {
                    let Some(tls) = tls else { return serve(stream, peer, router, place).await };
                    // Who shakes no hands in time, or shows no certificate that is good, is told so by TLS itself.
                    match tokio::time::timeout(HEAD_TIMEOUT, tls.accept(stream)).await {
                        Ok(Ok(stream)) => serve(stream, peer, router, place).await,
                        Ok(Err(error)) => tracing::debug!(%error, "no TLS with a caller of the API"),
                        Err(_) => {}
                    }
                });
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Serves `router` on a local socket to `operators`, whom the kernel names, and `strangers` to all others, until the future is dropped.
pub(crate) async fn serve_local(listener: UnixListener, operators: &Callers, router: Router, strangers: Router) {
    let connections = Connections::at_most(CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(uid) = peer_uid(&stream) else { continue };
                let router = if operators.admit(uid) { router.clone() } else { strangers.clone() };
                let place = connections.enter(&Owner::User(uid)).await;
                place.keep(async move |place| serve(stream, Peer::User(uid), router, place).await);
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Out of file descriptors, most likely: the next attempt would fail at once and spin.
async fn pause(error: &io::Error) {
    tracing::warn!(%error, "cannot accept a connection to the API");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    peer: Peer,
    router: Router,
    place: Arc<ConnectionSlot>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        request.extensions_mut().insert(Arc::clone(&place));
        // An answer to HEAD says of itself what it would be, and is none.
        let (is_get, place) = (request.method() == Method::GET, Arc::clone(&place));
        let answer = router.call(request);
        async move {
            let answer = answer.await?;
            let kind = answer.headers().get(header::CONTENT_TYPE);
            if is_get && kind.is_some_and(|kind| kind.as_bytes() == STREAM.as_bytes()) {
                place.carry_stream();
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a caller of the API broke off");
    }
}
