//! Connections to an instance over HTTP/2 without TLS (RFC 9113 section 3.3), which many requests share.
//!
//! A task of its own drives such a connection, because all of its requests need what it reads. The body of a request is driven by whoever
//! uses its stream, as over HTTP/1.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use h2::{Reason, SendStream};
use http::header;
use http::uri::{Authority, PathAndQuery, Scheme, Uri};
use http::{Request, Response, StatusCode, Version};
use http_body::{Body as _, Frame, SizeHint};
use tokio::net::TcpStream;

use super::attempt::{Failed, MOST_INTERIM, Meanwhile, SENDABLE, Sendable};
use crate::http::forward;
use crate::http::h2::outgoing::Outgoing;
use crate::http::incoming::Stream;
use crate::http::interim::Interim;
use crate::http::request_body::RequestBody;
use crate::limits::Limits;

/// Streams of one connection before another is opened, if the instance does not allow fewer. More on one connection only wait for each
/// other's frames.
const CROWD: usize = 256;
/// Connections of one worker to one instance. Beyond, streams wait for each other.
const CONNECTIONS: usize = 8;

/// One worker's connections to one instance.
#[derive(Debug, Default)]
pub(super) struct Multiplexed {
    connections: Mutex<Vec<Connection>>,
    /// Held while a connection is made, so that a crowd makes one and not as many as it has heads. It says when the last attempt failed.
    connecting: tokio::sync::Mutex<Option<Instant>>,
}

#[derive(Debug)]
struct Connection {
    sender: SendRequest<Bytes>,
    /// Counts those who have one of its streams.
    streams: Arc<()>,
    /// The sweep at which it was last in use.
    since: u32,
}

/// One stream of a connection.
#[derive(Debug)]
pub(crate) struct Lane {
    sender: SendRequest<Bytes>,
    was_used: bool,
    _stream: Arc<()>,
    /// What is still to be sent of the request.
    outgoing: Option<Outgoing>,
    /// The body of the response; `None` before its head has come.
    incoming: Option<Stream>,
}

impl Connection {
    fn is_open(&mut self) -> bool {
        !matches!(self.sender.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Err(_)))
    }

    /// Streams that are in use.
    fn streams(&self) -> usize {
        Arc::strong_count(&self.streams) - 1
    }

    fn has_room(&self) -> bool {
        self.streams() < CROWD.min(self.sender.current_max_send_streams())
    }

    fn lane(&self, was_used: bool) -> Lane {
        Lane { sender: self.sender.clone(), was_used, _stream: Arc::clone(&self.streams), outgoing: None, incoming: None }
    }
}

impl Multiplexed {
    /// A stream of a connection that is there.
    pub fn take(&self) -> Option<Lane> {
        let mut connections = self.lock();
        connections.retain_mut(Connection::is_open);
        let is_full = connections.len() >= CONNECTIONS;
        let least = connections.iter().min_by_key(|connection| connection.streams())?;
        (is_full || least.has_room()).then(|| least.lane(true))
    }

    /// A stream of a new connection, made by `connect`, or of one that another request has just made.
    pub async fn open(
        &self,
        limits: &Limits,
        keep: bool,
        connect: impl Future<Output = io::Result<TcpStream>>,
    ) -> io::Result<Lane> {
        let begun = Instant::now();
        let mut failed = self.connecting.lock().await;
        if failed.is_some_and(|failed| failed >= begun) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        if keep && let Some(lane) = self.take() {
            return Ok(Lane { was_used: false, ..lane });
        }
        let made = async { shake(connect.await?, limits).await }.await;
        if made.is_err() {
            *failed = Some(Instant::now());
        }
        let connection = Connection { sender: made?, streams: Arc::default(), since: u32::MAX };
        let lane = connection.lane(false);
        if keep {
            self.lock().push(connection);
        }
        Ok(lane)
    }

    /// Lets each connection end with its last stream.
    pub fn close(&self) {
        let closed = std::mem::take(&mut *self.lock());
        drop(closed);
    }

    /// Closes what nothing has used for `sweeps` sweeps; `now` counts them.
    pub fn sweep(&self, now: u32, sweeps: u32) {
        let mut connections = self.lock();
        for connection in &mut *connections {
            if connection.since == u32::MAX || connection.streams() > 0 {
                connection.since = now;
            }
        }
        let closed: Vec<Connection> = connections
            .extract_if(.., |connection| now.wrapping_sub(connection.since) >= sweeps || !connection.is_open())
            .collect();
        drop(connections);
        drop(closed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to speak HTTP/2. A task drives the connection from then on.
async fn shake(stream: TcpStream, limits: &Limits) -> io::Result<SendRequest<Bytes>> {
    let (sender, connection) = Builder::new()
        .enable_push(false)
        .initial_window_size(limits.stream_window)
        .initial_connection_window_size(limits.upstream_window)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .max_send_buffer_size(limits.stream_buffer)
        .handshake(stream)
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection to an instance broke off");
        }
    });
    Ok(sender)
}

