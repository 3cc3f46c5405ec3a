//! Where requests begin and end in what a client sends, read a second time beside hyper.
//!
//! hyper hides two things that decide whether two readers of the same bytes agree: a `Content-Length` that stood beside a
//! `Transfer-Encoding`, and what surrounds the data of chunks. [`Framing`] follows the bytes from the first to the last, so that it knows the
//! head of each request, whatever stands before it. It keeps no bytes but of a line that is not complete yet.
//!
//! Where the two readers could differ, the request is refused: [`Framing::requests`] counts the heads of which this reader is sure.

/// What becomes of a line that is longer than any head may be: the rest of it is not kept.
const LONGEST_LINE: usize = 64 << 10;

/// The reader of one connection.
#[derive(Debug, Default)]
pub(crate) struct Framing {
    state: State,
    /// The start of a line of a head whose end has not come.
    line: Vec<u8>,
    head: Head,
    /// Heads read to their ends, of which the framing is unambiguous.
    requests: u64,
}

/// Where the reader is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Before a request line.
    #[default]
    Start,
    /// After a request line.
    Fields,
    /// In a body of which so many bytes are to come.
    Length(u64),
    Chunk(Chunk),
    /// After a head that is refused: what follows cannot be told apart.
    Lost,
}

/// Where the reader is in a chunked body (RFC 9112 section 7.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chunk {
    /// In `chunk-size`, of which so many digits have come.
    Size {
        size: u64,
        digits: u8,
    },
    /// In `chunk-ext`: after a semicolon.
    Extension {
        size: u64,
        step: Extension,
    },
    /// After the CR that ends the line of the size.
    SizeEnd {
        size: u64,
    },
    Data {
        left: u64,
    },
    /// After the data: their CR, then their LF.
    DataCr,
    DataLf,
    /// In the trailers, at the start of a line, within one, or after the CR of one.
    TrailerStart,
    Trailer,
    TrailerEnd,
    /// After the CR of the line that ends the body.
    End,
}

/// Where the reader is in `chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extension {
    /// Only blanks since the size or the last extension.
    Before,
    /// After a semicolon: a name must come.
    Semicolon,
    Name,
    /// Blanks after a name.
    NameEnd,
    /// After an equals sign: a value must come.
    Equals,
    Value,
    Quoted,
    /// After a backslash in quotes.
    Escaped,
}

/// What one head says about its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Head {
    lengths: u32,
    codings: u32,
    /// The last `Content-Length`.
    length: u64,
    /// True when some field about the body's length is not what it has to be.
    is_bad: bool,
}

/// A chunked body that breaks the grammar of RFC 9112 section 7.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the chunks of the body are malformed")]
pub(crate) struct BadChunk {
    /// Bytes read before it, of those that were given.
    pub at: usize,
}

impl Framing {
    /// Reads on.
    ///
    /// # Errors
    /// At the first byte of a chunked body that breaks its grammar. What follows is not read any more.
    pub fn read(&mut self, given: &[u8]) -> Result<(), BadChunk> {
        let mut bytes = given;
        while !bytes.is_empty() {
            match self.state {
                State::Start | State::Fields => bytes = self.read_line(bytes),
                State::Length(left) => {
                    let left = skip(&mut bytes, left);
                    self.state = if left == 0 { State::Start } else { State::Length(left) };
                }
                State::Chunk(Chunk::Data { left }) => {
                    let left = skip(&mut bytes, left);
                    self.state = State::Chunk(if left == 0 { Chunk::DataCr } else { Chunk::Data { left } });
                }
                State::Chunk(chunk) => {
                    let Some(next) = chunk.step(bytes[0]) else {
                        self.state = State::Lost;
                        return Err(BadChunk { at: given.len() - bytes.len() });
                    };
                    self.state = next;
                    bytes = &bytes[1..];
                }
                State::Lost => return Ok(()),
            }
        }
        Ok(())
    }

    /// Heads read to their ends so far that say unambiguously where their bodies end.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// True when some of a head has come, but not its end.
    pub fn is_within_head(&self) -> bool {
        self.state == State::Fields || (self.state == State::Start && !self.line.is_empty())
    }

    /// True when the end of a head has come, but not that of the body behind it.
    pub fn is_within_body(&self) -> bool {
        matches!(self.state, State::Length(_) | State::Chunk(_))
    }

    /// True when a request has come to its end, or the next one has not begun.
    pub fn is_between_requests(&self) -> bool {
        self.state == State::Start && self.line.is_empty()
    }

