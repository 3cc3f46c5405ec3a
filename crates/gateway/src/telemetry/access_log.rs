//! The access log: a file that a thread of its own writes, so that no request waits for a disk.
//!
//! Whoever moves the file away gets it whole: within a second the thread begins a new one. Nobody has to, because it moves files away itself
//! when they are full and keeps the last few. What comes faster than the disk takes it is dropped and counted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use super::record::Record;

/// Where the log is, below the state directory.
const FILE: &str = "gateway/access.log";
/// Records that may wait for the disk, a few megabytes; a second of a busy gateway.
const WAITING: usize = 8192;
/// How late a line may be written, and a file that was moved away be noticed.
const LAG: Duration = Duration::from_secs(1);
/// Bytes after which a file is moved away.
const FULL: u64 = 64 << 20;
/// Files that were moved away and are kept: `access.log.1` is the last one.
const KEPT: u32 = 4;

/// Where records are handed over.
#[derive(Debug)]
pub(crate) struct AccessLogWriter {
    records: SyncSender<Box<Record>>,
    dropped: std::sync::Arc<AtomicU64>,
}

impl AccessLogWriter {
    /// Starts the thread. It makes no file before there is something to write, and ends when this is dropped.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(state_dir: &Path) -> io::Result<Self> {
        let (records, received) = sync_channel(WAITING);
        let dropped = std::sync::Arc::<AtomicU64>::default();
        let file = LogFile { path: state_dir.join(FILE), full: FULL, open: None };
        let counted = std::sync::Arc::clone(&dropped);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || write(&received, file, &counted))?;
        Ok(Self { records, dropped })
    }

    /// Has a record written, unless too many wait already.
    pub fn push(&self, record: Box<Record>) {
        if let Err(TrySendError::Full(_)) = self.records.try_send(record) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn write(records: &Receiver<Box<Record>>, mut file: LogFile, dropped: &AtomicU64) {
    let mut told = 0;
    loop {
        let (mut text, mut lines) = (String::new(), 0);
        let ended = gather(records, &mut text, &mut lines);
        if lines > 0
            && let Err(error) = file.append(text.as_bytes())
        {
            if dropped.fetch_add(lines, Ordering::Relaxed) == told {
                tracing::warn!(file = %file.path.display(), %error, "cannot write the access log: its lines are lost");
            }
            file.open = None;
        }
        let missing = dropped.load(Ordering::Relaxed);
        if missing > told {
            tracing::warn!(lines = missing - told, "lines of the access log were dropped");
            told = missing;
        }
        if ended {
            return;
        }
    }
}

/// What comes within the time that a line may be late, up to a megabyte. True when nothing more will come.
fn gather(records: &Receiver<Box<Record>>, text: &mut String, lines: &mut u64) -> bool {
    let mut until = None;
    while text.len() < 1 << 20 {
        let left = until.map_or(LAG, |until: Instant| until.saturating_duration_since(Instant::now()));
        match records.recv_timeout(left) {
            Ok(record) => {
                text.push_str(&record.line());
                *lines += 1;
                until.get_or_insert_with(|| Instant::now() + LAG);
            }
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
    false
}

/// The file in use.
#[derive(Debug)]
struct LogFile {
    path: PathBuf,
    /// Bytes after which it is moved away.
    full: u64,
    open: Option<File>,
}

impl LogFile {
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let mut file = match self.open.take() {
            Some(file) if self.is_here(&file) => file,
            _ => self.create()?,
        };
        file.write_all(text)?;
        if file.metadata()?.len() < self.full {
            self.open = Some(file);
            return Ok(());
        }
        self.rotate()
    }

    /// False when somebody has moved the file away.
    fn is_here(&self, file: &File) -> bool {
        let here = std::fs::symlink_metadata(&self.path).map(|here| (here.dev(), here.ino()));
        let open = file.metadata().map(|open| (open.dev(), open.ino()));
        matches!((here, open), (Ok(here), Ok(open)) if here == open)
    }

    /// For its owner and nobody else: it names who asked for what.
    fn create(&self) -> io::Result<File> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(no_follow).open(&self.path)
    }

    fn rotate(&self) -> io::Result<()> {
        let kept = |number: u32| self.path.with_extension(format!("log.{number}"));
        for number in (1..KEPT).rev() {
            match std::fs::rename(kept(number), kept(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        std::fs::rename(&self.path, kept(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_file_is_moved_away_and_one_that_somebody_moved_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway/access.log");
        let mut file = LogFile { path: path.clone(), full: 10, open: None };
        let read = |name: &str| std::fs::read_to_string(folder.path().join("gateway").join(name)).unwrap_or_default();
        file.append(b"one\n").unwrap();
        std::fs::rename(&path, folder.path().join("gateway/mine")).unwrap();
        file.append(b"two\n").unwrap();
        assert_eq!((read("mine"), read("access.log")), ("one\n".into(), "two\n".into()));
        file.append(b"three..\n").unwrap();
        assert_eq!((read("access.log.1"), path.exists()), ("two\nthree..\n".into(), false));
        for number in 0..9 {
            file.append(format!("{number}.........\n").as_bytes()).unwrap();
        }
        assert_eq!(read("access.log.4"), "5.........\n");
        assert!(!folder.path().join("gateway/access.log.5").exists());
    }
}
