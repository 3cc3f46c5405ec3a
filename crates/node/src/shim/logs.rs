//! What an instance wrote: raw lines in numbered files, bounded in number and size.
//!
//! The files are `NUMBER.log`; output goes to the one with the highest number until it is full, then to the next. Nothing
//! is ever renamed, so a place in the log is a number and an offset, and stays what it is.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::files::at;

/// A file is full at this size. Smaller ones lose little at once when the oldest is dropped, but are many.
pub const FILE_LIMIT: u64 = 10 << 20;
/// So many files are kept: 50 MiB per instance at most.
pub const FILES_KEPT: usize = 5;
/// The most that is read in one piece.
pub const CHUNK_LIMIT: u64 = 1 << 20;
/// How far back the last lines are searched for: lines longer than this on average are cut.
const TAIL_LIMIT: u64 = 4 << 20;

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
}

impl Writer {
    /// Continues the newest file in `folder`.
    pub fn open(folder: &Path) -> io::Result<Self> {
        Self::with_limit(folder, FILE_LIMIT)
    }

    fn with_limit(folder: &Path, file_limit: u64) -> io::Result<Self> {
        fs::create_dir_all(folder).map_err(at(folder))?;
        let number = numbers(folder).last().copied().unwrap_or(1);
        let mut writer = Self { folder: folder.to_owned(), number, length: 0, file: None, file_limit, dropped: 0, note: None };
        writer.reopen();
        Ok(writer)
    }

    fn reopen(&mut self) {
        let path = path(&self.folder, self.number);
        self.file = fs::OpenOptions::new().append(true).create(true).mode(0o640).open(path).ok();
        self.length = self.file.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len());
    }

    /// Puts a line of ours after the line that is being written.
    pub fn note_at_line_end(&mut self, note: &'static str) {
        self.note = Some(note);
    }

    /// Appends `bytes`, and the line of ours that waits, once one has ended.
    pub fn append(&mut self, bytes: &[u8]) {
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
        let Some((end, note)) = end.and_then(|end| Some((end, self.note.take()?))) else { return self.fill(bytes) };
        self.fill(&bytes[..end]);
        self.fill(note.as_bytes());
        self.fill(&bytes[end..]);
    }

    /// Appends `bytes`. What finds no place (the disk is full) is dropped and counted: an instance never waits for its log.
    fn fill(&mut self, mut bytes: &[u8]) {
        while self.length + bytes.len() as u64 > self.file_limit {
            // Up to the last line that fits; a line that would have to be cut goes to the next file, if that helps.
            let room = usize::try_from(self.file_limit.saturating_sub(self.length)).unwrap_or(usize::MAX).min(bytes.len());
            let lines = bytes[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let cut = if lines == 0 && self.length == 0 { room } else { lines };
            self.write(&bytes[..cut]);
            bytes = &bytes[cut..];
            self.next_file();
        }
        self.write(bytes);
    }

    fn write(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.file.is_none() {
            self.reopen();
        }
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
            Ok(()) => self.length += bytes.len() as u64,
            Err(_) => {
                self.dropped += bytes.len() as u64;
                self.length = file.metadata().map_or(self.length, |metadata| metadata.len());
            }
        }
    }

    fn next_file(&mut self) {
        self.number += 1;
        self.reopen();
        let numbers = numbers(&self.folder);
        for old in &numbers[..numbers.len().saturating_sub(FILES_KEPT)] {
            let _ = fs::remove_file(path(&self.folder, *old));
        }
    }
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

/// A place in a log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    number: u64,
    offset: u64,
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.number, self.offset)
    }
}

/// A text that is no place in a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a place in a log: pass the `next` of an earlier chunk")]
pub struct BadCursor {
    /// The text.
    text: String,
}

impl FromStr for Cursor {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let parsed = text
            .split_once(':')
            .and_then(|(number, offset)| Some(Self { number: number.parse().ok()?, offset: offset.parse().ok()? }));
        parsed.ok_or_else(|| BadCursor { text: text.to_owned() })
    }
}

/// Where the last `lines` whole lines begin.
pub fn tail(folder: &Path, lines: u32) -> io::Result<Cursor> {
    let mut wanted = lines as usize;
    let mut budget = TAIL_LIMIT;
    let mut cursor = Cursor { number: numbers(folder).last().copied().unwrap_or(1), offset: 0 };
    for number in numbers(folder).into_iter().rev() {
        let mut file = File::open(path(folder, number))?;
        let length = file.metadata()?.len();
        let start = length.saturating_sub(budget);
        file.seek(SeekFrom::Start(start))?;
        let mut text = Vec::new();
        file.take(length - start).read_to_end(&mut text)?;
        // A line begins after each newline but the last, and at the beginning of the file.
        let mut begins: Vec<usize> = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).collect();
        let end = if begins.last() == Some(&text.len()) { begins.pop().unwrap_or(0) } else { text.len() };
        if start == 0 && !text.is_empty() {
            begins.insert(0, 0);
        }
        if wanted <= begins.len() {
            let begin = if wanted == 0 { end } else { begins[begins.len() - wanted] };
            return Ok(Cursor { number, offset: start + begin as u64 });
        }
        wanted -= begins.len();
        cursor = Cursor { number, offset: start + begins.first().copied().unwrap_or(0) as u64 };
        budget -= length - start;
        if budget == 0 {
            break;
        }
    }
    Ok(cursor)
}