    /// Takes one line, or the start of it; returns what follows.
    fn read_line<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let Some(end) = memchr::memchr(b'\n', bytes) else {
            let room = LONGEST_LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
            return &[];
        };
        let (line, rest) = (&bytes[..end], &bytes[end + 1..]);
        if self.line.is_empty() {
            self.note_line(line);
        } else {
            let mut whole = std::mem::take(&mut self.line);
            whole.extend_from_slice(line);
            self.note_line(&whole);
            whole.clear();
            self.line = whole;
        }
        rest
    }

    fn note_line(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match (self.state, line.is_empty()) {
            // RFC 9112 section 2.2: empty lines before a request line are ignored.
            (State::Start, true) => {}
            (State::Start, false) => {
                self.head = Head::default();
                self.state = State::Fields;
            }
            (_, false) => self.head.note_field(line),
            (_, true) => {
                let body = self.head.body();
                self.requests += u64::from(body.is_some());
                self.state = body.unwrap_or(State::Lost);
            }
        }
    }
}

impl Head {
    fn note_field(&mut self, line: &[u8]) {
        const LENGTH: &[u8] = b"content-length";
        const CODING: &[u8] = b"transfer-encoding";
        // Nearly every field begins with another letter.
        match line[0] {
            b'c' | b'C' if is_named(line, LENGTH) => self.note_length(&line[LENGTH.len()..]),
            b't' | b'T' if is_named(line, CODING) => self.note_coding(&line[CODING.len()..]),
            // obs-fold: it continues a field that may be one of those above (RFC 9112 section 5.2).
            b' ' | b'\t' => self.is_bad = true,
            _ => {}
        }
    }

    /// RFC 9112 section 6.3, item 5: a length that is not one number, and lengths that differ, are errors.
    fn note_length(&mut self, rest: &[u8]) {
        let digits = value(rest);
        let length = digits.filter(|digits| !digits.is_empty()).and_then(|digits| {
            digits.iter().try_fold(0_u64, |length, byte| {
                let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
                length.checked_mul(10)?.checked_add(digit)
            })
        });
        let length = length.filter(|length| self.lengths == 0 || *length == self.length);
        self.is_bad |= length.is_none();
        self.length = length.unwrap_or(0);
        self.lengths += 1;
    }

    /// Only `chunked`, once, is understood: codings that are not would be lost on the way (RFC 9112 section 6.1).
    fn note_coding(&mut self, rest: &[u8]) {
        self.is_bad |= !value(rest).is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"));
        self.codings += 1;
    }

    /// Where the body ends; `None` when two readers could differ about that. RFC 9112 section 6.3, item 3: a request with both fields
    /// ought to be handled as an error.
    fn body(self) -> Option<State> {
        match (self.codings, self.lengths) {
            _ if self.is_bad => None,
            (0, 0) => Some(State::Start),
            (0, _) if self.length == 0 => Some(State::Start),
            (0, _) => Some(State::Length(self.length)),
            (1, 0) => Some(State::Chunk(Chunk::Size { size: 0, digits: 0 })),
            _ => None,
        }
    }
}

/// Passes over `count` bytes, or as many as there are; returns how many are still to come.
fn skip(bytes: &mut &[u8], count: u64) -> u64 {
    let taken = bytes.len().min(usize::try_from(count).unwrap_or(usize::MAX));
    *bytes = &bytes[taken..];
    count - taken as u64
}

fn is_named(line: &[u8], name: &[u8]) -> bool {
    line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
        && matches!(line.get(name.len()), None | Some(b':' | b' ' | b'\t'))
}

/// The value in what follows a name, without the blanks around it; `None` when the colon does not follow at once.
fn value(rest: &[u8]) -> Option<&[u8]> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let value = rest.strip_prefix(b":")?;
    let start = value.iter().position(|byte| !is_blank(byte)).unwrap_or(value.len());
    let end = value.iter().rposition(|byte| !is_blank(byte)).map_or(start, |last| last + 1);
    Some(&value[start..end])
}

impl Chunk {
    /// One byte further; `None` when no body has this byte here.
    fn step(self, byte: u8) -> Option<State> {
        let next = match (self, byte) {
            (Self::Size { size, digits }, _) => Self::step_size(size, digits, byte)?,
            (Self::Extension { size, step }, _) => Self::step_extension(size, step, byte)?,
            (Self::SizeEnd { size: 0 }, b'\n') => Self::TrailerStart,
            (Self::SizeEnd { size }, b'\n') => Self::Data { left: size },
            (Self::DataCr, b'\r') => Self::DataLf,
            (Self::DataLf, b'\n') => Self::Size { size: 0, digits: 0 },
            (Self::TrailerStart, b'\r') => Self::End,
            // An empty name, and obs-fold.
            (Self::TrailerStart, b':' | b' ' | b'\t' | b'\n') => return None,
            (Self::TrailerStart, _) => Self::Trailer,
            (Self::Trailer, b'\r') => Self::TrailerEnd,
            // A line of which one reader sees the end and another does not.
            (Self::Trailer, b'\n' | 0) => return None,
            (Self::Trailer, _) => Self::Trailer,
            (Self::TrailerEnd, b'\n') => Self::TrailerStart,
            (Self::End, b'\n') => return Some(State::Start),
            _ => return None,
        };
        Some(State::Chunk(next))
    }

