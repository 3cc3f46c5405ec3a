//! Reading what an instance wrote: by places in it, by lines from its end, by time.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::str::FromStr;

use weal_model::Time;
use weal_protocol::node::LineTime;

use super::stamps::Stamps;
use super::{ends_line, numbers, path};

/// The most that is read in one piece.
const CHUNK_LIMIT: u64 = 1 << 20;
/// How far back the last lines are searched for: lines longer than this on average are cut.
const TAIL_LIMIT: u64 = 4 << 20;

/// A place in a log.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub(super) number: u64,
    pub(super) offset: u64,
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

/// The first and the last bytes of what is kept, at most `most` of each; `None` without any.
pub fn ends(folder: &Path, most: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    let numbers = numbers(folder);
    let read = |number: u64, from_end: bool| -> Option<Vec<u8>> {
        let mut file = File::open(path(folder, number)).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(if from_end { length.saturating_sub(most) } else { 0 })).ok()?;
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    Some((read(*numbers.first()?, false)?, read(*numbers.last()?, true)?))
}

/// Whether the last line has no end yet.
pub fn is_open(folder: &Path) -> bool {
    let newest = numbers(folder).last().and_then(|number| File::open(path(folder, *number)).ok());
    let length = newest.as_ref().and_then(|file| file.metadata().ok()).map_or(0, |metadata| metadata.len());
    length > 0 && newest.is_some_and(|file| !ends_line(&file, length))
}

/// Where the first line begins that came at `time` or later; the end of the log when none did.
pub fn begin_since(folder: &Path, time: Time) -> Cursor {
    let numbers = numbers(folder);
    let first = |number: &u64| Stamps::open(folder, *number)?.first_since(time).map(|offset| Cursor { number: *number, offset });
    let end = || {
        let number = numbers.last().copied().unwrap_or(1);
        Cursor { number, offset: path(folder, number).metadata().map_or(0, |metadata| metadata.len()) }
    };
    numbers.iter().find_map(first).unwrap_or_else(end)
}

/// Lines that stand next to each other in a log.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Whole lines; bytes that are not UTF-8 are replaced.
    pub text: String,
    /// When they came: from one line to the next entry. A line before the first entry has no known time.
    pub times: Vec<LineTime>,
    /// Where to continue.
    pub next: Cursor,
}

/// Whole lines from `cursor` on, at most [`CHUNK_LIMIT`] bytes. The text is empty at the end of the log. When the log `is_over`, its last
/// line is whole as it is.
pub fn read(folder: &Path, cursor: Cursor, is_over: bool) -> io::Result<Piece> {
    let numbers = numbers(folder);
    let Some(&newest) = numbers.last() else { return Ok(Piece { next: cursor, ..Piece::default() }) };
    let mut piece = Piece { next: cursor, ..Piece::default() };
    if cursor.number < numbers[0] {
        piece.text.push_str("[weal: older lines were dropped to bound the log]\n");
        piece.next = Cursor { number: numbers[0], offset: 0 };
    }
    loop {
        let begin = piece.next;
        let bytes = read_from(&path(folder, begin.number), begin.offset)?;
        let is_newest = begin.number >= newest;
        let end = whole_lines(&bytes, is_newest && !is_over);
        if end > 0 {
            add_times(&mut piece, folder, &bytes[..end]);
            piece.text.push_str(&String::from_utf8_lossy(&bytes[..end]));
            piece.next.offset += end as u64;
        }
        if end > 0 || is_newest {
            if is_over && is_newest {
                end_last_line(&mut piece.text);
            }
            return Ok(piece);
        }
        piece.next = Cursor { number: begin.number + 1, offset: 0 };
    }
}

/// How many of `bytes` are whole lines. The last line of a file that still grows may be a part of one; that of a full file is all there will be.
fn whole_lines(bytes: &[u8], grows: bool) -> usize {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let is_cut = bytes.len() as u64 == CHUNK_LIMIT;
    if (grows && !(is_cut && whole == 0)) || (is_cut && whole > 0) { whole } else { bytes.len() }
}

/// A line that was never ended ends here for who reads lines.
fn end_last_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

/// Adds the times of the lines in `bytes`, which stand at `piece.next` and come after the text that the piece has already.
fn add_times(piece: &mut Piece, folder: &Path, bytes: &[u8]) {
    let Some(stamps) = Stamps::open(folder, piece.next.number) else { return };
    let begin = piece.next.offset;
    let mut line = count_lines(piece.text.as_bytes());
    let mut counted = 0;
    for stamp in stamps.within(begin, begin + bytes.len() as u64) {
        let at = usize::try_from(stamp.offset.saturating_sub(begin)).unwrap_or(bytes.len()).min(bytes.len());
        if at > counted {
            line += count_lines(&bytes[counted..at]);
            counted = at;
        }
        match piece.times.last_mut() {
            Some(last) if last.line == line => last.time = stamp.time,
            _ => piece.times.push(LineTime { line, time: stamp.time }),
        }
    }
}

fn count_lines(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.iter().filter(|byte| **byte == b'\n').count()).unwrap_or(u32::MAX)
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
    // A place behind the end is no error, however far: a client names it, or a file of times that was damaged.
    if offset >= file.metadata()?.len() {
        return Ok(bytes);
    }
    file.seek(SeekFrom::Start(offset))?;
    file.take(CHUNK_LIMIT).read_to_end(&mut bytes)?;
    Ok(bytes)
}