/// Whole lines from `cursor` on, at most [`CHUNK_LIMIT`] bytes, and where they end. The text is empty at the end of the log.
pub fn read(folder: &Path, cursor: Cursor) -> io::Result<(String, Cursor)> {
    let numbers = numbers(folder);
    let Some(&newest) = numbers.last() else { return Ok((String::new(), cursor)) };
    let mut cursor = cursor;
    let mut text = String::new();
    if cursor.number < numbers[0] {
        text.push_str("[weal: older lines were dropped to bound the log]\n");
        cursor = Cursor { number: numbers[0], offset: 0 };
    }
    loop {
        let bytes = read_from(&path(folder, cursor.number), cursor.offset)?;
        let is_newest = cursor.number >= newest;
        // The last line of a file that still grows may be a part of one; that of a full file is all there will be.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let is_cut = bytes.len() as u64 == CHUNK_LIMIT;
        let end = if is_newest && !(is_cut && whole == 0) || is_cut && whole > 0 { whole } else { bytes.len() };
        text.push_str(&String::from_utf8_lossy(&bytes[..end]));
        cursor.offset += end as u64;
        if end > 0 || is_newest {
            return Ok((text, cursor));
        }
        cursor = Cursor { number: cursor.number + 1, offset: 0 };
    }
}

/// The most of a log that is read as bytes in one piece.
const BYTES_LIMIT: usize = 256 << 10;

/// The bytes from `cursor` on as they are, at most 256 KiB, and where they end. None at the end of the log.
pub fn read_bytes(folder: &Path, cursor: Cursor) -> io::Result<(Vec<u8>, Cursor)> {
    let numbers = numbers(folder);
    let (Some(&oldest), Some(&newest)) = (numbers.first(), numbers.last()) else { return Ok((Vec::new(), cursor)) };
    // A log begins with its first file: only one behind it has lost something.
    let has_lost = cursor.number.max(1) < oldest;
    let mut cursor = if cursor.number < oldest { Cursor { number: oldest, offset: 0 } } else { cursor };
    if has_lost {
        return Ok((b"[weal: what came before was dropped to bound the log]\n".to_vec(), cursor));
    }
    loop {
        let mut bytes = read_from(&path(folder, cursor.number), cursor.offset)?;
        bytes.truncate(BYTES_LIMIT);
        cursor.offset += bytes.len() as u64;
        if !bytes.is_empty() || cursor.number >= newest {
            return Ok((bytes, cursor));
        }
        cursor = Cursor { number: cursor.number + 1, offset: 0 };
    }
}

fn read_from(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = match File::open(path) {
        // Dropped a moment ago; the next call starts at the oldest there is.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(bytes),
        other => other?,
    };
    file.seek(SeekFrom::Start(offset))?;
    file.take(CHUNK_LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
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

    fn all(folder: &Path, mut cursor: Cursor) -> String {
        let mut text = String::new();
        loop {
            let (piece, next) = read(folder, cursor).unwrap();
            if piece.is_empty() && next == cursor {
                return text;
            }
            text.push_str(&piece);
            cursor = next;
        }
    }

    const START: Cursor = Cursor { number: 1, offset: 0 };

    #[test]
    fn a_line_of_the_agent_is_one_line_commands_no_terminal_and_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        note(folder.path(), "nobody began a log");
        assert!(numbers(folder.path()).is_empty());
        let mut writer = Writer::open(folder.path()).unwrap();
        writer.append(b"a line\n");
        note(folder.path(), &format!("it wrote: \u{1b}[2Jno\ntable{}", "x".repeat(9000)));
        writer.append(b"another\n");
        let (text, _) = read(folder.path(), Cursor { number: 1, offset: 0 }).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0], lines[2]), (3, "a line", "another"), "{text}");
        assert!(lines[1].starts_with(r"[weal: it wrote: \u{1b}[2Jno\ntablexx") && lines[1].len() < 600, "{text}");
    }

    #[test]
    fn lines_come_back_whole_over_several_files() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::with_limit(folder.path(), 20).unwrap();
        for piece in ["first li", "ne\nsecond line\nth", "ird line\n", "unfinished"] {
            writer.append(piece.as_bytes());
        }
        assert!(numbers(folder.path()).len() > 1);
        assert_eq!(all(folder.path(), START), "first line\nsecond line\nthird line\n");
        writer.append(b" no more\n");
        assert!(all(folder.path(), START).ends_with("unfinished no more\n"));
    }

    #[test]
    fn the_log_is_bounded_and_says_that_lines_were_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = Writer::with_limit(folder.path(), 100).unwrap();
        for n in 0..1000 {
            writer.append(format!("line {n}\n").as_bytes());
        }
        // A line that fits no file is cut rather than kept in memory or lost.
        writer.append(&[b'x'; 1000]);
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
            writer.append(format!("line {n:02}\n").as_bytes());
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
    fn fuzz_places_in_logs() {
        let folder = tempfile::tempdir().unwrap();
        Writer::open(folder.path()).unwrap().append(b"one\ntwo\nthree\n");
        weal_fuzz::target("log-cursor", |bytes| {
            if let Ok(cursor) = String::from_utf8_lossy(bytes).parse::<Cursor>() {
                let (text, next) = read(folder.path(), cursor).unwrap();
                assert!(text.len() < 1000, "no more than there is");
                assert_eq!(next.to_string().parse(), Ok(next));
                read_bytes(folder.path(), cursor).unwrap();
            }
        });
    }
}
