//! One connection to an instance, and the exchanges over it.
//!
//! A connection has no task of its own: the request that uses it drives it, so an exchange costs no wake-up between tasks.

use std::future::Future as _;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Response};
use http_body::{Frame, SizeHint};
use rustix::net::RecvFlags;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use super::body::Body;
use super::error::LinkError;
use super::head::{Head, Heads};
use super::outgoing::Outgoing;
use crate::http::interim::Interim;
use crate::http::request_body::RequestBody;
use crate::upstream::attempt::{Failed, MOST_INTERIM, Meanwhile, SENDABLE, Sendable};
use crate::upstream::speech::Announced;

/// Bytes of interim heads of one request. Hints are some hundred bytes long, and come once.
const MOST_INTERIM_BYTES: usize = 256 << 10;

/// How much is read at once: at first, and of a response that fills that again and again. More is fewer calls of the kernel, and more
/// memory for each response that is under way.
const FIRST_READ: usize = 8 << 10;
const LARGEST_READ: usize = 256 << 10;

/// Fields that a map which is kept may have room for. Each takes about a hundred bytes, for as long as the connection is kept.
const LARGEST_MAP: usize = 48;

/// A connection to an instance that one request uses. Boxed, because it is handed on several times per request and large.
#[derive(Debug)]
pub(crate) struct Link(Box<Connected>);

#[derive(Debug)]
struct Connected {
    stream: TcpStream,
    outgoing: Outgoing,
    /// What was read and is not understood yet.
    received: BytesMut,
    /// How much is read at once.
    room: usize,
    heads: Heads,
    /// Without fields: what the next head is read into, so that no new one is made for it.
    map: HeaderMap,
    /// What is still to come of the response.
    body: Body,
    /// The method of the request, which decides whether its response has a body.
    method: Method,
    /// Interim responses of the present request, and their bytes.
    interims: (usize, usize),
    /// True while a response may follow the present one.
    keeps_alive: bool,
    /// True when the last response had no body whatever its head said.
    was_bodiless: bool,
    used: bool,
    /// Whose it is, where the instance was told.
    announced: Option<Announced>,
}

impl Link {
    /// Speaks HTTP over `stream`, on which the instance was told whose it is.
    pub fn open(stream: TcpStream, announced: Option<Announced>) -> Self {
        Self(Box::new(Connected {
            stream,
            outgoing: Outgoing::default(),
            received: BytesMut::new(),
            room: FIRST_READ,
            heads: Heads::default(),
            map: HeaderMap::new(),
            body: Body::length(0),
            method: Method::GET,
            interims: (0, 0),
            keeps_alive: true,
            was_bodiless: false,
            used: false,
            announced,
        }))
    }

    /// Sends a request and waits for the head of the final response. A request without a body is only read, so that it may be sent again.
    pub async fn exchange(&mut self, sendable: &mut Sendable, meanwhile: &mut impl Meanwhile) -> Result<Response<()>, Failed> {
        let link = &mut *self.0;
        let outbound = sendable.as_mut().expect(SENDABLE);
        (link.method, link.interims) = (outbound.request.method().clone(), (0, 0));
        let with_body = match outbound.request.body() {
            RequestBody::Empty => {
                link.outgoing.begin(outbound);
                None
            }
            RequestBody::Client(_) => {
                link.outgoing.begin_with_body(outbound);
                sendable.take()
            }
        };
        let answered = std::future::poll_fn(|cx| self.0.poll_head(cx, meanwhile)).await;
        answered.map_err(|error| {
            self.0.keeps_alive = false;
            let is_untouched = self.0.outgoing.is_untouched();
            if let (Some(mut outbound), Some(body)) = (with_body, self.0.outgoing.give_back()) {
                *outbound.request.body_mut() = body;
                *sendable = Some(outbound);
            }
            Failed { error: error.into(), is_untouched }
        })
    }