    fn step_size(size: u64, digits: u8, byte: u8) -> Option<Self> {
        match byte {
            b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => {
                let digit = char::from(byte).to_digit(16).map_or(0, u64::from);
                let size = size.checked_mul(16)?.checked_add(digit)?;
                Some(Self::Size { size, digits: digits.saturating_add(1) })
            }
            _ if digits == 0 => None,
            b'\r' => Some(Self::SizeEnd { size }),
            _ => Self::step_extension(size, Extension::Before, byte),
        }
    }

    fn step_extension(size: u64, step: Extension, byte: u8) -> Option<Self> {
        use Extension::{Before, Equals, Escaped, Name, NameEnd, Quoted, Semicolon, Value};
        let is_blank = matches!(byte, b' ' | b'\t');
        let step = match (step, byte) {
            // Blanks are allowed only before something: `4 ` without an extension is not.
            (Name | Value, b'\r') => return Some(Self::SizeEnd { size }),
            (Quoted, b'"') => Value,
            (Quoted, b'\\') => Escaped,
            (Quoted | Escaped, b'\t' | b' '..=b'~' | 0x80..) => Quoted,
            (Before | Name | NameEnd | Value, b';') => Semicolon,
            (Name | NameEnd, b'=') => Equals,
            (Equals, b'"') => Quoted,
            (Before | Semicolon | Equals | NameEnd, _) if is_blank => step,
            (Name, _) if is_blank => NameEnd,
            (Value, _) if is_blank => Before,
            (Semicolon | Name, _) if is_token(byte) => Name,
            (Equals | Value, _) if is_token(byte) => Value,
            _ => return None,
        };
        Some(Self::Extension { size, step })
    }
}

