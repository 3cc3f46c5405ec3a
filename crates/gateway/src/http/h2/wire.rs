//! A client's stream, as h2 reads and writes it: it counts what the client sends and gives up on a client that takes nothing.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::PREFACE;
use super::conduct::{Conduct, Kind};
use crate::listen::client::{Client, Order};
use crate::listen::linger::Linger;
use crate::listen::patience::Patience;
use crate::listen::transport::{Transport, poll_after};

/// The head of a frame: its length in three bytes, its type, its flags, its stream in four (RFC 9113 section 4.1).
const FRAME_HEAD: usize = 9;

/// Each stream has a least rate of its own; of the connection any progress is enough.
const ANY_RATE: u32 = 0;

/// The stream.
#[derive(Debug)]
pub(super) struct Wire<T> {
    stream: T,
    /// What was read of it before.
    first: Bytes,
    client: Arc<Client>,
    conduct: Arc<Mutex<Conduct>>,
    frames: Frames,
    patience: Patience,
    /// Set once the last frame is sent.
    linger: Option<Linger>,
}

impl<T: Transport> Wire<T> {
    pub fn new(stream: T, first: Bytes, client: Arc<Client>, conduct: Arc<Mutex<Conduct>>, patience: Patience) -> Self {
        Self { stream, first, client, conduct, frames: Frames::default(), patience, linger: None }
    }

    fn count(&mut self, new: &[u8]) {
        let mut conduct = self.conduct.lock().unwrap_or_else(PoisonError::into_inner);
        conduct.handle_time(self.client.now());
        let mut is_within = true;
        self.frames.read(new, |kind| is_within &= conduct.handle_frame(kind));
        if !is_within {
            self.client.give(Order::Abuse);
        }
    }
}

/// Where a reader of frames is. It only looks at their heads.
#[derive(Debug)]
struct Frames {
    head: [u8; FRAME_HEAD],
    /// Bytes of the head that have come.
    filled: usize,
    /// Bytes to come before the next head.
    left: usize,
}

impl Default for Frames {
    fn default() -> Self {
        Self { head: [0; FRAME_HEAD], filled: 0, left: PREFACE.len() }
    }
}

impl Frames {
    /// Reads on, and names each frame that has a budget.
    fn read(&mut self, mut bytes: &[u8], mut frame: impl FnMut(Kind)) {
        while !bytes.is_empty() {
            let skipped = self.left.min(bytes.len());
            self.left -= skipped;
            bytes = &bytes[skipped..];
            let taken = (FRAME_HEAD - self.filled).min(bytes.len());
            self.head[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
            self.filled += taken;
            bytes = &bytes[taken..];
            if self.filled == FRAME_HEAD {
                self.filled = 0;
                self.left = self.head[..3].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                kind(self.head[3]).into_iter().for_each(&mut frame);
            }
        }
    }
}

/// By a frame's type. DATA, HEADERS, CONTINUATION, PUSH_PROMISE and GOAWAY have their limits elsewhere.
fn kind(of: u8) -> Option<Kind> {
    match of {
        0 | 1 | 5 | 7 | 9 => None,
        3 => Some(Kind::Reset),
        8 => Some(Kind::Window),
        _ => Some(Kind::Control),
    }
}

impl<T: Transport> AsyncRead for Wire<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(poll_after(&mut this.first, &mut this.stream, cx, buffer))?;
        let new = &buffer.filled()[before..];
        if !new.is_empty() {
            this.count(new);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: Transport> AsyncWrite for Wire<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.patience.watch(cx, written, ANY_RATE)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.patience.watch(cx, written, ANY_RATE)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // h2 flushes when all that it was given and that has room is written.
        this.client.note_flush();
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    /// Lingers, so that a client which still sends gets to read why its connection ends.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.linger.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
        }
        this.linger.get_or_insert_with(Linger::new).poll(cx, &mut this.stream).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(of: u8, length: u8) -> Vec<u8> {
        let mut bytes = vec![0, 0, length, of, 0, 0, 0, 0, 0];
        bytes.resize(FRAME_HEAD + usize::from(length), 4);
        bytes
    }

    #[test]
    fn frames_are_told_apart_however_they_are_cut() {
        let frames = [frame(4, 6), frame(1, 200), frame(3, 4), frame(0, 0), frame(8, 4), frame(6, 8), frame(200, 1)];
        let bytes = [PREFACE.to_vec(), frames.concat()].concat();
        for length in 1..bytes.len() {
            let (mut reader, mut found) = (Frames::default(), Vec::new());
            bytes.chunks(length).for_each(|part| reader.read(part, |kind| found.push(kind)));
            assert_eq!(found, [Kind::Control, Kind::Reset, Kind::Window, Kind::Control, Kind::Control], "in parts of {length}");
        }
    }
}
