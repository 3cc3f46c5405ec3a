//! Secrets that prove rights over TCP: the operator's, in a file that the command line names, and others by name, of which only hashes are
//! kept.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use weal_host::files;
use weal_model::{JobQuota, Time};
use weal_protocol::controller::{TokenMade, TokenOrder, TokenRights, TokenView};

/// Tokens besides the operator's.
const MOST: usize = 64;
/// Characters of a name.
const LONGEST_NAME: usize = 32;
/// Characters of a secret: 256 bits in hex.
const SECRET_LENGTH: usize = 64;

/// The name of the token that `weal up` makes. It alone may make and revoke others over TCP.
pub(crate) const OPERATOR: &str = "operator";

/// Why an order about a token is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TokenError {
    #[error("`{0}` cannot be a token's name: use 1 to {LONGEST_NAME} lower-case letters, digits and hyphens")]
    Name(String),
    #[error("there is a token `{0}`: revoke it first, or rotate it")]
    Taken(String),
    #[error("there is no token `{0}`")]
    Unknown(String),
    #[error("the operator's token cannot be revoked: rotate it")]
    Operator,
    #[error("there are {MOST} tokens: revoke one first")]
    Many,
    #[error(transparent)]
    File(#[from] FileError),
}

/// A file of tokens that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = .path.display())]
pub(crate) struct FileError {
    pub path: PathBuf,
    pub source: io::Error,
}

/// Whose secret it was that a caller showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub name: String,
    pub rights: TokenRights,
}

/// All tokens of a pool.
#[derive(Debug)]
pub(crate) struct Tokens {
    folder: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    operator: Kept,
    others: Vec<Kept>,
}

/// What is kept of a token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Kept {
    name: String,
    rights: TokenRights,
    /// SHA-256 of the secret, in hex. A secret is random in all of its 256 bits, so that nothing slower is needed.
    hash: String,
    made: Time,
    ends: Option<Time>,
    #[serde(default)]
    quota: JobQuota,
}

impl Kept {
    fn view(&self) -> TokenView {
        TokenView { name: self.name.clone(), rights: self.rights, made: self.made, ends: self.ends, quota: self.quota }
    }
}

