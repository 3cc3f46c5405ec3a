//! Which version of HTTP a client speaks, where that shows only by its first bytes: HTTP/2 begins with a preface that no request of HTTP/1
//! begins with (RFC 9113 sections 3.3 and 3.4).

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

use super::client::{Client, Order};
use crate::http::h2::PREFACE;

/// As much as hyper reads at first, so that it does not read again before it has a whole head.
const FIRST: usize = 8192;

/// Reads until it is sure; true for HTTP/2, with what was read. `None` when nothing comes of the connection.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin), client: &Client) -> Option<(bool, Bytes)> {
    let mut first = BytesMut::new();
    loop {
        let read = std::future::poll_fn(|cx| match client.poll_order(cx) {
            Order::GoOn | Order::Leave => poll_read(cx, stream, &mut first),
            _ => Poll::Ready(Ok(0)),
        });
        let count = read.await.ok()?;
        let is_h2 = first.starts_with(PREFACE);
        if is_h2 || !PREFACE.starts_with(&first) || (count == 0 && !first.is_empty()) {
            return Some((is_h2, first.freeze()));
        }
        if count == 0 {
            return None;
        }
    }
}

/// On the stack: most connections only wait here.
pub(super) fn poll_read(
    cx: &mut Context<'_>,
    stream: &mut (impl AsyncRead + Unpin),
    into: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut buffer = [MaybeUninit::uninit(); FIRST];
    let mut buffer = ReadBuf::uninit(&mut buffer);
    ready!(Pin::new(stream).poll_read(cx, &mut buffer))?;
    into.extend_from_slice(buffer.filled());
    Poll::Ready(Ok(buffer.filled().len()))
}
