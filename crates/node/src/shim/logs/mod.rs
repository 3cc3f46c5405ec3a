//! What an instance wrote: raw lines in numbered files, bounded in number and size.
//!
//! The files are `NUMBER.log`; output goes to the one with the highest number until it is full, then to the next. Nothing
//! is ever renamed, so a place in the log is a number and an offset, and stays what it is. Beside each stands `NUMBER.times`:
//! when its lines came ([`stamps`]). So the log itself holds what was written and nothing else.

mod read;
mod stamps;

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weal_model::Time;

use self::stamps::{MOST_STAMPS, RESOLUTION, STAMP_BYTES, Stamp};
use crate::files::at;

pub use read::{BadCursor, Cursor, Piece, begin_since, ends, is_open, read, read_bytes, tail};

/// A file is full at this size. Smaller ones lose little at once when the oldest is dropped, but are many.
pub const FILE_LIMIT: u64 = 10 << 20;
/// So many files are kept: 50 MiB per instance at most.
pub const FILES_KEPT: usize = 5;

/// Appends to the logs in a folder.
#[derive(Debug)]
pub struct Writer {
    folder: PathBuf,
    number: u64,
    length: u64,
    /// `None` while the disk does not let us write.
    file: Option<File>,
    file_limit: u64,
    /// Bytes that found no place on disk since the last that did.
    dropped: u64,
    /// Stands after the line that is being written.
    note: Option<&'static str>,
    /// The times of `file`'s lines; `None` while the disk does not let us write them.
    times: Option<File>,
    /// How many of them there are, and the last.
    stamps: u64,
    stamped: Time,
    /// True when the next byte begins a line.
    at_line_begin: bool,
}

impl Writer {
    /// Continues the newest file in `folder`.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Self::with_limit(folder, FILE_LIMIT)
    }

    fn with_limit(folder: &Path, file_limit: u64) -> io::Result<Self> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let number = numbers(folder).last().copied().unwrap_or(1);
        let mut writer = Self {
            folder: folder.to_owned(),
            number,
            length: 0,
            file: None,
            file_limit,
            dropped: 0,
            note: None,
            times: None,
            stamps: 0,
            stamped: Time::ZERO,
            at_line_begin: true,
        };
        writer.reopen();
        Ok(writer)
    }

    fn reopen(&mut self) {
        let (log, times) = (path(&self.folder, self.number), stamps::path(&self.folder, self.number));
        let open = |path| fs::OpenOptions::new().read(true).append(true).create(true).mode(0o640).open(path).ok();
        let length =
            |file: &Option<File>| file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len());
        (self.file, self.times) = (open(log), open(times));
        (self.length, self.stamps, self.stamped) = (length(&self.file), length(&self.times) / STAMP_BYTES, Time::ZERO);
        self.at_line_begin = self.length == 0 || self.file.as_ref().is_some_and(|file| ends_line(file, self.length));
    }

    /// Puts a line of ours after the line that is being written.
    pub fn note_at_line_end(&mut self, note: &'static str) {
        self.note = Some(note);
    }

    /// Appends `bytes`, which came at `now`, and the line of ours that waits, once one has ended.
    pub fn append(&mut self, bytes: &[u8], now: Time) {
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let Some((end, note)) = end.and_then(|end| Some((end, self.note.take()?))) else { return self.fill(bytes, now) };
        self.fill(&bytes[..end], now);
        self.fill(note.as_bytes(), now);
        self.fill(&bytes[end..], now);
    }

    /// Ends the last line if that was left open, so that what comes next is a line of its own.
    pub fn end_line(&mut self, now: Time) {
        if !self.at_line_begin {
            self.fill(b"\n", now);
        }
    }

    /// Appends `bytes`. What finds no place (the disk is full) is dropped and counted: an instance never waits for its log.
    fn fill(&mut self, mut bytes: &[u8], now: Time) {
        if self.stamps >= MOST_STAMPS && self.at_line_begin {
            self.next_file();
        }
        while self.length + bytes.len() as u64 > self.file_limit {
            // Up to the last line that fits; a line that would have to be cut goes to the next file, if that helps.
            let room = usize::try_from(self.file_limit.saturating_sub(self.length)).unwrap_or(usize::MAX).min(bytes.len());
            let lines = bytes[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let cut = if lines == 0 && self.length == 0 { room } else { lines };
            self.write(&bytes[..cut], now);
            bytes = &bytes[cut..];
            self.next_file();
        }
        self.write(bytes, now);
    }

    fn write(&mut self, bytes: &[u8], now: Time) {
        if bytes.is_empty() {
            return;
        }
        if self.file.is_none() {
            self.reopen();
        }
        self.stamp(bytes, now);
        self.at_line_begin = bytes.ends_with(b"\n");
        let Some(file) = &mut self.file else {
            self.dropped += bytes.len() as u64;
            return;
        };
        if self.dropped > 0 {
            let note = format!("[weal: {} bytes were lost here: the disk was full]\n", self.dropped);
            if file.write_all(note.as_bytes()).is_ok() {
                self.length += note.len() as u64;
                self.dropped = 0;
            }
        }
        match file.write_all(bytes) {
            // The agent may have added a line of its own, so that the end is asked for.
            Ok(()) => self.length = file.stream_position().unwrap_or(self.length + bytes.len() as u64),
            Err(_) => {
                self.dropped += bytes.len() as u64;
                self.length = file.metadata().map_or(self.length, |metadata| metadata.len());
            }
        }
    }

    /// Notes the time of the first line that begins in `bytes`. Before they are written: nobody shall read a line that has no time yet.
    fn stamp(&mut self, bytes: &[u8], now: Time) {
        let inner = || bytes[..bytes.len() - 1].iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let begin = if self.at_line_begin { Some(0) } else { inner() };
        let Some(begin) = begin else { return };
        if self.stamps > 0 && now.since(self.stamped) < RESOLUTION && now >= self.stamped {
            return;
        }
        let stamp = Stamp { offset: self.length + begin as u64, time: now };
        if self.times.as_mut().is_some_and(|times| times.write_all(&stamp.to_bytes()).is_ok()) {
            self.stamps += 1;
            self.stamped = now;
        }
    }

    fn next_file(&mut self) {
        self.number += 1;
        self.reopen();
        let numbers = numbers(&self.folder);
        for old in &numbers[..numbers.len().saturating_sub(FILES_KEPT)] {
            let _ = fs::remove_file(path(&self.folder, *old));
            let _ = fs::remove_file(stamps::path(&self.folder, *old));
        }
    }
}

