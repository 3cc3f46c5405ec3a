//! Who ordered what: one line of JSON per order and per call that was refused for want of rights, in `controller/audit.log`.
//!
//! A thread of its own writes, so that no caller waits for a disk. At [`LONGEST`] bytes the file becomes `audit.log.1` in place of the
//! former one. Calls that are not listed are counted in the next line that is.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use weal_model::Time;
use weal_protocol::controller::AuditEntry;

/// Bytes of a file; two are kept.
const LONGEST: u64 = 1 << 20;
/// Lines that may wait for the disk.
const QUEUE: usize = 1024;
/// Refused calls that are listed within [`WINDOW`]: whoever guesses tokens shall not drive the orders out of the log.
const REFUSED: u32 = 60;
const WINDOW: Duration = Duration::from_secs(60);

/// The log.
#[derive(Debug)]
pub(crate) struct Audit {
    path: PathBuf,
    entries: SyncSender<AuditEntry>,
    /// Calls that are not listed so far and of which no line tells.
    unlisted: AtomicU64,
    refused: Mutex<Window>,
}

/// How many were listed since when.
#[derive(Debug, Default)]
struct Window {
    since: Time,
    count: u32,
}

impl Window {
    fn has_room(&mut self, now: Time) -> bool {
        if now.since(self.since) >= WINDOW {
            *self = Self { since: now, count: 0 };
        }
        self.count += 1;
        self.count <= REFUSED
    }
}

impl Audit {
    /// Goes on with the log in `folder`.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join("audit.log");
        let (entries, queue) = sync_channel(QUEUE);
        let mut writer = Writer { path: path.clone(), file: None, lost: 0 };
        std::thread::Builder::new().name("audit".into()).spawn(move || writer.work(&queue))?;
        Ok(Self { path, entries, unlisted: AtomicU64::new(0), refused: Mutex::default() })
    }

    /// Lists an order that was answered.
    pub fn note(&self, entry: AuditEntry) {
        let unlisted = self.unlisted.swap(0, Ordering::Relaxed);
        if self.entries.try_send(AuditEntry { unlisted, ..entry }).is_err() {
            self.unlisted.fetch_add(unlisted + 1, Ordering::Relaxed);
        }
    }

    /// Lists a call that was refused, unless there are too many.
    pub fn note_refused(&self, entry: AuditEntry) {
        if self.refused.lock().unwrap_or_else(PoisonError::into_inner).has_room(entry.time) {
            self.note(entry);
        } else {
            self.unlisted.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The last `limit` entries, oldest first. Reads files: not for a task.
    pub fn last(&self, limit: usize) -> Vec<AuditEntry> {
        let files = [former(&self.path), self.path.clone()];
        let text: String = files.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
        // A line that was cut short by a full disk says nothing.
        let mut entries: Vec<AuditEntry> =
            text.lines().rev().filter_map(|line| serde_json::from_str(line).ok()).take(limit).collect();
        entries.reverse();
        entries
    }
}

/// Appends lines to the file.
struct Writer {
    path: PathBuf,
    /// `None` when it is to be opened.
    file: Option<File>,
    /// Entries that could not be written since the last that could.
    lost: u64,
}

impl Writer {
    fn work(&mut self, queue: &Receiver<AuditEntry>) {
        for entry in queue {
            if let Err(error) = self.write(&entry) {
                tracing::error!(path = %self.path.display(), %error, "the audit log cannot be written");
                self.lost += entry.unlisted + 1;
                // What is half there ends with the line that comes next.
                self.file = None;
            }
        }
    }

    fn write(&mut self, entry: &AuditEntry) -> io::Result<()> {
        let entry = AuditEntry { unlisted: entry.unlisted + self.lost, ..entry.clone() };
        let line = serde_json::to_string(&entry)? + "\n";
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(open(&self.path)?),
        };
        file.write_all(line.as_bytes())?;
        self.lost = 0;
        if file.metadata()?.len() >= LONGEST {
            self.file = None;
            fs::rename(&self.path, former(&self.path))?;
        }
        Ok(())
    }
}

/// Opens the file for its owner alone; a line that was cut short gets its end.
fn open(path: &Path) -> io::Result<File> {
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    if fs::read(path)?.last().is_some_and(|last| *last != b'\n') {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

fn former(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    use weal_protocol::controller::Caller;

    use super::*;

    fn entry(seconds: u64, status: u16) -> AuditEntry {
        let who = Caller::User { uid: 7 };
        let time = Time::ZERO + Duration::from_secs(seconds);
        AuditEntry { time, who, method: "POST".into(), path: format!("/v1/{seconds}"), status, unlisted: 0 }
    }

    fn until(audit: &Audit, count: usize) -> Vec<AuditEntry> {
        let begun = Instant::now();
        loop {
            let entries = audit.last(1 << 20);
            if entries.len() >= count {
                return entries;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "{entries:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn orders_are_listed_in_order_and_go_on_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        audit.note(entry(1, 200));
        audit.note(entry(2, 409));
        until(&audit, 2);
        let path = folder.path().join("audit.log");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let whole = fs::read_to_string(&path).unwrap();
        fs::write(&path, whole + "{\"time\": 3, \"who").unwrap();
        let again = Audit::open(folder.path()).unwrap();
        again.note(entry(4, 200));
        assert_eq!(until(&again, 3), [entry(1, 200), entry(2, 409), entry(4, 200)], "a line that was cut short is left out");
        assert_eq!(again.last(1), [entry(4, 200)]);
    }

    #[test]
    fn who_guesses_tokens_does_not_drive_orders_out() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        (0..1000).for_each(|_| audit.note_refused(entry(100, 401)));
        audit.note(entry(101, 200));
        let entries = until(&audit, 61);
        assert_eq!(entries.len(), 61);
        assert_eq!(entries[60], AuditEntry { unlisted: 940, ..entry(101, 200) });
        audit.note_refused(entry(161, 401));
        assert_eq!(until(&audit, 62).len(), 62, "a minute later some are listed again");
    }

    #[test]
    fn a_file_is_bounded_and_the_one_before_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer { path: folder.path().join("audit.log"), file: None, lost: 0 };
        let lines = 3 * LONGEST / 60;
        (0..lines).for_each(|number| writer.write(&entry(number, 200)).unwrap());
        let sizes: Vec<u64> = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).collect();
        assert_eq!(sizes.len(), 2);
        assert!(sizes.iter().all(|size| *size < LONGEST + 200), "{sizes:?}");
    }

    #[test]
    fn what_a_disk_does_not_take_is_counted_in_the_next_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("missing/audit.log");
        let (entries, queue) = sync_channel(8);
        let mut writer = Writer { path: path.clone(), file: None, lost: 0 };
        entries.send(entry(1, 200)).unwrap();
        entries.send(AuditEntry { unlisted: 5, ..entry(2, 200) }).unwrap();
        drop(entries);
        writer.work(&queue);
        fs::create_dir(folder.path().join("missing")).unwrap();
        writer.write(&entry(3, 200)).unwrap();
        let line = fs::read_to_string(path).unwrap();
        assert_eq!(serde_json::from_str::<AuditEntry>(&line).unwrap(), AuditEntry { unlisted: 7, ..entry(3, 200) });
    }
}
