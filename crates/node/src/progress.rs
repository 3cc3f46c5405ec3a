//! How far a job says it is: a fraction or a percentage in the file that `$WEAL_PROGRESS` names.
//!
//! The file is the job's, and the agent may be root. So it opens nothing but a regular file in that very place, never waits for it, and reads
//! no more than its end.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

/// The variable that names the file.
pub(crate) const VARIABLE: &str = "WEAL_PROGRESS";
/// The last bytes that are read: many times the longest number that anybody writes.
const END: u64 = 64;

/// The name of the file of a task of a job's run, in the job's folder.
pub(crate) fn file_name(attempt: u32, task: u32) -> String {
    if task == 0 { format!(".progress-{attempt}") } else { format!(".progress-{attempt}-{task}") }
}

/// From 0 to 1; `None` when there is no file or its last line says no such thing.
pub(crate) fn read(path: &Path) -> Option<f64> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(CWD, path, flags, Mode::empty()).ok()?);
    let metadata = file.metadata().ok().filter(|metadata| metadata.is_file())?;
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(END))).ok()?;
    let mut bytes = Vec::new();
    file.take(END).read_to_end(&mut bytes).ok()?;
    parse(std::str::from_utf8(&bytes).ok()?)
}

fn parse(text: &str) -> Option<f64> {
    let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let fraction = match last.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => last.parse().ok()?,
    };
    (0.0..=1.0).contains(&fraction).then_some(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_as_a_fraction_or_a_percentage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        assert_eq!(read(&path), None);
        for (text, progress) in [
            ("0.25", Some(0.25)),
            ("0.1\n0.2\n 37 %\n\n", Some(0.37)),
            ("1", Some(1.0)),
            ("", None),
            ("1.5", None),
            ("-1", None),
            ("NaN", None),
            ("soon", None),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read(&path), progress, "{text:?}");
        }
        std::fs::write(&path, "0.5\n".repeat(1_000_000)).unwrap();
        assert_eq!(read(&path), Some(0.5));
        std::fs::write(&path, [0xff; 80]).unwrap();
        assert_eq!(read(&path), None);
    }

    #[test]
    fn what_is_no_file_of_the_jobs_own_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (secret, link, pipe) = (folder.path().join("s"), folder.path().join("l"), folder.path().join("f"));
        std::fs::write(&secret, "0.5").unwrap();
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert_eq!((read(&link), read(&pipe), read(folder.path())), (None, None, None));
    }
}