fn ends_line(file: &File, length: u64) -> bool {
    let mut last = [0];
    file.read_exact_at(&mut last, length - 1).is_ok() && last == [b'\n']
}

/// The longest line that the agent adds, in characters.
const LONGEST_NOTE: usize = 500;

/// Adds a line of the agent's own to the log in `folder`, escaped and cut. Where the newest file is full or the disk lets nobody write, it is lost:
/// only the shim begins files.
pub fn note(folder: &Path, text: &str) {
    let newest = path(folder, numbers(folder).last().copied().unwrap_or(1));
    let Ok(mut file) = fs::OpenOptions::new().append(true).open(newest) else { return };
    if file.metadata().is_ok_and(|metadata| metadata.len() >= FILE_LIMIT) {
        return;
    }
    let plain: String = text
        .chars()
        .take(LONGEST_NOTE)
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    // One write, so that it stays one line beside the shim's.
    let _ = file.write_all(format!("[weal: {plain}]\n").as_bytes());
}

/// The numbers of the files in `folder`, ascending.
fn numbers(folder: &Path) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(".log")?.parse().ok();
    let mut numbers: Vec<u64> = entries.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.log"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(5_000_000_000);

    fn all(folder: &Path, mut cursor: Cursor) -> String {
        let mut text = String::new();
        loop {
            let piece = read(folder, cursor, false).unwrap();
            if piece.text.is_empty() && piece.next == cursor {
                return text;
            }
            text.push_str(&piece.text);
            cursor = piece.next;
        }
    }

    const START: Cursor = Cursor { number: 1, offset: 0 };

    #[test]
    fn a_line_of_the_agent_is_one_line_commands_no_terminal_and_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        note(folder.path(), "nobody began a log");
        assert!(numbers(folder.path()).is_empty());
        let mut writer = Writer::open(folder.path()).unwrap();
        writer.append(b"a line\n", NOW);
        note(folder.path(), &format!("it wrote: \u{1b}[2Jno\ntable{}", "x".repeat(9000)));
        writer.append(b"another\n", NOW);
        let text = read(folder.path(), Cursor { number: 1, offset: 0 }, false).unwrap().text;
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[2]), (3, "a line", "another"), "{text}");
        assert!(lines[1].starts_with(r"[weal: it wrote: \u{1b}[2Jno\ntablexx") && lines[1].len() < 600, "{text}");
    }

    #[test]
    fn lines_come_back_whole_over_several_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::with_limit(folder.path(), 20).unwrap();
        for piece in ["first li", "ne\nsecond line\nth", "ird line\n", "unfinished"] {
            writer.append(piece.as_bytes(), NOW);
        }
        assert!(numbers(folder.path()).len() > 1);
        assert_eq!(all(folder.path(), START), "first line\nsecond line\nthird line\n");
        writer.append(b" no more\n", NOW);
        assert!(all(folder.path(), START).ends_with("unfinished no more\n"));
    }

    #[test]
    fn the_log_is_bounded_and_says_that_lines_were_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::with_limit(folder.path(), 100).unwrap();
        for n in 0..1000 {
            writer.append(format!("line {n}\n").as_bytes(), NOW);
        }
        // A line that fits no file is cut rather than kept in memory or lost.
        writer.append(&[b'x'; 1000], NOW);
        let files = numbers(folder.path());
        assert_eq!(files.len(), FILES_KEPT);
        let size: u64 = files.iter().map(|n| fs::metadata(path(folder.path(), *n)).unwrap().len()).sum();
        assert!(size <= 100 * FILES_KEPT as u64, "{size}");
        assert!(all(folder.path(), START).starts_with("[weal: older lines were dropped"));
    }

    #[test]
    fn a_tail_begins_the_asked_number_of_lines_before_the_end_even_across_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::with_limit(folder.path(), 30).unwrap();
        for n in 0..12 {
            writer.append(format!("line {n:02}\n").as_bytes(), NOW);
        }
        for wanted in [0, 1, 3, 4, 11] {
            let text = all(folder.path(), tail(folder.path(), wanted).unwrap());
            let expected: String = (12 - wanted..12).map(|n| format!("line {n:02}\n")).collect();
            assert_eq!(text, expected, "{wanted} lines");
        }
        assert_eq!(all(folder.path(), tail(folder.path(), 99).unwrap()).lines().count(), 12);
    }

    #[test]
    fn an_empty_log_has_no_lines_and_a_bad_cursor_says_what_is_right() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(all(folder.path(), tail(folder.path(), 10).unwrap()), "");
        assert!("x".parse::<Cursor>().unwrap_err().to_string().contains("pass the `next`"));
        assert_eq!("3:14".parse(), Ok(Cursor { number: 3, offset: 14 }));
    }

    #[test]
    fn fuzz_what_instances_write() {
        weal_fuzz::target("log-text", |bytes| {
            let folder = tempfile::tempdir().unwrap();
            let mut writer = Writer::open(folder.path()).unwrap();
            let (first, second) = bytes.split_at(bytes.len() / 2);
            writer.append(first, NOW);
            writer.append(second, Time(NOW.0 + 1_000_000_000));
            writer.end_line(NOW);
            let mut written = bytes.to_vec();
            written.extend((!matches!(bytes.last(), None | Some(b'\n'))).then_some(b'\n'));
            assert_eq!(read_bytes(folder.path(), START).unwrap().0, written);
            assert_eq!(all(folder.path(), START), String::from_utf8_lossy(&written));
            let lines = written.iter().filter(|byte| **byte == b'\n').count();
            assert_eq!(all(folder.path(), tail(folder.path(), 2).unwrap()).matches('\n').count(), lines.min(2));
        });
    }

    #[test]
    fn fuzz_times_of_lines() {
        weal_fuzz::target("log-times", |bytes| {
            let folder = tempfile::tempdir().unwrap();
            Writer::open(folder.path()).unwrap().append(b"one\ntwo\nthree\n", NOW);
            fs::write(stamps::path(folder.path(), 1), bytes).unwrap();
            // Whatever stands beside a log, its lines are read as they are.
            let piece = read(folder.path(), START, false).unwrap();
            assert_eq!(piece.text, "one\ntwo\nthree\n");
            let since = begin_since(folder.path(), NOW);
            assert!(read(folder.path(), since, false).unwrap().text.len() <= piece.text.len());
        });
    }

    #[test]
    fn fuzz_places_in_logs() {
        let folder = tempfile::tempdir().unwrap();
        Writer::open(folder.path()).unwrap().append(b"one\ntwo\nthree\n", NOW);
        weal_fuzz::target("log-cursor", |bytes| {
            if let Ok(cursor) = String::from_utf8_lossy(bytes).parse::<Cursor>() {
                let Piece { text, next, .. } = read(folder.path(), cursor, false).unwrap();
                assert!(text.len() < 1000, "no more than there is");
                assert_eq!(next.to_string().parse(), Ok(next));
                read_bytes(folder.path(), cursor).unwrap();
            }
        });
    }
}
