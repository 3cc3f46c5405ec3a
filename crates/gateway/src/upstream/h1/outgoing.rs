//! A request on its way to an instance: its head, then its body as its client sends it.

use std::io::ErrorKind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName};
use http_body::{Body as _, Frame};
use tokio::io::AsyncWrite;

use super::error::LinkError;
use super::head::write;
use crate::http::forward;
use crate::http::remarks::write_field;
use crate::http::request_body::RequestBody;
use crate::upstream::attempt::Outbound;

/// As much of a body is gathered before it is written: one call of the kernel for many small parts.
const GATHERED: usize = 64 << 10;
/// What is kept for the next request of the room that one needed.
const KEPT: usize = 16 << 10;

/// A request of which some is still to be written.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    /// What is to be written, and how much of it was.
    bytes: Vec<u8>,
    written: usize,
    /// `None` once all of the body was taken from the client, or there is none.
    body: Option<(RequestBody, Framing)>,
    /// True once anything of the request was written, or something of its body was taken and cannot be given back.
    is_begun: bool,
    /// True once the instance takes nothing more. It may have answered before it closed its side, so what is written is only dropped.
    is_deaf: bool,
    /// True once a write was told that the instance has reset the connection. Nobody else is told.
    was_reset: bool,
}

/// How the end of a body is told.
#[derive(Debug)]
enum Framing {
    /// By its length, of which so much is to come.
    Length(u64),
    /// By its last chunk. These trailers were announced.
    Chunked(Vec<HeaderName>),
}

impl Outgoing {
    /// Begins with a request without a body.
    pub fn begin(&mut self, outbound: &Outbound) {
        self.is_begun = false;
        write(&outbound.request, |name| *name != header::TRANSFER_ENCODING, &mut self.bytes);
        outbound.remarks.write(&mut self.bytes);
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// Begins with a request, and takes its body away. Without either of the two fields that say so, its body comes in chunks.
    pub fn begin_with_body(&mut self, outbound: &mut Outbound) {
        let Outbound { request, remarks } = outbound;
        self.is_begun = false;
        let length = forward::declared_length(request.headers());
        let framing = match length.filter(|_| !request.headers().contains_key(header::TRANSFER_ENCODING)) {
            Some(length) => Framing::Length(length),
            None => Framing::Chunked(announced(request.headers())),
        };
        write(
            request,
            |name| *name != header::TRANSFER_ENCODING && (length_is_told(&framing) || *name != header::CONTENT_LENGTH),
            &mut self.bytes,
        );
        if !length_is_told(&framing) {
            self.bytes.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        remarks.write(&mut self.bytes);
        self.bytes.extend_from_slice(b"\r\n");
        self.body = Some((std::mem::replace(request.body_mut(), RequestBody::Empty), framing));
    }

    /// The body that was taken away, if the instance has seen nothing of the request, and nothing of the body was used up.
    pub fn give_back(&mut self) -> Option<RequestBody> {
        self.body.take().filter(|_| !self.is_begun).map(|(body, _)| body)
    }

    /// True when nothing of the request has left.
    pub fn is_untouched(&self) -> bool {
        !self.is_begun
    }

    pub fn is_done(&self) -> bool {
        self.body.is_none() && self.bytes.is_empty()
    }

    pub fn is_deaf(&self) -> bool {
        self.is_deaf
    }

    pub fn was_reset(&self) -> bool {
        self.was_reset
    }

    /// Sends on, until nothing is left.
    ///
    /// # Errors
    /// When the body came to a bad end, or the socket fails otherwise than by being closed.
    pub fn poll(&mut self, cx: &mut Context<'_>, stream: &mut (impl AsyncWrite + Unpin)) -> Poll<Result<(), LinkError>> {
        loop {
            self.gather(cx)?;
            if self.bytes.is_empty() {
                return if self.body.is_none() { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            ready!(self.poll_write(cx, stream))?;
        }
    }

    /// Takes of the body what is there.
    fn gather(&mut self, cx: &mut Context<'_>) -> Result<(), LinkError> {
        while let Some((body, _)) = self.body.as_mut().filter(|_| self.bytes.len() - self.written < GATHERED) {
            let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) else { break };
            self.is_begun = true;
            self.take(frame.transpose().map_err(|_| LinkError::RequestBody)?)?;
        }
        Ok(())
    }

    /// A part of the body, or its end.
    fn take(&mut self, frame: Option<Frame<Bytes>>) -> Result<(), LinkError> {
        let Some((body, framing)) = &mut self.body else { return Ok(()) };
        let mut is_end = frame.is_none() || body.is_end_stream();
        let mut trailers = None;
        match frame.map(Frame::into_data) {
            Some(Ok(data)) => framing.write(&data, &mut self.bytes),
            Some(Err(frame)) => (trailers, is_end) = (frame.into_trailers().ok(), true),
            None => {}
        }
        if is_end {
            framing.write_end(trailers.as_ref(), &mut self.bytes)?;
            self.body = None;
        }
        Ok(())
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, stream: &mut (impl AsyncWrite + Unpin)) -> Poll<Result<(), LinkError>> {
        while self.written < self.bytes.len() && !self.is_deaf {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &self.bytes[self.written..])) {
                Ok(count) => {
                    self.is_begun |= count > 0;
                    self.written += count;
                    self.is_deaf = count == 0;
                }
                Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    self.is_deaf = true;
                    self.was_reset |= error.kind() == ErrorKind::ConnectionReset;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

fn length_is_told(framing: &Framing) -> bool {
    matches!(framing, Framing::Length(_))
}

/// The trailers that a head announces. Others are not passed on: an instance may not expect any.
fn announced(headers: &HeaderMap) -> Vec<HeaderName> {
    forward::tokens(headers, &header::TRAILER).filter_map(|name| HeaderName::from_bytes(name).ok()).collect()
}

impl Framing {
    fn write(&mut self, data: &[u8], into: &mut Vec<u8>) {
        match self {
            _ if data.is_empty() => {}
            Self::Length(left) => {
                let data = &data[..data.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
                *left -= data.len() as u64;
                into.extend_from_slice(data);
            }
            Self::Chunked(_) => {
                into.extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                into.extend_from_slice(data);
                into.extend_from_slice(b"\r\n");
            }
        }
    }

    fn write_end(&self, trailers: Option<&HeaderMap>, into: &mut Vec<u8>) -> Result<(), LinkError> {
        match self {
            Self::Length(0) => Ok(()),
            Self::Length(_) => Err(LinkError::RequestLength),
            Self::Chunked(announced) => {
                into.extend_from_slice(b"0\r\n");
                let fields = trailers.into_iter().flatten().filter(|(name, _)| announced.contains(name));
                fields.for_each(|(name, value)| write_field(name, value, into));
                into.extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }
}
