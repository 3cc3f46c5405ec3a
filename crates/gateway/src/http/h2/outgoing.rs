//! A body on its way out over HTTP/2: as much of it as the receiver has room for.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;

use crate::http::request_body::RequestBody;

/// Sends what is left of `data`, and ends the stream with it if `is_last`.
///
/// # Errors
/// When the receiver has reset the stream, or its connection has ended.
pub(crate) fn poll_send(
    cx: &mut Context<'_>,
    sender: &mut SendStream<Bytes>,
    data: &mut Bytes,
    is_last: bool,
) -> Poll<Result<(), h2::Error>> {
    while !data.is_empty() {
        let room = ready!(poll_room(cx, sender, data.len()))?;
        let part = data.split_to(room.min(data.len()));
        sender.send_data(part, is_last && data.is_empty())?;
    }
    Poll::Ready(Ok(()))
}

/// Bytes that may be sent now, at least one.
fn poll_room(cx: &mut Context<'_>, sender: &mut SendStream<Bytes>, wanted: usize) -> Poll<Result<usize, h2::Error>> {
    if let Poll::Ready(reset) = sender.poll_reset(cx) {
        return Poll::Ready(Err(reset?.into()));
    }
    sender.reserve_capacity(wanted);
    loop {
        if sender.capacity() > 0 {
            return Poll::Ready(Ok(sender.capacity()));
        }
        match ready!(sender.poll_capacity(cx)) {
            Some(Ok(_)) => {}
            Some(Err(error)) => return Poll::Ready(Err(error)),
            None => return Poll::Ready(Err(Reason::CANCEL.into())),
        }
    }
}

/// A request's body on its way to an instance.
#[derive(Debug)]
pub(crate) struct Outgoing {
    sender: SendStream<Bytes>,
    /// `None` once all of it has been taken from the client, or the instance wants no more.
    body: Option<RequestBody>,
    /// What was taken and is still to be sent.
    data: Bytes,
}

impl Outgoing {
    pub fn new(sender: SendStream<Bytes>, body: RequestBody) -> Self {
        Self { sender, body: Some(body), data: Bytes::new() }
    }

    /// Sends on, as far as both sides allow. Ready once nothing more is to be sent.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let sent = ready!(self.poll_sent(cx));
        if let Err(error) = sent {
            tracing::debug!(%error, "the rest of a request could not be sent to its instance");
            self.body = None;
            self.data = Bytes::new();
        }
        Poll::Ready(())
    }

    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        loop {
            let is_last = self.body.is_none();
            ready!(poll_send(cx, &mut self.sender, &mut self.data, is_last))?;
            let Some(body) = &mut self.body else { return Poll::Ready(Ok(())) };
            let frame = match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Pending => {
                    // An instance that has answered may want no more although nothing is to be sent just now.
                    let reset = ready!(self.sender.poll_reset(cx));
                    return Poll::Ready(reset.map_or_else(Err, |reason| Err(reason.into())));
                }
                Poll::Ready(frame) => frame,
            };
            let is_end = body.is_end_stream();
            match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(data))) => self.data = data,
                Some(Ok(Err(trailers))) => {
                    self.body = None;
                    return Poll::Ready(trailers.into_trailers().map_or(Ok(()), |trailers| self.sender.send_trailers(trailers)));
                }
                Some(Err(_)) => {
                    self.body = None;
                    self.sender.send_reset(Reason::CANCEL);
                    return Poll::Ready(Ok(()));
                }
                None => {
                    self.body = None;
                    return Poll::Ready(self.sender.send_data(Bytes::new(), true));
                }
            }
            if is_end {
                self.body = None;
                if self.data.is_empty() {
                    return Poll::Ready(self.sender.send_data(Bytes::new(), true));
                }
            }
        }
    }
}
