//! Bodies as they come in, over either version of HTTP.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::header::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::forward;

/// The body of a client's request.
#[derive(Debug)]
pub(crate) enum Incoming {
    H1(hyper::body::Incoming),
    H2(Stream),
}

/// Why a body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum IncomingError {
    #[error(transparent)]
    H1(hyper::Error),
    #[error(transparent)]
    H2(h2::Error),
}

/// A body over HTTP/2. Its sender may go on as far as frames are taken, so it holds no more than a window in memory.
#[derive(Debug)]
pub(crate) struct Stream {
    stream: RecvStream,
    /// Bytes to come, where the head says how many there are.
    left: Option<u64>,
    is_at_trailers: bool,
}

impl Stream {
    /// What follows a head with `headers`.
    pub fn new(stream: RecvStream, headers: &HeaderMap) -> Self {
        Self { stream, left: forward::declared_length(headers), is_at_trailers: false }
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if !self.is_at_trailers {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    // It fails only beyond what was received.
                    let _ = self.stream.flow_control().release_capacity(data.len());
                    self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                // RFC 9113 section 8.1: a server may reset a stream after its whole response. To h2 that is no error. Any other reset cuts off.
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_at_trailers = true,
            }
        }
        ready!(self.stream.poll_trailers(cx)).transpose().map(|trailers| trailers.map(Frame::trailers)).into()
    }

    pub fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    pub fn size_hint(&self) -> SizeHint {
        match self.left {
            _ if self.stream.is_end_stream() => SizeHint::with_exact(0),
            Some(left) => SizeHint::with_exact(left),
            None => SizeHint::default(),
        }
    }
}

impl Body for Incoming {
    type Data = Bytes;
    type Error = IncomingError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, IncomingError>>> {
        match self.get_mut() {
            Self::H1(body) => Pin::new(body).poll_frame(cx).map_err(IncomingError::H1),
            Self::H2(body) => body.poll_frame(cx).map_err(IncomingError::H2),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::H1(body) => body.is_end_stream(),
            Self::H2(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::H1(body) => body.size_hint(),
            Self::H2(body) => body.size_hint(),
        }
    }
}
