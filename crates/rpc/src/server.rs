//! Answering calls.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{UnixListener, UnixStream};
use weal_protocol::{Method, Refusal};

use crate::callers::Callers;
use crate::fault::RpcRefusal;
use crate::room::{Connected, Held, Rooms};
use crate::socket::peer_uid;

type Answer = Pin<Box<dyn Future<Output = Result<Vec<u8>, RpcRefusal>> + Send>>;
type Handler = Box<dyn Fn(Bytes) -> Answer + Send + Sync>;

/// How long a caller may take to send the head of a request. Roles send it at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a caller may take to send the rest. The largest request takes a second on a busy machine.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// The longest head, and how much is read ahead of the rest.
const BUFFER: usize = 64 << 10;
/// So much of a request that is refused is read, so that its caller learns why.
const UNWANTED_LIMIT: usize = 64 << 10;

/// The methods that a role answers, each with the users that may call it.
pub struct Router {
    handlers: BTreeMap<&'static str, Answered>,
    callers: Callers,
}

/// A method that is answered.
struct Answered {
    callers: Callers,
    /// The longest request, in bytes.
    longest: usize,
    handler: Handler,
}

impl Router {
    /// A role without methods. Those that are added next may be called by `callers`.
    pub fn new(callers: Callers) -> Self {
        Self { handlers: BTreeMap::new(), callers }
    }

    /// The methods that are added from here on may be called by `callers` instead.
    pub fn callers(mut self, callers: Callers) -> Self {
        self.callers = callers;
        self
    }

    /// Answers `method` with `handler`.
    pub fn on<Q, A, F, H>(mut self, method: Method<Q, A>, handler: H) -> Self
    where
        Q: DeserializeOwned + 'static,
        A: Serialize + 'static,
        F: Future<Output = Result<A, RpcRefusal>> + Send + 'static,
        H: Fn(Q) -> F + Send + Sync + Clone + 'static,
    {
        let handle = move |body: Bytes| -> Answer {
            let parsed = serde_json::from_slice::<Q>(&body);
            let handler = handler.clone();
            match parsed {
                Err(error) => Box::pin(async move { Err(RpcRefusal::bad_request(format!("unreadable request: {error}"))) }),
                Ok(request) => {
                    let future = handler(request);
                    Box::pin(async move {
                        let answer = future.await?;
                        serde_json::to_vec(&answer).map_err(|error| RpcRefusal::internal(error.to_string()))
                    })
                }
            }
        };
        let (callers, longest, handler) = (self.callers.clone(), method.longest(), Box::new(handle));
        self.handlers.insert(method.name(), Answered { callers, longest, handler });
        self
    }

    /// What answers `method` to a caller that runs as `uid`. A user who may call nothing here does not learn which methods there are.
    fn find(&self, method: &str, uid: u32) -> Result<&Answered, RpcRefusal> {
        let not_allowed = || RpcRefusal::refused(403, Refusal::CallerNotAllowed { uid, method: method.to_owned() });
        match self.handlers.get(method) {
            Some(answered) if answered.callers.admit(uid) => Ok(answered),
            None if self.handlers.values().any(|answered| answered.callers.admit(uid)) => Err(self.unknown(method)),
            _ => Err(not_allowed()),
        }
    }

    /// The refusal of a method that is not answered here: with the name that the same call has here, if it has one in another version.
    fn unknown(&self, method: &str) -> RpcRefusal {
        let asked = without_version(method);
        let same_call = |name: &&&str| asked.is_some() && without_version(name) == asked;
        let speaks = self.handlers.keys().find(same_call).map(|name| (*name).to_owned());
        RpcRefusal::refused(404, Refusal::UnknownMethod { method: method.to_owned(), speaks })
    }

    async fn answer(&self, connected: &Connected, request: Request<Incoming>) -> Result<Vec<u8>, RpcRefusal> {
        let name = request.uri().path().trim_start_matches('/').to_owned();
        // Kept until the answer is there: what was read lives on in what is done about it.
        let mut held = connected.request();
        let answered = match self.find(&name, connected.uid()) {
            Ok(answered) => answered,
            Err(fault) => {
                // A connection that is closed with something unread in it takes the answer along.
                let _ = read(request.into_body(), UNWANTED_LIMIT, &mut held).await;
                return Err(fault);
            }
        };
        let body = read(request.into_body(), answered.longest, &mut held).await?;
        (answered.handler)(body).await
    }
}

/// The whole of a request, if it comes in time, is no longer than `longest`, and there is room for it.
async fn read(body: Incoming, longest: usize, held: &mut Held) -> Result<Bytes, RpcRefusal> {
    let late = |_| RpcRefusal::too_slow(format!("the request was not there within {} s", BODY_TIMEOUT.as_secs()));
    tokio::time::timeout(BODY_TIMEOUT, read_all(body, longest, held)).await.map_err(late)?
}

