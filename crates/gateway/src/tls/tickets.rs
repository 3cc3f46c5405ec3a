//! Session tickets (RFC 5077, RFC 8446 section 4.6.1) sealed with keys that come from outside, so that each worker opens what another one
//! sealed, and a new process what an earlier one did.
//!
//! rustls' own tickets have keys of their process. The format is RFC 5077 section 4's: the key's name, a nonce, the sealed state.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio_rustls::rustls::server::ProducesTickets;
use weal_protocol::tls::TicketKey;

const NAME_LEN: usize = 16;

/// Seconds for which a client may keep a ticket. The supervisor keeps a key for at least as long after it sealed its last.
const LIFETIME_S: u32 = 12 * 3600;

#[derive(Debug)]
pub(super) struct Tickets {
    /// The first seals.
    keys: Vec<Sealer>,
    random: SystemRandom,
}

#[derive(Debug)]
struct Sealer {
    name: [u8; NAME_LEN],
    key: LessSafeKey,
}

impl Tickets {
    /// `None` without keys.
    pub fn new(keys: &[TicketKey]) -> Option<Self> {
        let keys: Vec<_> = keys.iter().filter_map(Sealer::new).collect();
        (!keys.is_empty()).then(|| Self { keys, random: SystemRandom::new() })
    }
}

impl Sealer {
    fn new(TicketKey(key): &TicketKey) -> Option<Self> {
        let hash = digest(&SHA256, &[b"weal ticket key name".as_slice(), key].concat());
        let name = hash.as_ref().first_chunk().copied()?;
        Some(Self { name, key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?) })
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_S
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let sealer = self.keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let unique = Nonce::assume_unique_for_key(nonce);
        sealer.key.seal_in_place_append_tag(unique, Aad::from(&sealer.name), &mut sealed).ok()?;
        Some([&sealer.name[..], &nonce, &sealed].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_LEN>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let sealer = self.keys.iter().find(|sealer| sealer.name == *name)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = sealer.key.open_in_place(nonce, Aad::from(&sealer.name), &mut sealed).ok()?;
        Some(plain.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tickets(keys: &[u8]) -> Tickets {
        Tickets::new(&keys.iter().map(|&byte| TicketKey([byte; 32])).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_ticket_opens_wherever_its_key_is_known_and_only_there() {
        let ticket = tickets(&[1]).encrypt(b"state").unwrap();
        assert_eq!(tickets(&[1]).decrypt(&ticket).as_deref(), Some(b"state".as_slice()), "another process");
        assert_eq!(tickets(&[2, 1]).decrypt(&ticket).as_deref(), Some(b"state".as_slice()), "after the next key came");
        assert_eq!(tickets(&[2]).decrypt(&ticket), None);
    }

    #[test]
    fn a_ticket_that_was_touched_or_cut_does_not_open() {
        let tickets = tickets(&[1]);
        let ticket = tickets.encrypt(b"state").unwrap();
        for at in 0..ticket.len() {
            let mut touched = ticket.clone();
            touched[at] ^= 1;
            assert_eq!(tickets.decrypt(&touched), None, "byte {at}");
            assert_eq!(tickets.decrypt(&ticket[..at]), None, "{at} bytes");
        }
    }

    #[test]
    fn there_is_no_ticket_without_a_key() {
        assert!(Tickets::new(&[]).is_none());
    }
}
