//! Files that outlive a gateway, below its folder of the state directory, and the secrets in them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Writes files in a thread of its own: a disk that hangs may hold up nobody who serves requests or answers the controller. Of each file only
/// the last content counts. A file that cannot be written is logged; serving goes on.
#[derive(Debug, Default)]
pub(crate) struct Keeper {
    wanted: Arc<Wanted>,
}

#[derive(Debug, Default)]
struct Wanted {
    pending: Mutex<Pending>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Pending {
    contents: BTreeMap<PathBuf, Vec<u8>>,
    /// A thread writes, or is about to.
    has_writer: bool,
}

impl Keeper {
    /// Has `content` put in place of `file`, soon.
    pub fn keep(&self, file: &Path, content: Vec<u8>) {
        let mut pending = self.wanted.pending();
        pending.contents.insert(file.to_owned(), content);
        if pending.has_writer {
            return;
        }
        let wanted = Arc::clone(&self.wanted);
        match std::thread::Builder::new().name("files".to_owned()).spawn(move || wanted.write()) {
            Ok(_) => pending.has_writer = true,
            Err(error) => tracing::warn!(file = %file.display(), %error, "cannot be written: there is no thread for it"),
        }
    }

    /// Waits until all is written, for so long at most.
    pub fn settle(&self, patience: Duration) {
        let pending = self.wanted.pending();
        drop(self.wanted.changed.wait_timeout_while(pending, patience, |pending| pending.has_writer));
    }
}

impl Wanted {
    fn pending(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes until there is nothing more.
    fn write(&self) {
        loop {
            let mut pending = self.pending();
            let Some((file, content)) = pending.contents.pop_first() else {
                pending.has_writer = false;
                return self.changed.notify_all();
            };
            drop(pending);
            if let Err(error) = replace(&file, &content) {
                // Only a restart without a controller would miss it.
                tracing::warn!(file = %file.display(), %error, "cannot be written");
            }
        }
    }
}

/// Puts `content` in place of `file`, and makes its folder.
pub(super) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    let folder = file.parent().expect("the file's path has a folder");
    fs::create_dir_all(folder)?;
    weal_host::files::replace(file, content)
}

/// Bytes that nobody guesses.
pub(super) fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// `bytes` as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_disk_that_hangs_and_the_last_content_stays() {
        let folder = tempfile::tempdir().unwrap();
        let (stuck, file) = (folder.path().join("stuck"), folder.path().join("gateway/config"));
        // Who opens a pipe to write waits until somebody reads it: so does who writes on a disk that hangs.
        rustix::fs::mkfifoat(rustix::fs::CWD, &stuck, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        let keeper = Keeper::default();
        let wanted = Arc::clone(&keeper.wanted);
        wanted.pending().has_writer = true;
        let hangs = stuck.clone();
        let writer = std::thread::spawn(move || {
            drop(fs::OpenOptions::new().write(true).open(hangs));
            wanted.write();
        });
        for content in ["first", "second", "last"] {
            keeper.keep(&file, content.into());
        }
        keeper.settle(Duration::from_millis(10));
        assert!(!file.exists(), "it waits");
        drop(fs::File::open(&stuck).unwrap());
        writer.join().unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"last");
        keeper.keep(&file, b"later".into());
        keeper.settle(Duration::from_secs(30));
        assert_eq!(fs::read(&file).unwrap(), b"later");
    }
}