async fn read_all(mut body: Incoming, longest: usize, held: &mut Held) -> Result<Bytes, RpcRefusal> {
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| RpcRefusal::bad_request(format!("unreadable request: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > longest {
            return Err(RpcRefusal::too_large(format!("the request is longer than {longest} bytes")));
        }
        if !held.grow(data.len()) {
            return Err(RpcRefusal::no_room("other requests of this user take all the room that there is for them"));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

/// `role.vN/verb` as role and verb.
fn without_version(method: &str) -> Option<(&str, &str)> {
    let (role, rest) = method.split_once(".v")?;
    let (_, verb) = rest.split_once('/')?;
    Some((role, verb))
}

/// Answers calls on `listener` until the process ends or the future is dropped. The kernel says for each connection which user made it
/// (`SO_PEERCRED`), and a method is answered only to the users that may call it.
pub async fn serve(listener: UnixListener, router: Router) {
    let (router, rooms) = (Arc::new(router), Arc::new(Rooms::default()));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a call");
                // Out of file descriptors, most likely: the next attempt would fail at once and spin.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let uid = match peer_uid(&stream) {
            Ok(uid) => uid,
            Err(error) => {
                tracing::warn!(%error, "a caller cannot be told from others and is not answered");
                continue;
            }
        };
        // Closed at once: whoever calls so often learns nothing from an answer.
        let Some(connected) = rooms.connect(uid) else {
            tracing::debug!(uid, "a user has as many connections as it may have");
            continue;
        };
        tokio::spawn(converse(stream, connected, Arc::clone(&router)));
    }
}

/// Answers the calls of one connection.
async fn converse(stream: UnixStream, connected: Connected, router: Arc<Router>) {
    let connected = &connected;
    let service = hyper::service::service_fn(move |request| {
        let router = Arc::clone(&router);
        async move {
            let (status, body) = match router.answer(connected, request).await {
                Ok(body) => (StatusCode::OK, body),
                Err(fault) => {
                    let status = StatusCode::from_u16(fault.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                    (status, serde_json::to_vec(&fault).unwrap_or_default())
                }
            };
            let mut response = Response::new(Full::new(Bytes::from(body)));
            *response.status_mut() = status;
            Ok::<_, Infallible>(response)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a caller broke off");
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::room::{MOST_BYTES, MOST_CONNECTIONS};

    const SHORT: Method<String, usize> = Method::new("test.v1/short");
    const LONG: Method<String, usize> = Method::new("test.v1/long").up_to(16);

    /// A server that answers with the lengths of what it is sent.
    fn serving(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("role.sock");
        let listener = UnixListener::from_std(crate::bind(&path).unwrap()).unwrap();
        let length = |text: String| async move { Ok(text.len()) };
        tokio::spawn(serve(listener, Router::new(Callers::own()).on(SHORT, length).on(LONG, length)));
        path
    }

    /// A connection on which a request of `length` bytes was begun, with `sent` of them.
    async fn begun(path: &Path, method: &str, length: usize, sent: usize) -> UnixStream {
        let mut stream = UnixStream::connect(path).await.unwrap();
        let head = format!("POST /{method} HTTP/1.1\r\nhost: weal\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // One that is closed already takes no more.
        let _ = stream.write_all(&vec![b' '; sent]).await;
        stream
    }

    /// The status of the answer; `None` when the connection was closed without one.
    async fn status(stream: &mut UnixStream) -> Option<u16> {
        let mut head = [0; 64];
        let length = stream.read(&mut head).await.unwrap_or(0);
        String::from_utf8_lossy(&head[..length]).split_whitespace().nth(1)?.parse().ok()
    }

    #[tokio::test]
    async fn each_method_says_how_long_a_request_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = serving(folder.path());
        let client = crate::Client::new(&path, Duration::from_secs(60));
        assert_eq!(client.call(SHORT, &"x".repeat(60_000)).await.unwrap(), 60_000);
        assert_eq!(client.call(LONG, &"x".repeat(1 << 20)).await.unwrap(), 1 << 20);
        let mut stream = begun(&path, SHORT.name(), 1 << 20, SHORT.longest() + 1).await;
        assert_eq!(status(&mut stream).await, Some(413));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_does_not_come_is_given_up() {
        let folder = tempfile::tempdir().unwrap();
        let path = serving(folder.path());
        // Time passes when nobody has anything to do.
        assert_eq!(status(&mut begun(&path, SHORT.name(), 100, 10).await).await, Some(408));
        assert_eq!(status(&mut begun(&path, "test.v1/none", 100, 10).await).await, Some(404));
    }

    #[tokio::test]
    async fn a_user_has_so_many_connections() {
        let folder = tempfile::tempdir().unwrap();
        let path = serving(folder.path());
        let mut all = Vec::new();
        for _ in 0..MOST_CONNECTIONS {
            all.push(begun(&path, SHORT.name(), 100, 0).await);
        }
        let mut beyond = begun(&path, SHORT.name(), 100, 0).await;
        assert_eq!(status(&mut beyond).await, None, "it is closed");
    }

    #[tokio::test]
    async fn a_user_has_so_many_bytes_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let path = serving(folder.path());
        let each = LONG.longest() - 1;
        let mut answers = tokio::task::JoinSet::new();
        for _ in 0..=MOST_BYTES / each {
            let path = path.clone();
            answers.spawn(async move { status(&mut begun(&path, LONG.name(), each + 1, each).await).await });
        }
        assert_eq!(answers.join_next().await.unwrap().unwrap(), Some(429));
    }
}
