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
use weal_model::{JobQuota, Submitter, Time};
use weal_protocol::controller::{TokenMade, TokenOrder, TokenScope, TokenView};

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
    #[error("a token of the scope `read` submits no jobs, so it takes no quota")]
    ReadWithQuota,
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
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Holder {
    pub name: String,
    pub scope: TokenScope,
    pub quota: JobQuota,
}

impl Holder {
    /// As the loop knows whoever submits jobs.
    pub fn submitter(&self) -> Submitter {
        Submitter { token: self.name.clone(), quota: self.quota, own_jobs_only: self.scope < TokenScope::All }
    }
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
    /// What a version takes from it that knows no scopes: never more than its scope.
    rights: Rights,
    /// `None` when such a version wrote it.
    #[serde(default)]
    scope: Option<TokenScope>,
    /// SHA-256 of the secret, in hex. A secret is random in all of its 256 bits, so that nothing slower is needed.
    hash: String,
    made: Time,
    ends: Option<Time>,
    #[serde(default)]
    quota: JobQuota,
}

/// What a token let be done before there were scopes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rights {
    Read,
    Order,
}

impl Kept {
    fn new(name: &str, scope: TokenScope, secret: &str, made: Time) -> Self {
        let rights = if scope == TokenScope::All { Rights::Order } else { Rights::Read };
        let (name, scope, hash) = (name.to_owned(), Some(scope), hash(secret));
        Self { name, rights, scope, hash, made, ends: None, quota: JobQuota::default() }
    }

    /// A token keeps what it had when another version made it.
    fn scope(&self) -> TokenScope {
        self.scope.unwrap_or(match self.rights {
            Rights::Read => TokenScope::Read,
            Rights::Order => TokenScope::All,
        })
    }

    fn view(&self) -> TokenView {
        let unscoped = self.scope.is_none() && self.rights == Rights::Order;
        TokenView { name: self.name.clone(), scope: self.scope(), unscoped, made: self.made, ends: self.ends, quota: self.quota }
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
        let operator = Kept::new(OPERATOR, TokenScope::All, &secret, made);
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
        Some(Holder { name: found.name.clone(), scope: found.scope(), quota: found.quota })
    }

    /// Every token, the operator's first.
    pub fn list(&self) -> Vec<TokenView> {
        let state = self.state();
        std::iter::once(&state.operator).chain(&state.others).map(Kept::view).collect()
    }

    /// Makes a token. It counts once it is on disk.
    pub fn create(&self, order: &TokenOrder, now: Time) -> Result<TokenMade, TokenError> {
        let TokenOrder { name, lasts_s, quota, .. } = order;
        let scope = scope_of(order)?;
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
        others.push(Kept { ends, quota: *quota, ..Kept::new(name, scope, &secret, now) });
        self.replace(&mut state, others)?;
        Ok(TokenMade { name: name.clone(), secret, scope: Some(scope) })
    }