/// True for a character of a token (RFC 9110 section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Mutex;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Empty};
    use hyper::body::Incoming;
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper_util::rt::TokioIo;

    use super::*;

    /// Reads `message` whole and byte by byte.
    fn read(message: &[u8]) -> (bool, Framing) {
        let mut whole = Framing::default();
        let at = whole.read(message).err().map(|bad| bad.at);
        let mut bytewise = Framing::default();
        let at_byte = message.iter().position(|byte| bytewise.read(&[*byte]).is_err());
        assert_eq!(
            (at_byte, bytewise.requests, bytewise.state),
            (at, whole.requests, whole.state),
            "byte by byte it is the same"
        );
        (at.is_none(), whole)
    }

    #[test]
    fn each_request_of_a_connection_is_counted_whatever_stands_before_it() {
        let message =
            b"\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\nPOST / HTTP/1.1\r\ncontent-LENGTH: 5\r\n\r\nhelloPOST / HTTP/1.1\r\n\
            Transfer-Encoding:chunked\r\n\r\n3\r\nabc\r\n2;a=\"b;\\\"\"\r\nde\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.0\n\n";
        let (is_good, framing) = read(message);
        assert_eq!((is_good, framing.requests(), framing.is_between_requests()), (true, 4, true));
        let (_, framing) = read(&message[..message.len() - 1]);
        assert_eq!((framing.requests(), framing.is_within_head()), (3, true));
    }

    #[test]
    fn a_head_that_can_be_read_in_two_ways_is_never_counted_nor_what_follows_it() {
        for fields in [
            "Content-Length: 4\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 4",
            "Content-Length: 4\r\nContent-Length: 5",
            "Content-Length: 4, 4",
            "Content-Length:",
            "Content-Length: +4",
            "Content-Length: 18446744073709551616",
            "Content-Length : 4",
            "Transfer-Encoding: xchunked",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            "X: y\r\n Content-Length: 4",
        ] {
            let message = format!("POST / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\n{fields}\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n");
            let (is_good, framing) = read(message.as_bytes());
            assert_eq!((is_good, framing.requests(), framing.is_between_requests()), (true, 1, false), "{fields}");
        }
        assert_eq!(read(b"POST / HTTP/1.1\r\nContent-Length: 4\r\ncontent-length: 4\r\n\r\nabcd").1.requests(), 1);
    }

    #[test]
    fn chunks_that_break_the_grammar_are_errors() {
        for body in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            "0x1\r\n",
            " 1\r\n",
            "1 \r\na",
            "1\t\r\na",
            "1\na",
            "1\r\r\na",
            "1\r\nab",
            "1\r\na\n",
            "1\r\na\r\r",
            "1;\r\na",
            "1;=\r\n",
            "1;a=\r\n",
            "1;a b\r\n",
            "1;a=\"b\r\n",
            "1;a\nb\r\n",
            "1;a=b c\r\n",
            "0\r\nX: y\n\r\n",
            "0\r\n: y\r\n\r\n",
            "0\r\n X\r\n",
            "0\r\n\r ",
            "10000000000000000\r\n",
            "0\n\n",
        ] {
            let message = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            assert!(!read(message.as_bytes()).0, "{body:?}");
        }
        for body in
            ["1;a\r\na\r\n0\r\n\r\n", "1 ; a = b ;c\r\na\r\n000\r\n\r\n", "A\r\n0123456789\r\n0;x=\"\"\r\nA: b\r\nC:\r\n\r\n"]
        {
            let message = format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            let (is_good, framing) = read(message.as_bytes());
            assert!(is_good && framing.is_between_requests(), "{body:?}");
        }
    }

    /// Requests counted, and the byte at which chunks were malformed, when the bytes come in parts of `length`.
    fn read_in_parts(bytes: &[u8], length: usize) -> (u64, Option<usize>) {
        let mut framing = Framing::default();
        for (index, part) in bytes.chunks(length).enumerate() {
            if let Err(bad) = framing.read(part) {
                return (framing.requests(), Some(index * length + bad.at));
            }
        }
        (framing.requests(), None)
    }

    /// What this reader takes for the body of each request that it counts, and how many of the bytes it reads.
    fn bodies(bytes: &[u8]) -> (Vec<Vec<u8>>, usize, Framing) {
        let (mut framing, mut bodies) = (Framing::default(), Vec::<Vec<u8>>::new());
        for (at, byte) in bytes.iter().enumerate() {
            let is_data = matches!(framing.state, State::Length(_) | State::Chunk(Chunk::Data { .. }));
            if framing.read(&[*byte]).is_err() {
                return (bodies, at, framing);
            }
            bodies.resize_with(usize::try_from(framing.requests).unwrap(), Vec::new);
            if let Some(body) = bodies.last_mut().filter(|_| is_data) {
                body.push(*byte);
            }
        }
        (bodies, bytes.len(), framing)
    }

    /// What hyper takes for the body of each request.
    async fn bodies_of_hyper(bytes: &[u8]) -> Vec<Vec<u8>> {
        let bodies = Mutex::new(Vec::<Vec<u8>>::new());
        let noted = &bodies;
        let service = service_fn(move |request: Request<Incoming>| {
            noted.lock().unwrap().push(Vec::new());
            async move {
                let mut body = request.into_body();
                while let Some(Ok(frame)) = body.frame().await {
                    noted.lock().unwrap().last_mut().unwrap().extend(frame.data_ref().into_iter().flatten());
                }
                Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
            }
        });
        let stream = TokioIo::new(tokio::io::join(bytes, tokio::io::sink()));
        // It may end with an error: what counts is what it has read before.
        let _ = http1::Builder::new().half_close(true).header_read_timeout(None).serve_connection(stream, service).await;
        bodies.into_inner().unwrap()
    }

    #[test]
    fn fuzz_framing() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        weal_fuzz::target("framing", |bytes| {
            let whole = read_in_parts(bytes, bytes.len().max(1));
            for length in [1, 2, 7] {
                assert_eq!(read_in_parts(bytes, length), whole, "in parts of {length}");
            }
            // hyper gets no byte after one at which this reader stops, and a request that is not counted here is refused.
            let (ours, end, framing) = bodies(bytes);
            let theirs = runtime.block_on(bodies_of_hyper(&bytes[..end]));
            assert!(theirs.len() <= ours.len() || framing.state == State::Lost, "{theirs:?} of hyper, here {ours:?}");
            for (index, (theirs_one, ours_one)) in theirs.iter().zip(&ours).enumerate() {
                let is_whole = index + 1 < theirs.len();
                assert!(ours_one.starts_with(theirs_one), "request {index}: {theirs:?} of hyper, here {ours:?}");
                assert!(!is_whole || ours_one == theirs_one, "request {index}: {theirs:?} of hyper, here {ours:?}");
            }
        });
    }
}
