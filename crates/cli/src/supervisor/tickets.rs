//! The secrets that seal TLS session tickets: kept by the supervisor alone, so that they outlive every gateway.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use weal_protocol::tls::TicketKey;

/// How long a key seals. It opens for as long again, which is how long clients may keep tickets: what a key sealed cannot be
/// read any more a day later, whoever gets hold of the file.
const SEALS_S: u64 = 12 * 3600;

/// The keys, newest first.
pub struct TicketKeys {
    file: PathBuf,
    keys: Vec<Dated>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Dated {
    made_s: u64,
    key: TicketKey,
}

impl TicketKeys {
    /// Those of `folder`. A file that cannot be read is as good as none: clients shake hands anew.
    pub fn open(folder: &Path) -> Self {
        let file = folder.join("tickets.json");
        let read = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Self { file, keys: read.unwrap_or_default() }
    }

    /// Makes a new key when it is time; true when it was.
    ///
    /// # Errors
    /// There is no randomness, or the file cannot be written.
    pub fn rotate(&mut self) -> io::Result<bool> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        // A key from the future was made before the clock was put back.
        let is_fresh = |dated: &Dated| (dated.made_s..dated.made_s + SEALS_S).contains(&now);
        if self.keys.first().is_some_and(is_fresh) {
            return Ok(false);
        }
        let mut key = [0; 32];
        SystemRandom::new().fill(&mut key).map_err(|_| io::Error::other("the system gives no random numbers"))?;
        self.keys.insert(0, Dated { made_s: now, key: TicketKey(key) });
        self.keys.retain(|dated| (dated.made_s..dated.made_s + 2 * SEALS_S).contains(&now));
        weal_host::files::replace(&self.file, &serde_json::to_vec(&self.keys)?)?;
        Ok(true)
    }

    /// The keys, newest first.
    pub fn keys(&self) -> Vec<TicketKey> {
        self.keys.iter().map(|dated| dated.key.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_outlive_a_process_and_make_place_for_newer_ones() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = TicketKeys::open(folder.path());
        assert!(first.rotate().unwrap() && !first.rotate().unwrap());
        let mut second = TicketKeys::open(folder.path());
        assert!(!second.rotate().unwrap() && second.keys() == first.keys());
        second.keys[0].made_s -= SEALS_S + 1;
        assert!(second.rotate().unwrap());
        assert_eq!((second.keys().len(), &second.keys()[1]), (2, &first.keys()[0]), "the old one still opens");
        second.keys.iter_mut().for_each(|dated| dated.made_s -= 2 * SEALS_S);
        assert!(second.rotate().unwrap());
        assert_eq!(second.keys().len(), 1);
    }
}