    /// Gives a token another secret; the former is worth nothing from then on.
    pub fn rotate(&self, name: &str, now: Time) -> Result<TokenMade, TokenError> {
        let mut state = self.state();
        let (name, secret) = (name.to_owned(), new_secret());
        if name == OPERATOR {
            let made = TokenMade { name, secret, scope: Some(TokenScope::All) };
            write(&self.operator_file(), &format!("{}\n", made.secret))?;
            (state.operator.hash, state.operator.made) = (hash(&made.secret), now);
            return Ok(made);
        }
        let mut others = state.others.clone();
        let found = others.iter_mut().find(|kept| kept.name == name);
        let Some(kept) = found else { return Err(TokenError::Unknown(name)) };
        let made = TokenMade { name, secret, scope: Some(kept.scope()) };
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

/// What a token lets be done: what was asked for, or else jobs where it bounds them and everything where it does not.
fn scope_of(order: &TokenOrder) -> Result<TokenScope, TokenError> {
    match order.scope {
        None if order.quota.is_open() => Ok(TokenScope::All),
        None => Ok(TokenScope::Jobs),
        Some(TokenScope::Read) if !order.quota.is_open() => Err(TokenError::ReadWithQuota),
        Some(scope) => Ok(scope),
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

    fn order(name: &str, scope: TokenScope, lasts_s: Option<u64>) -> TokenOrder {
        TokenOrder { name: name.to_owned(), scope: Some(scope), lasts_s, quota: JobQuota::default() }
    }

    fn holder(name: &str, scope: TokenScope) -> Holder {
        Holder { name: name.to_owned(), scope, quota: JobQuota::default() }
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
        let operator = Some(holder(OPERATOR, TokenScope::All));
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
        let made = tokens.create(&order("prometheus", TokenScope::Read, Some(60)), NOW).unwrap();
        let holder = holder("prometheus", TokenScope::Read);
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
    fn a_quota_makes_a_token_for_jobs_unless_another_scope_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::load_or_create(folder.path(), NOW).unwrap();
        let quota = JobQuota { jobs: Some(3), ..JobQuota::default() };
        for (name, scope, quota, expected) in [
            ("plain", None, JobQuota::default(), TokenScope::All),
            ("ci", None, quota, TokenScope::Jobs),
            ("free", Some(TokenScope::Jobs), JobQuota::default(), TokenScope::Jobs),
            ("admin", Some(TokenScope::All), quota, TokenScope::All),
        ] {
            let made = tokens.create(&TokenOrder { quota, ..TokenOrder { scope, ..order(name, expected, None) } }, NOW).unwrap();
            let known = Tokens::load_or_create(folder.path(), NOW).unwrap().holder(&made.secret, NOW);
            assert_eq!((made.scope, known), (Some(expected), Some(Holder { quota, ..holder(name, expected) })), "{name}");
        }
        let none = tokens.create(&TokenOrder { quota, ..order("look", TokenScope::Read, None) }, NOW).unwrap_err();
        assert!(matches!(none, TokenError::ReadWithQuota), "{none}");
    }

    #[test]
    fn a_token_keeps_what_it_had_over_a_change_of_version_and_never_gets_more() {
        let folder = tempfile::tempdir().unwrap();
        let former = |name: &str, rights: &str| {
            let quota = serde_json::json!({ "jobs": 3, "work": null, "memory": null });
            serde_json::json!({ "name": name, "rights": rights, "hash": hash(name), "made": NOW, "ends": null, "quota": quota })
        };
        let file = folder.path().join("tokens.json");
        fs::write(&file, serde_json::json!([former("ci", "order"), former("look", "read")]).to_string()).unwrap();
        let tokens = Tokens::load_or_create(folder.path(), NOW).unwrap();
        let scope = |secret: &str| tokens.holder(secret, NOW).unwrap().scope;
        assert_eq!((scope("ci"), scope("look")), (TokenScope::All, TokenScope::Read));
        tokens.create(&order("batch", TokenScope::Jobs, None), NOW).unwrap();
        let shown = Tokens::load_or_create(folder.path(), NOW).unwrap().list();
        let shown: Vec<_> = shown.iter().map(|token| (token.name.as_str(), token.scope, token.unscoped)).collect();
        let expected = [
            (OPERATOR, TokenScope::All, false),
            ("ci", TokenScope::All, true),
            ("look", TokenScope::Read, false),
            ("batch", TokenScope::Jobs, false),
        ];
        assert_eq!(shown, expected);
        let kept: serde_json::Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(kept[2]["rights"], "read", "a version that knows no scopes lets a token for jobs read alone");
    }

    #[test]
    fn names_and_numbers_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::load_or_create(folder.path(), NOW).unwrap();
        for name in ["", "Up", "a b", "../x", &"x".repeat(33)] {
            let error = tokens.create(&order(name, TokenScope::Read, None), NOW).unwrap_err();
            assert!(matches!(error, TokenError::Name(_)), "{name}: {error}");
        }
        for name in [OPERATOR, "twice"] {
            let _ = tokens.create(&order("twice", TokenScope::Read, None), NOW);
            let error = tokens.create(&order(name, TokenScope::Read, None), NOW).unwrap_err();
            assert!(matches!(error, TokenError::Taken(_)), "{error}");
        }
        for number in 1..MOST {
            tokens.create(&order(&format!("t{number}"), TokenScope::All, Some(10)), NOW).unwrap();
        }
        assert!(matches!(tokens.create(&order("one-more", TokenScope::Read, None), NOW), Err(TokenError::Many)));
        let later = NOW + Duration::from_secs(10);
        assert!(tokens.create(&order("one-more", TokenScope::Read, None), later).is_ok(), "those that have ended leave room");
        assert!(matches!(tokens.rotate("nobody", NOW), Err(TokenError::Unknown(_))));
    }
}
