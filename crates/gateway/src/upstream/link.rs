//! One connection to an instance, and the exchanges over it.
//!
//! A connection has no task of its own: whoever uses it drives it, so an exchange costs no wake-up between tasks.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use http::Response;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::attempt::{Meanwhile, SENDABLE, Sendable};
use super::speech::Announced;
use super::wire::{Notices, Wire};
use crate::http::incoming::{Incoming, IncomingError};
use crate::http::interim::Interim;
use crate::http::request_body::RequestBody;

/// A connection to an instance that one request uses. Boxed, because it is handed on several times per request and large.
#[derive(Debug)]
pub(crate) struct Link(Box<Connected>);

#[derive(Debug)]
struct Connected {
    sender: http1::SendRequest<RequestBody>,
    connection: http1::Connection<TokioIo<Wire>, RequestBody>,
    notices: Arc<Notices>,
    /// False once the connection has come to its end.
    open: bool,
    used: bool,
    /// False once its last response left doubts about where it ends.
    reliable: bool,
    /// Whose it is, where the instance was told.
    announced: Option<Announced>,
}

impl Link {
    /// Speaks HTTP over `stream`, on which the instance was told whose it is.
    pub async fn open(stream: TcpStream, announced: Option<Announced>) -> io::Result<Self> {
        let (wire, notices) = Wire::new(stream);
        // Of a response's fields as many are taken as `limits::FIELDS_ON_STACK`, which is hyper's own limit.
        let (sender, connection) = http1::Builder::new()
            // Heads are small and bodies rare: one copy is cheaper for the kernel than a list of slices.
            .writev(false)
            .handshake(TokioIo::new(wire))
            .await
            .map_err(io::Error::other)?;
        Ok(Self(Box::new(Connected { sender, connection, notices, open: true, used: false, reliable: true, announced })))
    }

    /// Sends a request and waits for the head of the final response. The request is put back if the instance has surely not begun with it.
    pub async fn exchange(
        &mut self,
        request: &mut Sendable,
        meanwhile: &mut impl Meanwhile,
    ) -> Result<Response<Incoming>, IncomingError> {
        let Connected { sender, connection, notices, open, .. } = &mut *self.0;
        notices.expect_head();
        let mut response = pin!(sender.try_send_request(request.take().expect(SENDABLE)));
        std::future::poll_fn(move |cx| {
            loop {
                if *open && Pin::new(&mut *connection).poll(cx).is_ready() {
                    *open = false;
                }
                notices
                    .take_interim()
                    .iter()
                    .filter_map(|head| Interim::parse(head))
                    .for_each(|interim| meanwhile.handle_interim(interim));
                // Only the connection above completes this, so it needs no waker: that would wake this very task once more.
                match response.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready(Ok(response)) => return Poll::Ready(Ok(response.map(Incoming::H1))),
                    Poll::Ready(Err(mut error)) => {
                        *request = error.take_message();
                        return Poll::Ready(Err(IncomingError::H1(error.into_error())));
                    }
                    Poll::Pending if meanwhile.poll_change(cx) => {}
                    Poll::Pending => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Lets the connection read and write; false once it has come to its end.
    pub fn drive(&mut self, cx: &mut Context<'_>) -> bool {
        let Connected { connection, open, .. } = &mut *self.0;
        if *open && Pin::new(connection).poll(cx).is_ready() {
            *open = false;
        }
        *open
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
        self.0.used = true;
    }

    /// It is not used again: where its last response ends is not sure.
    pub fn note_doubt(&mut self) {
        self.0.reliable = false;
    }

    /// True when it may carry another request, as far as one can tell without looking at the socket.
    pub fn is_reusable(&self) -> bool {
        self.0.open && self.0.reliable && !self.0.notices.is_deaf()
    }

    /// True when it can take another request.
    pub fn is_usable(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop())) && self.0.sender.is_ready()
    }
}
