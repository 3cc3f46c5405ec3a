//! How far a job says it is: a fraction or a percentage in the file that `$WEAL_PROGRESS` names, or what some programs write to their output.
//!
//! The file is the job's, and the agent may be root. So it opens nothing but a regular file in that very place, never waits for it, and reads
//! no more than its end.
//!
//! Of output, only lines count that mean the whole work and nothing else:
//!
//! | a line | of |
//! | --- | --- |
//! | `[ 37%] ...`, `[12/345] ...` | builds by CMake's makefiles and by ninja |
//! | `time=00:01:10.5` after `Duration: 00:05:00` | ffmpeg |
//! | `1,234 12% 3.1MB/s 0:00:05 (xfr#5, to-chk=169/396)` | rsync: the lesser of bytes and files, for without `--info=progress2` the bytes are those of one file |
//! | `37%` | whoever writes nothing else in a line |

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};

use crate::shim::logs;

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
    part(percentage(last).or_else(|| last.parse().ok())?)
}

/// From 0 to 1, by the output in the folder `logs`; `None` when its last lines say no such thing.
pub(crate) fn said(logs: &Path) -> Option<f64> {
    let (begin, end) = logs::ends(logs, OUTPUT)?;
    parse_output(&String::from_utf8_lossy(&begin), &String::from_utf8_lossy(&end))
}

/// Bytes of output that are looked at, at its beginning and at its end: ffmpeg tells a length after some lines about itself, and whoever writes
/// a bar writes it again and again.
const OUTPUT: u64 = 4096;

fn parse_output(begin: &str, end: &str) -> Option<f64> {
    let length_s = begin.split_once("Duration: ").and_then(|(_, rest)| clock_s(rest)).filter(|length_s| *length_s > 0.0);
    // A bar begins its line anew with a carriage return.
    let lines = end.rsplit(['\r', '\n']).map(str::trim);
    lines.filter_map(|line| part(told(line, length_s)?)).next()
}

fn told(line: &str, length_s: Option<f64>) -> Option<f64> {
    if let Some((inner, _)) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return percentage(inner).or_else(|| ratio(inner));
    }
    if let Some((_, time)) = line.split_once("time=") {
        return Some(clock_s(time)? / length_s?);
    }
    match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, bytes, rate, .., left] if rate.ends_with("B/s") => {
            let left = left.strip_prefix("to-chk=").or_else(|| left.strip_prefix("ir-chk="))?.strip_suffix(')')?;
            Some(percentage(bytes)?.min(1.0 - ratio(left)?))
        }
        [percent] => percentage(percent),
        _ => None,
    }
}

/// `37%`, as a part of 1.
fn percentage(text: &str) -> Option<f64> {
    Some(text.strip_suffix('%')?.trim().parse::<f64>().ok()? / 100.0)
}

/// `12/345`.
fn ratio(text: &str) -> Option<f64> {
    let (done, all) = text.split_once('/')?;
    Some(done.trim().parse::<f64>().ok()? / all.trim().parse::<f64>().ok()?)
}

/// The time that a text begins with, `00:01:10.5`, in seconds.
fn clock_s(text: &str) -> Option<f64> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(text.len());
    let mut parts = text[..end].split(':').map(str::parse::<f64>);
    let mut next = || parts.next()?.ok();
    Some(3600.0 * next()? + 60.0 * next()? + next()?)
}

fn part(fraction: f64) -> Option<f64> {
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
    fn programs_that_tell_how_far_they_are_in_their_output_are_believed() {
        let film = "ffmpeg version 5\n  Duration: 00:05:00.00, start: 0.0\n";
        for (output, progress) in [
            ("[ 12%] Building a.o\n[ 37%] Building b.o\nb.c:3: warning: 5% of\n", Some(0.37)),
            ("[3/12] CC a.o\n", Some(0.25)),
            ("frame= 1 time=00:00:30.00 x\rframe= 9 time=00:01:15.00 bitrate=1k\r", Some(0.25)),
            (" 32,768  80%  1.2MB/s  0:00:01 (xfr#1, to-chk=3/4)\r", Some(0.25)),
            (" 32,768  80%  1.2MB/s  0:00:01\r", None),
            ("3%\r17%\r", Some(0.17)),
            ("the disk is 93% full\nCPU 40%\n[error] 5%\ntime=soon\n[7/0] x\n", None),
            ("\u{fffd}\0[", None),
            ("", None),
        ] {
            assert_eq!(parse_output(film, output), progress, "{output:?}");
        }
        assert_eq!(parse_output("", "time=00:01:15.00"), None, "nobody has told its length");
    }

    #[test]
    fn output_is_read_at_its_two_ends() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(said(folder.path()), None);
        let mut writer = logs::Writer::open(folder.path()).unwrap();
        writer.append(b"Duration: 00:00:40.0\n", weal_model::Time::ZERO);
        writer.append(&b"frame=1 time=00:00:01.0 \r".repeat(10_000), weal_model::Time::ZERO);
        writer.append(b"frame=9 time=00:00:10.0 \r", weal_model::Time::ZERO);
        assert_eq!(said(folder.path()), Some(0.25));
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

    #[test]
    fn fuzz_progress() {
        weal_fuzz::target("progress", |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let (begin, end) = text.split_once('|').unwrap_or(("", &text));
            let found = [parse(&text), parse_output(begin, end)];
            assert!(found.into_iter().flatten().all(|part| (0.0..=1.0).contains(&part)), "{found:?}");
        });
    }
}
