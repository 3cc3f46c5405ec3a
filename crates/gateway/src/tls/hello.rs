//! What a ClientHello says that rustls keeps to itself: the ticket of the session that it wants to go on with.
//!
//! RFC 8446 section 4.1.2 and 4.2.11, RFC 5077 section 3.2; records by RFC 8446 section 5.1. Whether the message is well-formed is for rustls
//! to judge: here, whatever does not read as a ticket is none.

/// Bytes read of a connection at most before its ClientHello has ended: four times what post-quantum keys and a long list of protocols take.
pub(crate) const LONGEST: usize = 16 << 10;

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SESSION_TICKET: u16 = 35;
const PRE_SHARED_KEY: u16 = 41;

/// The ticket that a client shows first, of what it has sent so far. `None` when there is none.
pub(crate) fn ticket(sent: &[u8]) -> Option<Vec<u8>> {
    let message = message(sent);
    let mut message = Reader(&message);
    if message.number(1)? != u32::from(CLIENT_HELLO) {
        return None;
    }
    let mut hello = Reader(message.block(3)?);
    // Version and random.
    hello.take(2 + 32)?;
    // The session's id, the cipher suites, the compression methods.
    [1, 2, 1].into_iter().try_for_each(|length_bytes| hello.block(length_bytes).map(drop))?;
    let mut extensions = Reader(hello.block(2)?);
    let mut of_version_12 = None;
    while let Some(kind) = extensions.number(2) {
        let data = extensions.block(2)?;
        match u16::try_from(kind).ok()? {
            PRE_SHARED_KEY => return first_identity(data).map(<[u8]>::to_vec),
            SESSION_TICKET if !data.is_empty() => of_version_12 = Some(data.to_vec()),
            _ => {}
        }
    }
    of_version_12
}

/// The identity of the first key that is offered: rustls takes no other.
fn first_identity(data: &[u8]) -> Option<&[u8]> {
    Reader(Reader(data).block(2)?).block(2)
}

/// The handshake's bytes without the heads of the records that they came in.
fn message(sent: &[u8]) -> Vec<u8> {
    let (mut records, mut message) = (Reader(sent), Vec::new());
    while records.number(1) == Some(u32::from(HANDSHAKE_RECORD)) {
        let Some(part) = records.take(2).and_then(|_| records.block(2)) else { break };
        message.extend_from_slice(part);
    }
    message
}

/// What is left to read. `None` wherever it is too short.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A number of so many bytes, at most four.
    fn number(&mut self, bytes: usize) -> Option<u32> {
        Some(self.take(bytes)?.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)))
    }

    /// What follows a length of so many bytes.
    fn block(&mut self, length_bytes: usize) -> Option<&'a [u8]> {
        let length = self.number(length_bytes)?;
        self.take(usize::try_from(length).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_client_hellos() {
        weal_fuzz::target("client-hello", |bytes| {
            let Some(ticket) = ticket(bytes) else { return };
            assert!(ticket.len() < bytes.len(), "a ticket is a part of what was sent");
        });
    }

    fn block(length_bytes: usize, content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32).to_be_bytes();
        [&length[4 - length_bytes..], content].concat()
    }

    fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &block(2, data)].concat()
    }

    /// A hello with these extensions, in records of at most `most` bytes.
    fn hello(extensions: &[Vec<u8>], most: usize) -> Vec<u8> {
        let fixed = [&[3, 3][..], &[7; 32], &block(1, &[9; 32]), &block(2, &[0x13, 1]), &block(1, &[0])].concat();
        let body = [fixed, block(2, &extensions.concat())].concat();
        let message = [&[CLIENT_HELLO][..], &block(3, &body)].concat();
        message.chunks(most).flat_map(|part| [&[HANDSHAKE_RECORD, 3, 1][..], &block(2, part)].concat()).collect()
    }

    fn shared_key(identity: &[u8]) -> Vec<u8> {
        let offered = [block(2, identity), vec![0; 4]].concat();
        extension(PRE_SHARED_KEY, &[block(2, &offered), block(2, &block(1, &[0; 32]))].concat())
    }

    #[test]
    fn the_ticket_of_either_version_is_found_however_it_is_cut_into_records() {
        let name = extension(0, b"a host's name");
        for most in [16_384, 50, 1] {
            let of_12 = hello(&[name.clone(), extension(SESSION_TICKET, b"twelve")], most);
            assert_eq!(ticket(&of_12).as_deref(), Some(&b"twelve"[..]));
            let of_13 = hello(&[extension(SESSION_TICKET, b"twelve"), name.clone(), shared_key(b"thirteen")], most);
            assert_eq!(ticket(&of_13).as_deref(), Some(&b"thirteen"[..]));
            assert_eq!(ticket(&hello(&[name.clone(), extension(SESSION_TICKET, b"")], most)), None);
        }
    }

    #[test]
    fn what_is_cut_short_or_changed_is_read_within_its_bounds() {
        let whole = hello(&[extension(0, b"name"), shared_key(b"thirteen")], 40);
        for end in 0..whole.len() {
            assert_eq!(ticket(&whole[..end]), None, "{end} bytes");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                assert!(ticket(&changed).is_none_or(|ticket| ticket.len() <= whole.len()));
            }
        }
    }
}