impl Lane {
    pub fn was_used(&self) -> bool {
        self.was_used
    }

    /// Sends on what is left of the request; ready once nothing is.
    pub fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.outgoing.as_mut().is_some_and(|outgoing| outgoing.poll(cx).is_ready()) {
            self.outgoing = None;
        }
        if self.is_sent() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub fn is_sent(&self) -> bool {
        self.outgoing.is_none()
    }

    /// What comes next of the response's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let polled = self.incoming.as_mut().map_or(Poll::Ready(None), |incoming| incoming.poll_frame(cx));
        if polled.is_pending() {
            // Its waker is this task's, so that it comes back for either.
            let _ = self.poll_sent(cx);
        }
        polled
    }

    pub fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Stream::is_end_stream)
    }

    pub fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(|| SizeHint::with_exact(0), Stream::size_hint)
    }

    /// Sends a request and waits for the head of the final response. A request without a body is put back where there is no response, and so is one
    /// of which nothing has left.
    pub async fn exchange(&mut self, request: &mut Sendable, meanwhile: &mut impl Meanwhile) -> Result<Response<()>, Failed> {
        let (head, body) = request.take().expect(SENDABLE).into_request().into_parts();
        let is_end = body.is_end_stream();
        let again = Request::from_parts(head.clone(), RequestBody::Empty);
        let sent = match target(head) {
            Ok(head) => self.sender.send_request(head, is_end),
            Err(reason) => Err(reason.into()),
        };
        let (response, sender) = match sent {
            Ok(sent) => sent,
            // Not a byte of it has left.
            Err(error) => {
                *request = Some(again.map(|_| body).into());
                return Err(Failed { error: error.into(), is_untouched: true });
            }
        };
        self.begin(sender, body, is_end);
        let answered = self.wait(response, meanwhile).await;
        *request = is_end.then(|| again.into());
        answered.map_err(|error| Failed { is_untouched: is_untouched(&error), error: error.into() })
    }

    fn begin(&mut self, sender: SendStream<Bytes>, body: RequestBody, is_end: bool) {
        self.outgoing = (!is_end).then(|| Outgoing::new(sender, body));
    }

    async fn wait(&mut self, mut response: ResponseFuture, meanwhile: &mut impl Meanwhile) -> Result<Response<()>, h2::Error> {
        let mut interims = 0;
        let response = std::future::poll_fn(|cx| {
            loop {
                let _ = self.poll_sent(cx);
                while let Poll::Ready(Some(Ok(interim))) = response.poll_informational(cx) {
                    interims += 1;
                    if interims > MOST_INTERIM {
                        return Poll::Ready(Err(Reason::ENHANCE_YOUR_CALM.into()));
                    }
                    let (parts, ()) = interim.into_parts();
                    // HTTP/2 has no such response (RFC 9113 section 8.6). Over HTTP/1 what follows it would be no HTTP.
                    if parts.status == StatusCode::SWITCHING_PROTOCOLS {
                        return Poll::Ready(Err(Reason::PROTOCOL_ERROR.into()));
                    }
                    meanwhile.handle_interim(Interim::new(parts.status, parts.headers));
                }
                let polled = Pin::new(&mut response).poll(cx);
                if polled.is_ready() || !meanwhile.poll_change(cx) {
                    return polled;
                }
            }
        });
        let (parts, stream) = response.await?.into_parts();
        self.incoming = Some(Stream::new(stream, &parts.headers));
        Ok(Response::from_parts(parts, ()))
    }
}

/// True when the instance says that it has not begun with the request: it refused the stream, or its connection ends with earlier ones
/// (RFC 9113 section 8.7).
fn is_untouched(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || (error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM)))
}

/// A request's head with its target as HTTP/2 has it: the host that the field names becomes `:authority` (RFC 9113 section 8.3.1).
fn target(mut head: http::request::Parts) -> Result<Request<()>, Reason> {
    let authority = head.headers.remove(header::HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    let mut parts = http::uri::Parts::default();
    parts.path_and_query = Some(head.uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/")));
    if let Some(authority) = authority {
        (parts.scheme, parts.authority) = (Some(Scheme::HTTP), Some(authority));
    }
    head.uri = Uri::from_parts(parts).map_err(|_| Reason::PROTOCOL_ERROR)?;
    head.version = Version::HTTP_2;
    forward::remove_connection_fields(&mut head.headers);
    Ok(Request::from_parts(head, ()))
}
