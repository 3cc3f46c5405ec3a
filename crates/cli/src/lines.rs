//! Lines of bytes that come in pieces.

/// What of a stream is no whole line yet.
#[derive(Debug, Default)]
pub struct LineBuffer {
    pending: Vec<u8>,
}

impl LineBuffer {
    /// Hands every line that `piece` completes to `each`, without its end.
    pub fn take(&mut self, piece: &[u8], mut each: impl FnMut(&[u8])) {
        self.pending.extend_from_slice(piece);
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            each(&line[..end]);
        }
    }

    /// What is left when nothing more comes; `None` when the last line has ended.
    pub fn rest(&mut self) -> Option<Vec<u8>> {
        (!self.pending.is_empty()).then(|| std::mem::take(&mut self.pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_whatever_the_pieces_are() {
        let (mut buffer, mut lines) = (LineBuffer::default(), Vec::new());
        for piece in ["a", "b\nc", "\n\nd"] {
            buffer.take(piece.as_bytes(), |line| lines.push(String::from_utf8(line.to_vec()).unwrap()));
        }
        assert_eq!(lines, ["ab", "c", ""]);
        assert_eq!((buffer.rest(), buffer.rest()), (Some(b"d".to_vec()), None));
    }
}
