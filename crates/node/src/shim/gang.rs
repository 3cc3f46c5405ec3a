//! What the tasks of a gang do once for all of them. They share one folder, and the shim of each knows no other.
//!
//! They agree by files in that folder, in each run anew. Whoever reads or changes one holds its lock, and a lock ends with its holder: a task
//! that dies while it copies leaves the whole work to the next.
//!
//! | file | content |
//! | --- | --- |
//! | `.inputs-RUN` | a line when all inputs are there |
//! | `.ended-RUN` | a line with the number of each task that has ended well |
//!
//! The files are the job's, which may write what it likes: it can only keep its own results from being copied.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use weal_protocol::node::JobRun;

use crate::files::at;

/// A file of this kind is never longer: a line for each of 64 tasks.
const MOST_BYTES: u64 = 4096;

/// Does `work` in the first task of `run` that comes here. The others wait until it is done.
pub(super) fn first<E: From<io::Error>>(run: &JobRun, folder: &Path, work: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    if run.addresses.is_empty() {
        return work();
    }
    let path = folder.join(format!(".inputs-{}", run.attempt));
    let (mut file, text) = locked(&path)?;
    if !text.is_empty() {
        return Ok(());
    }
    work()?;
    Ok(file.write_all(b"all\n").map_err(at(&path))?)
}

/// Does `work` in the last task of `run` that comes here, and tells whether this one is.
pub(super) fn last<E: From<io::Error>>(run: &JobRun, folder: &Path, work: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
    let path = folder.join(format!(".ended-{}", run.attempt));
    // Held until the results are in place.
    let mut file = None;
    if !run.addresses.is_empty() {
        let (mut own, text) = locked(&path)?;
        own.write_all(format!("{}\n", run.task).as_bytes()).map_err(at(&path))?;
        let mut ended: BTreeSet<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        ended.insert(run.task);
        if ended.len() < run.addresses.len() {
            return Ok(false);
        }
        file = Some(own);
    }
    work()?;
    drop(file);
    Ok(true)
}

/// The file at `path` with its lock, and what is in it. What is written next comes after that.
fn locked(path: &Path) -> io::Result<(File, String)> {
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = fs::OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(0o600).custom_flags(flags).open(path).map_err(at(path))?;
    file.lock().map_err(at(path))?;
    let mut text = String::new();
    Read::by_ref(&mut &file).take(MOST_BYTES).read_to_string(&mut text).map_err(at(path))?;
    Ok((file, text))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use weal_model::JobFiles;

    use super::*;

    fn task(task: u32, attempt: u32, tasks: usize) -> JobRun {
        let addresses = vec!["127.0.0.1".to_owned(); tasks];
        JobRun { job: "gang-1".into(), attempt, task, addresses, files: JobFiles::default(), checkpoint: Vec::new() }
    }

    #[test]
    fn the_first_task_of_each_run_copies_the_inputs_and_one_that_failed_leaves_that_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let copied = Cell::new(0);
        let copy = || {
            copied.set(copied.get() + 1);
            if copied.get() == 1 { Err(io::Error::other("no room")) } else { Ok(()) }
        };
        assert!(first(&task(1, 1, 3), folder.path(), copy).is_err());
        for (number, attempt, expected) in [(0, 1, 2), (2, 1, 2), (1, 2, 3)] {
            first(&task(number, attempt, 3), folder.path(), copy).unwrap();
            assert_eq!(copied.get(), expected);
        }
        first(&task(0, 2, 0), folder.path(), copy).unwrap();
        assert_eq!(copied.get(), 4, "a job of one process asks nobody");
    }

    #[test]
    fn the_last_task_of_each_run_copies_the_results_whoever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let copied = Cell::new(0);
        let copy = || {
            copied.set(copied.get() + 1);
            io::Result::Ok(())
        };
        for (number, attempt, is_last) in [(2, 1, false), (2, 1, false), (0, 2, false), (0, 1, false), (1, 1, true)] {
            assert_eq!(last(&task(number, attempt, 3), folder.path(), copy).unwrap(), is_last);
        }
        assert_eq!(copied.get(), 1);
        assert!(last(&task(0, 3, 0), folder.path(), copy).unwrap(), "a job of one process is the first and the last");
    }

    #[test]
    fn a_link_in_place_of_the_file_is_not_followed() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
        std::os::unix::fs::symlink(outside.path(), folder.path().join(".ended-1")).unwrap();
        assert!(last(&task(0, 1, 2), folder.path(), || io::Result::Ok(())).is_err());
        assert_eq!(fs::read_to_string(outside.path()).unwrap(), "");
    }
}
