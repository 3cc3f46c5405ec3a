//! Who may call what.
//!
//! | door | reads | jobs | other orders, config, logs | tokens, audit log |
//! | --- | --- | --- | --- | --- |
//! | the local socket (mode 0600), to root and the user who started weal | open | open | open | open |
//! | the local socket, to others | closed | closed | closed | closed |
//! | TCP on loopback | open, if `Host` names this machine | scope `jobs` | scope `all` | the operator's token |
//! | TCP beyond loopback, with a certificate of `client-ca` | open | scope `jobs` | scope `all` | the operator's token |
//! | TCP beyond loopback | any token | scope `jobs` | scope `all` | the operator's token |
//!
//! A scope has what those before it have; the holder of one of scope `jobs` reaches only jobs that were submitted by that token. `/healthz` is
//! open everywhere: it says nothing. The `Host` check stops DNS rebinding, by which a page from elsewhere could
//! read the API of a browser's own machine.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use weal_model::Time;
use weal_protocol::controller::{AuditEntry, Caller, TokenScope};

use super::answer::refusal;
use super::audit::Audit;
use super::places::ConnectionSlot;
use super::rates::{Rates, TOKEN_RATE};
use super::room::TOKEN_MOST;
use super::tokens::{Holder, OPERATOR, Tokens};
use crate::clock;

/// So much of a request that is refused is read, so that its caller learns why.
const UNWANTED_LIMIT: usize = 64 << 10;
/// Bytes of a path that are written down.
const LONGEST_PATH: usize = 256;

/// What a route lets be done, from the least to the most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Says nothing about the pool.
    Open,
    /// Tells how the pool is.
    Read,
    /// Takes jobs, and shows and orders those that the caller may reach.
    Jobs,
    /// Changes the pool, or tells what may be secret (configs and logs hold passwords).
    Order,
    /// Says or changes who may do what.
    Keys,
}

impl Access {
    /// What a token must let be done; `None` where none is needed.
    pub fn scope(self) -> Option<TokenScope> {
        match self {
            Self::Open => None,
            Self::Read => Some(TokenScope::Read),
            Self::Jobs => Some(TokenScope::Jobs),
            Self::Order | Self::Keys => Some(TokenScope::All),
        }
    }
}

/// How a caller came in.
#[derive(Debug, Clone)]
pub(crate) enum Door {
    /// Through the Unix socket, as a user who may give orders.
    Local,
    /// Through the Unix socket, as anybody else.
    Closed,
    /// Over TCP. `certified` says that whoever is there has shown a certificate.
    Tcp { loopback: bool, certified: bool, tokens: Arc<Tokens> },
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) enum Peer {
    /// A user of this machine; the kernel says which.
    User(u32),
    /// An address.
    Address(SocketAddr),
}

/// An answer to who may not come in.
#[derive(Debug, PartialEq)]
pub(crate) struct Refused {
    status: StatusCode,
    text: Cow<'static, str>,
    /// Whose token was shown, if it is worth something, but not this.
    token: Option<String>,
}

impl Refused {
    fn new(status: StatusCode, text: impl Into<Cow<'static, str>>) -> Self {
        Self { status, text: text.into(), token: None }
    }
}

impl Door {
    /// The door that a listener at `address` is, to whom callers show certificates or not.
    pub fn tcp(address: SocketAddr, certified: bool, tokens: Arc<Tokens>) -> Self {
        Self::Tcp { loopback: address.ip().is_loopback(), certified, tokens }
    }

    /// Whether a request with these headers may come in for `access`, and by whose token; otherwise what to answer.
    pub fn admit(&self, access: Access, headers: &HeaderMap, now: Time) -> Result<Option<Holder>, Refused> {
        let (loopback, certified, tokens) = match self {
            Self::Local => return Ok(None),
            Self::Closed => {
                return Err(Refused::new(StatusCode::FORBIDDEN, "only root and the user who started weal may call this socket"));
            }
            Self::Tcp { loopback, certified, tokens } => (*loopback, *certified, tokens),
        };
        let Some(needed) = access.scope() else { return Ok(None) };
        if loopback && !names_loopback(headers) {
            let text = "the Host header must name this machine: localhost or 127.0.0.1";
            return Err(Refused::new(StatusCode::MISDIRECTED_REQUEST, text));
        }
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.strip_prefix("Bearer "));
        let holder = given.and_then(|secret| tokens.holder(secret.trim(), now));
        if (loopback || certified) && access == Access::Read {
            return Ok(holder);
        }
        let Some(holder) = holder else {
            return Err(Refused::new(StatusCode::UNAUTHORIZED, no_token(given.is_some(), loopback, tokens)));
        };
        let text = match access {
            Access::Keys if holder.name != OPERATOR => "only the operator's token says or changes who may do what".to_owned(),
            _ if holder.scope < needed => too_narrow(&holder),
            _ => return Ok(Some(holder)),
        };
        Err(Refused { token: Some(holder.name), ..Refused::new(StatusCode::FORBIDDEN, text) })
    }
}