impl Tokens {
    /// Reads the tokens in `folder`, or makes the operator's, in a file that only its owner can read.
    pub fn load_or_create(folder: &Path, now: Time) -> Result<Self, FileError> {
        let path = folder.join("token");
        let (secret, made) = match fs::read_to_string(&path) {
            Ok(text) if text.trim().len() == SECRET_LENGTH => (text.trim().to_owned(), modified(&path).unwrap_or(now)),
            Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(FileError { path, source }),
            // Missing, or cut short by a full disk when it was made.
            _ => {
                let secret = new_secret();
                write(&path, &format!("{secret}\n"))?;
                (secret, now)
            }
        };
        let (rights, quota) = (TokenRights::Order, JobQuota::default());
        let operator = Kept { name: OPERATOR.to_owned(), rights, hash: hash(&secret), made, ends: None, quota };
        let path = folder.join("tokens.json");
        let others = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| FileError { path, source: error.into() })?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(FileError { path, source }),
        };
        Ok(Self { folder: folder.to_owned(), state: Mutex::new(State { operator, others }) })
    }

    /// The file with the operator's secret.
    pub fn operator_file(&self) -> PathBuf {
        self.folder.join("token")
    }

    /// Whose `secret` it is. Hashes are compared, so that the time it takes tells nothing of the secret.
    pub fn holder(&self, secret: &str, now: Time) -> Option<Holder> {
        let hash = hash(secret);
        let state = self.state();
        let mut all = std::iter::once(&state.operator).chain(&state.others);
        let found = all.find(|kept| kept.hash == hash && kept.ends.is_none_or(|ends| now < ends))?;
        Some(Holder { name: found.name.clone(), rights: found.rights })
    }

    /// What the jobs of a token may be together.
    pub fn quota(&self, name: &str) -> JobQuota {
        let state = self.state();
        state.others.iter().find(|kept| kept.name == name).map_or_else(JobQuota::default, |kept| kept.quota)
    }

    /// Every token, the operator's first.
    pub fn list(&self) -> Vec<TokenView> {
        let state = self.state();
        std::iter::once(&state.operator).chain(&state.others).map(Kept::view).collect()
    }

    /// Makes a token. It counts once it is on disk.
    pub fn create(&self, order: &TokenOrder, now: Time) -> Result<TokenMade, TokenError> {
        let TokenOrder { name, rights, lasts_s, quota } = order;
        if !is_name(name) {
            return Err(TokenError::Name(name.chars().take(2 * LONGEST_NAME).collect()));
        }
        let mut state = self.state();
        let ends = lasts_s.map(|seconds| now + Duration::from_secs(seconds));
        // One that has ended leaves its name.
        let mut others: Vec<Kept> = state.others.iter().filter(|kept| kept.ends.is_none_or(|ends| now < ends)).cloned().collect();
        if name == OPERATOR || others.iter().any(|kept| kept.name == *name) {
            return Err(TokenError::Taken(name.clone()));
        }
        if others.len() >= MOST {
            return Err(TokenError::Many);
        }
        let secret = new_secret();
        others.push(Kept { name: name.clone(), rights: *rights, hash: hash(&secret), made: now, ends, quota: *quota });
        self.replace(&mut state, others)?;
        Ok(TokenMade { name: name.clone(), secret })
    }

    /// Gives a token another secret; the former is worth nothing from then on.
    pub fn rotate(&self, name: &str, now: Time) -> Result<TokenMade, TokenError> {
        let mut state = self.state();
        let made = TokenMade { name: name.to_owned(), secret: new_secret() };
        if name == OPERATOR {
            write(&self.operator_file(), &format!("{}\n", made.secret))?;
            (state.operator.hash, state.operator.made) = (hash(&made.secret), now);
            return Ok(made);
        }
        let mut others = state.others.clone();
        let kept = others.iter_mut().find(|kept| kept.name == name).ok_or_else(|| TokenError::Unknown(name.to_owned()))?;
        // It lasts as long as it would have from the start.
        kept.ends = kept.ends.map(|ends| now + ends.since(kept.made));
        (kept.hash, kept.made) = (hash(&made.secret), now);
        self.replace(&mut state, others)?;
        Ok(made)
    }

    /// Ends a token.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        if name == OPERATOR {
            return Err(TokenError::Operator);
        }
        let mut state = self.state();
        let others: Vec<Kept> = state.others.iter().filter(|kept| kept.name != name).cloned().collect();
        if others.len() == state.others.len() {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        Ok(self.replace(&mut state, others)?)
    }

    fn replace(&self, state: &mut State, others: Vec<Kept>) -> Result<(), FileError> {
        let text = serde_json::to_string_pretty(&others).expect("its keys are strings");
        write(&self.folder.join("tokens.json"), &text)?;
        state.others = others;
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_name(name: &str) -> bool {
    let fits = (1..=LONGEST_NAME).contains(&name.len());
    fits && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

/// 256 random bits in hex.
fn new_secret() -> String {
    let mut bytes = [0; SECRET_LENGTH / 2];
    SystemRandom::new().fill(&mut bytes).expect("the kernel has random bytes");
    hex(&bytes)
}

fn hash(secret: &str) -> String {
    hex(digest(&SHA256, secret.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn modified(path: &Path) -> Option<Time> {
    let modified = fs::metadata(path).and_then(|data| data.modified()).ok()?;
    Some(Time::ZERO + modified.duration_since(std::time::UNIX_EPOCH).ok()?)
}

fn write(path: &Path, text: &str) -> Result<(), FileError> {
    files::replace(path, text.as_bytes()).map_err(|source| FileError { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NOW: Time = Time(1_000_000_000_000);

    fn order(name: &str, rights: TokenRights, lasts_s: Option<u64>) -> TokenOrder {
        TokenOrder { name: name.to_owned(), rights, lasts_s, quota: JobQuota::default() }
    }

    #[test]
    fn the_operators_token_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let tokens = Tokens::load_or_create(folder.path(), NOW).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        let secret = text.trim();
        assert_eq!(secret.len(), 64);
        let operator = Some(Holder { name: OPERATOR.to_owned(), rights: TokenRights::Order });
        assert_eq!(tokens.holder(secret, NOW), operator);
        assert_eq!(Tokens::load_or_create(folder.path(), NOW).unwrap().holder(secret, NOW), operator);
        for wrong in [&secret[..63], "", &"0".repeat(64)] {
            assert_eq!(tokens.holder(wrong, NOW), None);
        }
        fs::write(&path, "cut").unwrap();
        let anew = Tokens::load_or_create(folder.path(), NOW).unwrap();
        assert_eq!((anew.holder("cut", NOW), anew.holder(secret, NOW)), (None, None), "a token cut short is made anew");
    }

    #[test]
    fn a_token_lasts_until_it_ends_is_rotated_or_revoked_also_over_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::load_or_create(folder.path(), NOW).unwrap();
        let made = tokens.create(&order("prometheus", TokenRights::Read, Some(60)), NOW).unwrap();
        let holder = Holder { name: "prometheus".to_owned(), rights: TokenRights::Read };
        let after = |seconds| NOW + Duration::from_secs(seconds);
        assert_eq!(tokens.holder(&made.secret, after(59)), Some(holder.clone()));
        assert_eq!(tokens.holder(&made.secret, after(60)), None);
        let kept = fs::read_to_string(folder.path().join("tokens.json")).unwrap();
        assert!(!kept.contains(&made.secret), "only a hash is kept");
        assert_eq!(fs::metadata(folder.path().join("tokens.json")).unwrap().permissions().mode() & 0o777, 0o600);

        let again = Tokens::load_or_create(folder.path(), NOW).unwrap();
        assert_eq!(again.holder(&made.secret, NOW), Some(holder.clone()));
        let rotated = again.rotate("prometheus", after(30)).unwrap();
        assert_eq!(again.holder(&made.secret, after(31)), None);
        assert_eq!(again.holder(&rotated.secret, after(89)), Some(holder), "it lasts a minute from then on");
        again.revoke("prometheus").unwrap();
        assert_eq!(again.holder(&rotated.secret, after(31)), None);
        assert_eq!(again.list().len(), 1);
    }

    #[test]
    fn the_operators_token_is_rotated_in_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::load_or_create(folder.path(), NOW).unwrap();
        let former = fs::read_to_string(folder.path().join("token")).unwrap();
        let made = tokens.rotate(OPERATOR, NOW).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("token")).unwrap().trim(), made.secret);
        assert_eq!(tokens.holder(former.trim(), NOW), None);
        assert!(tokens.holder(&made.secret, NOW).is_some());
        assert!(matches!(tokens.revoke(OPERATOR), Err(TokenError::Operator)));
    }

    #[test]
    fn names_and_numbers_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::load_or_create(folder.path(), NOW).unwrap();
        for name in ["", "Up", "a b", "../x", &"x".repeat(33)] {
            let error = tokens.create(&order(name, TokenRights::Read, None), NOW).unwrap_err();
            assert!(matches!(error, TokenError::Name(_)), "{name}: {error}");
        }
        for name in [OPERATOR, "twice"] {
            let _ = tokens.create(&order("twice", TokenRights::Read, None), NOW);
            let error = tokens.create(&order(name, TokenRights::Read, None), NOW).unwrap_err();
            assert!(matches!(error, TokenError::Taken(_)), "{error}");
        }
        for number in 1..MOST {
            tokens.create(&order(&format!("t{number}"), TokenRights::Order, Some(10)), NOW).unwrap();
        }
        assert!(matches!(tokens.create(&order("one-more", TokenRights::Read, None), NOW), Err(TokenError::Many)));
        let later = NOW + Duration::from_secs(10);
        assert!(tokens.create(&order("one-more", TokenRights::Read, None), later).is_ok(), "those that have ended leave room");
        assert!(matches!(tokens.rotate("nobody", NOW), Err(TokenError::Unknown(_))));
    }
}
