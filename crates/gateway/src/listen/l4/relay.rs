//! Bytes both ways between two TCP connections, until both directions have ended.
//!
//! An idle connection holds no buffer: bytes are read into one that the thread has, and only what the other side does not take at once is
//! kept. Each direction ends by itself: the end that one side has sent is passed on, and the other direction goes on (half-close). When one
//! side breaks off, the other is reset, so that it cannot take what has come for the whole.
//!
//! Not `splice`: it takes a pipe of two descriptors per direction, and the small messages of databases and games cost it two calls where
//! copying costs one of each kind too.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Clock;
use crate::listen::stillness::Stillness;
use crate::routing::port_stats::PortStats;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

/// Read at once: as much as a socket usually holds.
const PIECE: usize = 64 << 10;
/// Pieces moved in a row before others of this thread have their turn.
const IN_A_ROW: u32 = 16;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE]);
}

/// What passes two connections' bytes on.
pub(super) struct Relay<'a> {
    pub stats: &'a PortStats,
    pub clock: Clock,
    /// Without a byte in either direction.
    pub idle: Duration,
    /// In all; `None` does not limit.
    pub total: Option<Duration>,
}

/// What became of what could be read.
enum Moved {
    Nothing,
    All(usize),
    /// So many were read, and these the other side did not take yet.
    Some(usize, Vec<u8>),
    End,
}

impl Relay<'_> {
    /// Passes bytes on until both sides have said that nothing more comes, or the time is up.
    ///
    /// # Errors
    /// One side broke off; both are reset.
    pub async fn run(&self, mut client: TcpStream, mut instance: TcpStream) -> io::Result<()> {
        let moved = Stillness::new(self.clock);
        let result = {
            let ((from_client, mut to_client), (from_instance, mut to_instance)) = (client.split(), instance.split());
            let both = async {
                tokio::try_join!(
                    self.copy(&from_client, &mut to_instance, self.stats.bytes_in(), &moved),
                    self.copy(&from_instance, &mut to_client, self.stats.bytes_out(), &moved),
                )
            };
            tokio::select! {
                result = both => result.map(drop),
                () = moved.lasts(self.idle) => Ok(()),
                () = self.until_total() => Ok(()),
            }
        };
        if result.is_err() {
            let _ = client.set_zero_linger();
            let _ = instance.set_zero_linger();
        }
        result
    }

    /// One direction, to its end.
    async fn copy(&self, from: &ReadHalf<'_>, to: &mut WriteHalf<'_>, bytes: &AtomicU64, moved: &Stillness) -> io::Result<()> {
        let mut in_a_row = 0;
        loop {
            from.readable().await?;
            let count = match move_ready(from, to)? {
                Moved::Nothing => continue,
                // The other side may have closed altogether.
                Moved::End => return to.shutdown().await.or(Ok(())),
                Moved::All(count) => count,
                Moved::Some(count, rest) => {
                    to.write_all(&rest).await?;
                    count
                }
            };
            bytes.fetch_add(count as u64, Ordering::Relaxed);
            moved.note_move();
            in_a_row += 1;
            if in_a_row % IN_A_ROW == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn until_total(&self) {
        match self.total {
            Some(total) => tokio::time::sleep(total).await,
            None => std::future::pending().await,
        }
    }
}

/// Moves what can be moved without waiting.
fn move_ready(from: &ReadHalf<'_>, to: &WriteHalf<'_>) -> io::Result<Moved> {
    BUFFER.with_borrow_mut(|buffer| {
        let count = match from.try_read(buffer) {
            Ok(0) => return Ok(Moved::End),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Moved::Nothing),
            Err(error) => return Err(error),
        };
        let written = match to.try_write(&buffer[..count]) {
            Ok(written) => written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error),
        };
        Ok(if written == count { Moved::All(count) } else { Moved::Some(count, buffer[written..count].to_vec()) })
    })
}