fn too_narrow(Holder { name, scope, .. }: &Holder) -> String {
    match scope {
        TokenScope::Read => format!("the token `{name}` lets its holder read, not give orders"),
        _ => format!("the token `{name}` lets its holder submit jobs and order these, and nothing else"),
    }
}

/// What to do without a token, or with one that is worth nothing.
fn no_token(is_wrong: bool, loopback: bool, tokens: &Tokens) -> String {
    // Other machines learn nothing of the folders of this one.
    let place = match loopback {
        true => tokens.operator_file().display().to_string(),
        false => "controller/token of the state directory".to_owned(),
    };
    if is_wrong {
        format!("wrong token: it was never made, was revoked or has ended; the operator's is in {place}")
    } else {
        format!("needs `Authorization: Bearer TOKEN`: the operator's token is in {place}, and `weal token create` makes others")
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

/// What stands before a route.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    pub door: Door,
    pub access: Access,
    pub audit: Arc<Audit>,
    pub rates: Arc<Rates>,
}

/// Lets a request through to its route, or answers it. Orders and who is refused are written down.
pub(super) async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let Guard { door, access, audit, rates } = guard;
    let peer = request.extensions().get::<Peer>().copied();
    let (method, path) = (request.method().clone(), shortened(request.uri().path()));
    let entry = |token: Option<String>, status: StatusCode| AuditEntry {
        time: clock::now(),
        who: caller(peer, token),
        method: method.to_string(),
        path,
        status: status.as_u16(),
        unlisted: 0,
    };
    match door.admit(access, request.headers(), clock::now()) {
        Ok(holder) => {
            let is_order = access > Access::Read && method != Method::GET;
            let submitter = holder.as_ref().map(Holder::submitter);
            let place = request.extensions().get::<Arc<ConnectionSlot>>();
            let has_place = holder.as_ref().zip(place).is_none_or(|(holder, place)| place.show(&holder.name));
            let token = holder.map(|holder| holder.name);
            if !has_place {
                audit.note_refused(entry(token, StatusCode::TOO_MANY_REQUESTS));
                return too_many();
            }
            if let Some(name) = &token
                && let Err(early) = rates.handle_request(clock::now(), name)
            {
                audit.note_refused(entry(token, StatusCode::TOO_MANY_REQUESTS));
                return too_fast(early);
            }
            let mut request = request;
            request.extensions_mut().insert(caller(peer, token.clone()));
            request.extensions_mut().insert(submitter);
            let response = next.run(request).await;
            if is_order {
                audit.note(entry(token, response.status()));
            }
            response
        }
        Err(Refused { status, text, token }) => {
            audit.note_refused(entry(token, status));
            // A connection that is closed with something unread in it takes the answer along.
            let _ = axum::body::to_bytes(request.into_body(), UNWANTED_LIMIT).await;
            refusal(status, text)
        }
    }
}

/// The answer to who has as many connections as a token may have.
fn too_many() -> Response {
    let text = format!("{TOKEN_MOST} connections are open with this token: close one, or ask again later");
    let mut answer = refusal(StatusCode::TOO_MANY_REQUESTS, text);
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// The answer to who comes so much too early.
fn too_fast(early: Duration) -> Response {
    let text = format!("more than {TOKEN_RATE} requests a second came with this token");
    let mut answer = refusal(StatusCode::TOO_MANY_REQUESTS, text);
    let wait = early.as_secs() + u64::from(early.subsec_nanos() > 0);
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait));
    answer
}

fn caller(peer: Option<Peer>, token: Option<String>) -> Caller {
    match (peer, token) {
        (Some(Peer::User(uid)), _) => Caller::User { uid },
        (Some(Peer::Address(address)), Some(name)) => Caller::Token { name, address: address.to_string() },
        (Some(Peer::Address(address)), None) => Caller::Unknown { address: address.to_string() },
        (None, _) => Caller::Unknown { address: String::new() },
    }
}

