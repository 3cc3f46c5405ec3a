//! A client's connection: it accepts streams, and ends in order.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tokio::time::Sleep;

use super::conduct::Conduct;
use super::reply::Replies;
use super::wire::Wire;
use crate::http::session::Session;
use crate::limits::Limits;
use crate::listen::client::Order;
use crate::listen::linger::LINGER;
use crate::listen::patience::Patience;
use crate::listen::transport::Transport;

/// One connection and what is answered over it.
struct Serving<T> {
    connection: Connection<Wire<T>, Bytes>,
    session: Arc<Session>,
    replies: Replies,
    closing: Closing,
}

/// How far the end of a connection has come.
enum Closing {
    Open,
    /// The client was told to open no more streams.
    Told,
    /// Nothing is being answered; it ends by itself or when this passes.
    Lingering(Pin<Box<Sleep>>),
    /// It ends as soon as the client has been told why, or when this passes.
    Abrupt(Pin<Box<Sleep>>),
}

/// Serves a client from its preface on, of which `first` was read before.
pub(crate) async fn serve<T: Transport>(stream: T, first: Bytes, session: Arc<Session>) {
    let limits = Arc::clone(&session.gateway.limits);
    let client = Arc::clone(&session.client);
    let conduct = Arc::new(Mutex::new(Conduct::new(client.now())));
    let wire = Wire::new(stream, first, Arc::clone(&client), Arc::clone(&conduct), Patience::new(limits.stalled_write));
    let handshake = tokio::time::timeout(limits.head, builder(&limits).handshake(wire));
    let connection = match handshake.await.unwrap_or_else(|_| Err(Reason::SETTINGS_TIMEOUT.into())) {
        Ok(connection) => connection,
        Err(error) => return tracing::debug!(%error, client = %client.peer, "the HTTP/2 handshake failed"),
    };
    let replies = Replies::new(Arc::clone(&session), conduct);
    let mut serving = Serving { connection, session, replies, closing: Closing::Open };
    if let Err(error) = std::future::poll_fn(|cx| serving.poll(cx)).await {
        tracing::debug!(%error, client = %client.peer, "a client broke off");
    }
}

fn builder(limits: &Limits) -> Builder {
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.head_bytes).unwrap_or(u32::MAX))
        .initial_window_size(limits.stream_window)
        .initial_connection_window_size(limits.connection_window)
        .max_send_buffer_size(limits.stream_buffer);
    builder
}

impl<T: Transport> Serving<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        self.obey(cx);
        while let Poll::Ready(accepted) = self.connection.poll_accept(cx) {
            match accepted.transpose()? {
                Some((request, respond)) => self.begin(request, respond),
                None => return Poll::Ready(Ok(())),
            }
        }
        self.poll_closing(cx).map(Ok)
    }

    fn begin(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        tokio::spawn(self.replies.begin(request, respond).run());
    }

    fn obey(&mut self, cx: &mut Context<'_>) {
        match (self.session.client.poll_order(cx), &self.closing) {
            (Order::Abuse, Closing::Open | Closing::Told | Closing::Lingering(_)) => {
                self.session.gateway.note_abuse(&self.session.client);
                self.connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
                self.closing = Closing::Abrupt(Box::pin(tokio::time::sleep(LINGER)));
            }
            (Order::Leave | Order::Close | Order::TooSlow, Closing::Open) => {
                self.connection.graceful_shutdown();
                self.closing = Closing::Told;
            }
            _ => {}
        }
    }

    /// Ready when the connection is to end although the client has not noticed.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let is_idle = self.session.client.exchanges() == 0;
        match &mut self.closing {
            Closing::Open => Poll::Pending,
            Closing::Abrupt(limit) => limit.as_mut().poll(cx),
            Closing::Lingering(_) if !is_idle => {
                self.closing = Closing::Told;
                Poll::Pending
            }
            Closing::Lingering(limit) => limit.as_mut().poll(cx),
            Closing::Told if !is_idle => Poll::Pending,
            Closing::Told => {
                let mut limit = Box::pin(tokio::time::sleep(LINGER));
                let polled = limit.as_mut().poll(cx);
                self.closing = Closing::Lingering(limit);
                polled
            }
        }
    }
}
