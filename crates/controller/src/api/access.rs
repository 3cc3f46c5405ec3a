//! Who may call what.
//!
//! | door | reads | orders, config, logs |
//! | --- | --- | --- |
//! | the local socket (mode 0600), to root and the user who started weal | open | open |
//! | the local socket, to others | closed | closed |
//! | TCP on loopback | open, if `Host` names this machine | token |
//! | TCP beyond loopback | token | token |
//!
//! `/healthz` is open everywhere: it says nothing. The `Host` check stops DNS rebinding, by which a page from elsewhere could
//! read the API of a browser's own machine.

use std::borrow::Cow;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, StatusCode, header};

use super::answer::refusal;

/// So much of a request that is refused is read, so that its caller learns why.
const UNWANTED_LIMIT: usize = 64 << 10;

/// What a route lets be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Says nothing about the pool.
    Open,
    /// Tells how the pool is.
    Read,
    /// Changes it, or tells what may be secret (configs and logs hold passwords).
    Order,
}

/// How a caller came in.
#[derive(Debug, Clone)]
pub(crate) enum Door {
    /// Through the Unix socket, as a user who may give orders.
    Local,
    /// Through the Unix socket, as anybody else.
    Closed,
    /// Over TCP.
    Tcp { loopback: bool, token: Token },
}

impl Door {
    /// The door that a listener at `address` is.
    pub fn tcp(address: SocketAddr, token: Token) -> Self {
        Self::Tcp { loopback: address.ip().is_loopback(), token }
    }

    /// Whether a request with these headers may come in for `access`; otherwise what to answer.
    pub fn admit(&self, access: Access, headers: &HeaderMap) -> Result<(), (StatusCode, Cow<'static, str>)> {
        let (loopback, token) = match self {
            Self::Local => return Ok(()),
            Self::Closed => {
                return Err((StatusCode::FORBIDDEN, "only root and the user who started weal may call this socket".into()));
            }
            Self::Tcp { loopback, token } => (loopback, token),
        };
        if access == Access::Open {
            return Ok(());
        }
        if *loopback && !names_loopback(headers) {
            return Err((
                StatusCode::MISDIRECTED_REQUEST,
                "the Host header must name this machine: localhost or 127.0.0.1".into(),
            ));
        }
        if *loopback && access == Access::Read {
            return Ok(());
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        match given.and_then(|value| value.strip_prefix("Bearer ")) {
            Some(given) if token.is(given.trim()) => Ok(()),
            given => {
                // Other machines learn nothing of the folders of this one.
                let place = if *loopback {
                    token.path.display().to_string()
                } else {
                    "controller/token of the state directory".to_owned()
                };
                let text = match given {
                    Some(_) => format!("wrong token: the right one is in {place}"),
                    None => format!("needs `Authorization: Bearer TOKEN`, with the token in {place}"),
                };
                Err((StatusCode::UNAUTHORIZED, text.into()))
            }
        }
    }
}

fn names_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// Lets a request to the router of `door` through to a route that needs `access`, or answers it.
pub(super) async fn guard(State((door, access)): State<(Door, Access)>, request: Request, next: Next) -> Response {
    match door.admit(access, request.headers()) {
        Ok(()) => next.run(request).await,
        Err((status, text)) => {
            // A connection that is closed with something unread in it takes the answer along.
            let _ = axum::body::to_bytes(request.into_body(), UNWANTED_LIMIT).await;
            refusal(status, text)
        }
    }
}

/// The secret that proves a right to give orders: 256 random bits in hex.
#[derive(Clone)]
pub(crate) struct Token {
    secret: Arc<str>,
    path: Arc<Path>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

impl Token {
    /// Reads the token at `path`, or makes one there that only its owner can read.
    pub fn load_or_create(path: &Path) -> io::Result<Self> {
        match fs::read_to_string(path) {
            Ok(text) if text.trim().len() == 64 => return Ok(Self { secret: text.trim().into(), path: path.into() }),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // Missing, or cut short by a full disk when it was made.
            _ => {}
        }
        let mut bytes = [0; 32];
        fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let partial = path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        Ok(Self { secret: text.into(), path: path.into() })
    }

    /// Compares in a time that depends on the lengths only.
    fn is(&self, given: &str) -> bool {
        let (right, given) = (self.secret.as_bytes(), given.as_bytes());
        let difference = right.iter().zip(given).fold(0, |all, (a, b)| all | (a ^ b));
        std::hint::black_box(difference) == 0 && right.len() == given.len()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_its_owner_can_read_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::load_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.trim().len(), 64);
        assert!(token.is(text.trim()));
        assert!(Token::load_or_create(&path).unwrap().is(text.trim()));
        assert!(!token.is(&text.trim()[..63]) && !token.is("") && !token.is(&"0".repeat(64)));
        fs::write(&path, "cut").unwrap();
        assert!(!Token::load_or_create(&path).unwrap().is("cut"), "a token cut short is made anew");
    }

    #[test]
    fn each_door_admits_whom_the_table_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let token = Token::load_or_create(&path).unwrap();
        let secret = format!("Bearer {}", fs::read_to_string(&path).unwrap().trim());
        let headers = |host: &str, authorization: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().unwrap());
            if !authorization.is_empty() {
                headers.insert(header::AUTHORIZATION, authorization.parse().unwrap());
            }
            headers
        };
        let loopback = Door::Tcp { loopback: true, token: token.clone() };
        let beyond = Door::Tcp { loopback: false, token };
        for host in ["localhost:8081", "127.0.0.1", "[::1]:8081", "weal.localhost", "127.8.9.1:80"] {
            assert_eq!(loopback.admit(Access::Read, &headers(host, "")), Ok(()), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8081", "10.0.0.1", "[::2]", ""] {
            assert_eq!(loopback.admit(Access::Read, &headers(host, &secret)).unwrap_err().0, 421, "{host}");
        }
        assert_eq!(loopback.admit(Access::Read, &HeaderMap::new()).unwrap_err().0, 421);
        assert_eq!(loopback.admit(Access::Order, &headers("localhost", "")).unwrap_err().0, 401);
        assert_eq!(loopback.admit(Access::Order, &headers("localhost", "Bearer 00")).unwrap_err().0, 401);
        assert_eq!(loopback.admit(Access::Order, &headers("localhost", &secret)), Ok(()));
        for given in ["", "Bearer 00"] {
            let (near, far) = (headers("localhost", given), headers("pool.example", given));
            let shown = path.display().to_string();
            assert!(loopback.admit(Access::Order, &near).unwrap_err().1.contains(&shown), "the way to the token is said");
            assert!(!beyond.admit(Access::Order, &far).unwrap_err().1.contains(&shown), "another machine is told no folder");
        }
        assert_eq!(beyond.admit(Access::Read, &headers("pool.example", "")).unwrap_err().0, 401);
        assert_eq!(beyond.admit(Access::Read, &headers("pool.example", &secret)), Ok(()));
        assert_eq!(beyond.admit(Access::Open, &HeaderMap::new()), Ok(()));
        assert_eq!(Door::Local.admit(Access::Order, &HeaderMap::new()), Ok(()));
        for access in [Access::Open, Access::Read, Access::Order] {
            assert_eq!(Door::Closed.admit(access, &HeaderMap::new()).unwrap_err().0, 403);
        }
    }
}