fn shortened(path: &str) -> String {
    path[..path.floor_char_boundary(LONGEST_PATH)].to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use weal_protocol::controller::TokenOrder;

    use super::*;

    const NOW: Time = Time(1_000_000_000_000);

    fn headers(host: &str, secret: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if !secret.is_empty() {
            headers.insert(header::AUTHORIZATION, format!("Bearer {secret}").parse().unwrap());
        }
        headers
    }

    #[test]
    fn each_door_admits_whom_the_table_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let tokens = Arc::new(Tokens::load_or_create(folder.path(), NOW).unwrap());
        let secret = fs::read_to_string(&path).unwrap().trim().to_owned();
        let made = |name: &str, scope| {
            let (name, scope, quota) = (name.to_owned(), Some(scope), weal_model::JobQuota::default());
            tokens.create(&TokenOrder { name, scope, lasts_s: None, quota }, NOW).unwrap().secret
        };
        let reader = made("reader", TokenScope::Read);
        let (batch, deployer) = (made("batch", TokenScope::Jobs), made("deployer", TokenScope::All));
        let near = Door::Tcp { loopback: true, certified: false, tokens: Arc::clone(&tokens) };
        let known = Door::Tcp { loopback: false, certified: true, tokens: Arc::clone(&tokens) };
        let far = Door::Tcp { loopback: false, certified: false, tokens };
        let status = |door: &Door, access, secret: &str| {
            let host = if matches!(door, Door::Tcp { loopback: true, .. }) { "localhost:8081" } else { "pool.example" };
            door.admit(access, &headers(host, secret), NOW).map_or_else(|refused| refused.status.as_u16(), |_| 200)
        };
        let wrong = "0".repeat(64);
        for (secret, near_by, far_away) in [
            ("", [200, 401, 401, 401], [401, 401, 401, 401]),
            (wrong.as_str(), [200, 401, 401, 401], [401, 401, 401, 401]),
            (reader.as_str(), [200, 403, 403, 403], [200, 403, 403, 403]),
            (batch.as_str(), [200, 200, 403, 403], [200, 200, 403, 403]),
            (deployer.as_str(), [200, 200, 200, 403], [200, 200, 200, 403]),
            (secret.as_str(), [200, 200, 200, 200], [200, 200, 200, 200]),
        ] {
            let all = [Access::Read, Access::Jobs, Access::Order, Access::Keys];
            let of = |door: &Door| all.map(|access| status(door, access, secret));
            assert_eq!((of(&near), of(&far)), (near_by, far_away), "{secret}");
            assert_eq!(of(&known), near_by, "a certificate is as good as this machine: {secret}");
        }
        for given in ["", "00"] {
            let text = |door: &Door, host: &str| door.admit(Access::Order, &headers(host, given), NOW).unwrap_err().text;
            let shown = path.display().to_string();
            assert!(text(&near, "localhost").contains(&shown), "the way to the token is said");
            assert!(!text(&far, "pool.example").contains(&shown), "another machine is told no folder");
        }
        assert_eq!(far.admit(Access::Open, &HeaderMap::new(), NOW), Ok(None));
        assert_eq!(Door::Local.admit(Access::Keys, &HeaderMap::new(), NOW), Ok(None));
        for access in [Access::Open, Access::Read, Access::Jobs, Access::Order, Access::Keys] {
            assert_eq!(Door::Closed.admit(access, &HeaderMap::new(), NOW).unwrap_err().status, 403);
        }
    }

    #[test]
    fn a_name_that_suddenly_means_this_machine_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let tokens = Tokens::load_or_create(folder.path(), NOW).unwrap();
        let secret = fs::read_to_string(folder.path().join("token")).unwrap();
        let door = Door::Tcp { loopback: true, certified: false, tokens: Arc::new(tokens) };
        for host in ["localhost:8081", "127.0.0.1", "[::1]:8081", "weal.localhost", "127.8.9.1:80"] {
            assert_eq!(door.admit(Access::Read, &headers(host, ""), NOW), Ok(None), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:8081", "10.0.0.1", "[::2]", ""] {
            assert_eq!(door.admit(Access::Read, &headers(host, secret.trim()), NOW).unwrap_err().status, 421, "{host}");
        }
        assert_eq!(door.admit(Access::Read, &HeaderMap::new(), NOW).unwrap_err().status, 421);
    }
}
