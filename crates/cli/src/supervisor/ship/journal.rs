//! The journal of this machine, by systemd's native protocol: a datagram with fields for each entry.

use std::io;
use std::path::PathBuf;

use tokio::net::UnixDatagram;
use weal_protocol::controller::LogLine;

use super::error::{ShipError, Unsent};
use crate::level::Level;
use crate::log_entry::{Entry, writer_of};

/// Bytes of a line in one entry, as journald itself cuts lines (`LineMax=`). A datagram takes some 200 KiB.
const LONGEST: usize = 48 << 10;

/// Sends entries.
pub struct Journal {
    path: PathBuf,
    pool: String,
    socket: Option<UnixDatagram>,
}

impl Journal {
    /// Sends to the socket at `path`.
    pub fn new(path: PathBuf, pool: &str) -> Self {
        // A field of one line must not end within its value.
        Self { path, pool: pool.replace('\n', " "), socket: None }
    }

    /// Sends each line as an entry, a long one as several.
    ///
    /// # Errors
    /// The journal takes none at the moment.
    pub async fn send(&mut self, lines: &[LogLine]) -> Result<(), Unsent> {
        for (sent, line) in lines.iter().enumerate() {
            if let Err(error) = self.send_line(line).await {
                self.socket = None;
                return Err(Unsent { sent, why: ShipError::Journal(error) });
            }
        }
        Ok(())
    }

    async fn send_line(&mut self, line: &LogLine) -> io::Result<()> {
        for part in parts(&line.line) {
            let entry = entry(&self.pool, line, part);
            self.socket()?.send(&entry).await?;
        }
        Ok(())
    }

    /// Connected, so that the kernel says when a full queue has room again.
    fn socket(&mut self) -> io::Result<&UnixDatagram> {
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(&self.path)?;
                socket
            }
        };
        Ok(self.socket.insert(socket))
    }
}

/// One entry: `NAME=value` lines, and the message as a name, its length and its bytes, which may be any.
fn entry(pool: &str, line: &LogLine, message: &str) -> Vec<u8> {
    let app = writer_of(&line.instance);
    let time = line.time.map_or_else(String::new, |time| format!("WEAL_TIME_USEC={}\n", time.0 / 1000));
    let fields = format!(
        "PRIORITY={}\nSYSLOG_IDENTIFIER={app}\nWEAL_POOL={pool}\nWEAL_APP={app}\nWEAL_INSTANCE={}\n{time}MESSAGE\n",
        Level::of(Entry::of(line).level()).priority,
        line.instance
    );
    let length = (message.len() as u64).to_le_bytes();
    [fields.as_bytes(), &length, message.as_bytes(), b"\n"].concat()
}

/// `text` in parts of at most [`LONGEST`] bytes, each whole characters.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while rest.len() > LONGEST {
        let (part, after) = rest.split_at(rest.floor_char_boundary(LONGEST));
        parts.push(part);
        rest = after;
    }
    parts.push(rest);
    parts
}

#[cfg(test)]
mod tests {
    use weal_model::Time;

    use super::*;
    use crate::supervisor::outlet::Untaken as _;

    fn line(text: &str) -> LogLine {
        LogLine { time: Some(Time(7_000_000)), instance: "shop-1".into(), line: text.to_owned() }
    }

    #[test]
    fn an_entry_says_who_wrote_what_and_how_bad_it_is() {
        let warned = line(r#"{"level":"warn","msg":"slow"}"#);
        let entry = entry("demo", &warned, &warned.line);
        let fields = "PRIORITY=4\nSYSLOG_IDENTIFIER=shop\nWEAL_POOL=demo\nWEAL_APP=shop\nWEAL_INSTANCE=shop-1\nWEAL_TIME_USEC=7000\nMESSAGE\n";
        let expected = [fields.as_bytes(), &29_u64.to_le_bytes(), warned.line.as_bytes(), b"\n"].concat();
        assert_eq!(entry, expected);
    }

    #[tokio::test]
    async fn lines_wait_while_the_journal_is_away_and_long_ones_come_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let mut journal = Journal::new(path.clone(), "de\nmo");
        let long = "é".repeat(LONGEST / 2 + 1);
        let lines = [line("one"), line(&long)];
        let unsent = journal.send(&lines).await.unwrap_err();
        assert!(unsent.sent == 0 && unsent.why.is_passing(), "{unsent:?}");
        let listener = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        journal.send(&lines).await.unwrap();
        let mut buffer = vec![0; 256 << 10];
        let mut receive = || {
            let length = listener.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let first = receive();
        assert!(first.contains("WEAL_POOL=de mo\n") && first.ends_with("one\n"), "{first}");
        assert_eq!([receive(), receive()].map(|part| part.matches('é').count()), [LONGEST / 2, 1]);
    }
}
