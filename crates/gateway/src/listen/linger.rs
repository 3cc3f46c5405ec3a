//! The end of a connection, in two steps (RFC 9112 section 9.6). Were the socket closed while the client still sends, its kernel would
//! reset the connection, and whatever the client has not read by then would be lost: the last response, or the reason of a GOAWAY.

use std::future::Future as _;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

/// How long a client that still sends after the gateway's last word is read. Shorter, and a slow one never sees that word; longer, and it
/// holds its connection for nothing.
pub(crate) const LINGER: Duration = Duration::from_secs(5);

/// Reads of a client that is only read to be discarded, before other connections get their turn.
const DISCARDED_AT_ONCE: u32 = 16;

/// A connection over which nothing more is written. What the client still sends is read until it closes too, or until time is up.
#[derive(Debug)]
pub(crate) struct Linger {
    limit: Pin<Box<Sleep>>,
}

impl Linger {
    pub fn new() -> Self {
        Self { limit: Box::pin(tokio::time::sleep(LINGER)) }
    }

    /// Ready when the connection is to be closed.
    pub fn poll(&mut self, cx: &mut Context<'_>, stream: &mut (impl AsyncRead + Unpin)) -> Poll<()> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        for _ in 0..DISCARDED_AT_ONCE {
            let mut discarded = ReadBuf::uninit(&mut buffer);
            match Pin::new(&mut *stream).poll_read(cx, &mut discarded) {
                Poll::Ready(Ok(())) if !discarded.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => return self.limit.as_mut().poll(cx),
            }
        }
        cx.waker().wake_by_ref();
        self.limit.as_mut().poll(cx)
    }
}