    /// What comes next of the response's body.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, LinkError>>> {
        let polled = self.0.poll_frame(cx);
        if let Poll::Ready(Err(_)) = &polled {
            self.0.keeps_alive = false;
        }
        polled.map(Result::transpose)
    }

    /// Keeps the map of a head that was sent for the next one that comes, unless it is large.
    pub fn keep_map(&mut self, mut map: HeaderMap) {
        if map.capacity() <= LARGEST_MAP {
            map.clear();
            self.0.map = map;
        }
    }

    /// All of the response's body, if it has come with the head.
    pub fn take_whole(&mut self) -> Option<Bytes> {
        self.0.body.take_whole(&mut self.0.received)
    }

    pub fn is_end_stream(&self) -> bool {
        self.0.body.is_at_end()
    }

    pub fn size_hint(&self) -> SizeHint {
        self.0.body.size_hint()
    }

    /// Sends on what is left of the request. Ready once nothing is, or nothing comes of that any more.
    pub fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let link = &mut *self.0;
        let sent = link.outgoing.poll(cx, &mut link.stream);
        link.keeps_alive &= !matches!(sent, Poll::Ready(Err(_)));
        // One that is closed takes nothing more.
        if sent.is_pending() && link.body.is_at_end() && link.received.is_empty() && link.poll_read(cx).is_ready() {
            link.keeps_alive = false;
            return Poll::Ready(());
        }
        sent.map(|_| ())
    }

    pub fn is_sent(&self) -> bool {
        self.0.outgoing.is_done()
    }

    /// True when it has carried a request before: the instance may be closing it just now.
    pub fn was_used(&self) -> bool {
        self.0.used
    }

    /// Whose it is, where the instance was told.
    pub fn announced(&self) -> Option<Announced> {
        self.0.announced
    }

    /// It has carried a request.
    pub fn note_use(&mut self) {
        let link = &mut *self.0;
        link.used = true;
        if link.room > FIRST_READ {
            (link.room, link.received) = (FIRST_READ, BytesMut::new());
        }
    }

    /// The connection, with what has come behind the response. `None` while some of the request is still to be sent (RFC 9110 section 7.8).
    pub fn into_stream(self) -> Option<(TcpStream, Bytes)> {
        let Connected { stream, outgoing, received, .. } = *self.0;
        outgoing.is_done().then(|| (stream, received.freeze()))
    }

    /// It is not used again: where its last response ends is not sure.
    pub fn note_doubt(&mut self) {
        self.0.keeps_alive = false;
    }

    /// True when it may carry another request, as far as one can tell without looking at the socket.
    pub fn is_reusable(&self) -> bool {
        let link = &*self.0;
        // What comes after a response is the answer to nothing.
        link.keeps_alive
            && link.body.is_at_end()
            && link.received.is_empty()
            && link.outgoing.is_done()
            && !link.outgoing.is_deaf()
    }

    /// True when it can take another request: it is open, and nothing has come that nobody asked for.
    ///
    /// The runtime knows that for nothing, but as of the last time it waited. The kernel is asked where that may be too old: before a request that
    /// may not be repeated, and after an answer that has no body whatever its head says. Some servers send one all the same, and the next client
    /// would get it as its answer.
    pub fn is_usable(&self, may_be_repeated: bool) -> bool {
        let stream = &self.0.stream;
        let is_silent = || {
            if may_be_repeated && !self.0.was_bodiless {
                return matches!(stream.try_read(&mut [0]), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
            }
            let looked = rustix::net::recv(stream, &mut [0_u8][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
            matches!(looked, Err(rustix::io::Errno::AGAIN))
        };
        self.is_reusable() && is_silent()
    }
}

impl Connected {
    fn poll_head(&mut self, cx: &mut Context<'_>, meanwhile: &mut impl Meanwhile) -> Poll<Result<Response<()>, LinkError>> {
        loop {
            if let Poll::Ready(sent) = self.outgoing.poll(cx, &mut self.stream) {
                sent?;
            }
            while let Poll::Ready(count) = self.poll_read(cx) {
                if count? == 0 {
                    return Poll::Ready(Err(LinkError::Closed));
                }
                while let Some(head) = self.next_head()? {
                    if is_final(&head) {
                        return Poll::Ready(Ok(self.begin_body(head)));
                    }
                    meanwhile.handle_interim(Interim::new(head.status, head.headers));
                }
            }
            if !meanwhile.poll_change(cx) {
                return Poll::Pending;
            }
        }
    }

    fn next_head(&mut self) -> Result<Option<Head>, LinkError> {
        let before = self.received.len();
        let head = self.heads.next(&mut self.received, &self.method, &mut self.map)?;
        if head.as_ref().is_some_and(|head| !is_final(head)) {
            let (count, bytes) = self.interims;
            self.interims = (count + 1, bytes + before - self.received.len());
            if self.interims.0 > MOST_INTERIM || self.interims.1 > MOST_INTERIM_BYTES {
                return Err(LinkError::EndlessInterims);
            }
        }
        Ok(head)
    }

    fn begin_body(&mut self, head: Head) -> Response<()> {
        self.body = head.body;
        (self.keeps_alive, self.was_bodiless) = (head.keeps_alive, head.is_bodiless);
        let mut response = Response::new(());
        *response.status_mut() = head.status;
        *response.headers_mut() = head.headers;
        response
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, LinkError>> {
        if !self.outgoing.is_done()
            && let Poll::Ready(sent) = self.outgoing.poll(cx, &mut self.stream)
        {
            sent?;
        }
        loop {
            if let Some(frame) = self.body.next(&mut self.received)? {
                return Poll::Ready(Ok(Some(frame)));
            }
            if self.body.is_at_end() {
                return Poll::Ready(Ok(None));
            }
            if ready!(self.poll_read(cx))? == 0 {
                // A reset is no end, though whoever was told of it by a write reads nothing more.
                if !self.body.ends_with_connection() || self.outgoing.was_reset() {
                    return Poll::Ready(Err(LinkError::Closed));
                }
                (self.body, self.keeps_alive) = (Body::length(0), false);
            }
        }
    }

    /// Reads what there is; 0 at the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.received.capacity() - self.received.len() < self.room / 2 {
            self.received.reserve(self.room);
        }
        let spare = self.received.capacity() - self.received.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.received)).poll(cx))?;
        self.room = match count {
            _ if count == spare => (self.room * 2).min(LARGEST_READ),
            _ if count < self.room / 4 => (self.room / 2).max(FIRST_READ),
            _ => self.room,
        };
        Poll::Ready(Ok(count))
    }
}

/// An interim response is followed by another. One that switches protocols is not: what follows it is no HTTP.
fn is_final(head: &Head) -> bool {
    !head.status.is_informational() || head.status == http::StatusCode::SWITCHING_PROTOCOLS
}
