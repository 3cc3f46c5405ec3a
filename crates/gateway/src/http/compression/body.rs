//! The body of an answer on its way through a coding.

use std::fmt;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tokio::sync::OwnedSemaphorePermit;

use super::coding::Coding;
use super::encoder::Encoder;
use crate::http::relay::{BodyError, Relay};

/// Coded bytes that are handed on at once. Less, and each write carries little.
const PIECE: usize = 16 << 10;
/// Bytes that are coded before other connections of the worker have their turn: about a millisecond.
const AT_ONCE: usize = 64 << 10;

/// A coded body. Whenever the instance has nothing more for now, all that it has sent goes out: events and progress are never held back.
pub(crate) struct Encoded {
    pub relay: Box<Relay>,
    /// `None` once it has finished.
    encoder: Option<Encoder>,
    /// True while something went in of which the client has not all.
    is_dirty: bool,
    trailers: Option<HeaderMap>,
    _permit: OwnedSemaphorePermit,
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoded").field("relay", &self.relay).field("is_dirty", &self.is_dirty).finish_non_exhaustive()
    }
}

impl Encoded {
    /// A body that holds `permit` to its end.
    pub fn new(relay: Box<Relay>, coding: Coding, permit: OwnedSemaphorePermit) -> Self {
        Self { relay, encoder: Some(Encoder::new(coding)), is_dirty: false, trailers: None, _permit: permit }
    }

    pub fn is_end_stream(&self) -> bool {
        self.encoder.is_none() && self.trailers.is_none()
    }

    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut taken = 0;
        while self.encoder.is_some() {
            let polled = self.relay.poll_frame(cx);
            let output = match polled {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        taken += data.len();
                        self.write(&data)
                    }
                    Err(frame) => {
                        self.trailers = frame.into_trailers().ok();
                        self.finish()
                    }
                },
                Poll::Ready(None) => self.finish(),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Pending if self.is_dirty => self.flush(),
                Poll::Pending => return Poll::Pending,
            };
            match output {
                Ok(output) if !output.is_empty() => return Poll::Ready(Some(Ok(Frame::data(output.into())))),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Some(Err(BodyError::Coding(error)))),
            }
            if taken >= AT_ONCE {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    /// What is enough to be handed on; nothing while it is less.
    fn write(&mut self, data: &[u8]) -> io::Result<Vec<u8>> {
        let Some(encoder) = &mut self.encoder else { return Ok(Vec::new()) };
        encoder.write(data)?;
        self.is_dirty = true;
        Ok(if encoder.output() >= PIECE { encoder.take() } else { Vec::new() })
    }

    fn flush(&mut self) -> io::Result<Vec<u8>> {
        self.is_dirty = false;
        let Some(encoder) = &mut self.encoder else { return Ok(Vec::new()) };
        encoder.flush()?;
        Ok(encoder.take())
    }

    fn finish(&mut self) -> io::Result<Vec<u8>> {
        self.encoder.take().map_or_else(|| Ok(Vec::new()), Encoder::finish)
    }
}
