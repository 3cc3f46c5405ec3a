//! Answering calls.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixListener;
use weal_protocol::{Method, Refusal};

use crate::callers::Callers;
use crate::fault::RpcRefusal;
use crate::http::BODY_LIMIT;
use crate::socket::peer_uid;

type Answer = Pin<Box<dyn Future<Output = Result<Vec<u8>, RpcRefusal>> + Send>>;
type Handler = Box<dyn Fn(Bytes) -> Answer + Send + Sync>;

/// How long a caller may take to send the head of a request. Roles send it at once.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// So much of a request that is refused is read, so that its caller learns why.
const UNWANTED_LIMIT: usize = 64 << 10;

/// The methods that a role answers, each with the users that may call it.
pub struct Router {
    handlers: BTreeMap<&'static str, (Callers, Handler)>,
    callers: Callers,
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
        self.handlers.insert(method.name(), (self.callers.clone(), Box::new(handle)));
        self
    }

    /// The handler of `method` for a caller that runs as `uid`. A user who may call nothing here does not learn which methods there are.
    fn find(&self, method: &str, uid: u32) -> Result<&Handler, RpcRefusal> {
        let not_allowed = || RpcRefusal::refused(403, Refusal::CallerNotAllowed { uid, method: method.to_owned() });
        match self.handlers.get(method) {
            Some((callers, handler)) if callers.admit(uid) => Ok(handler),
            None if self.handlers.values().any(|(callers, _)| callers.admit(uid)) => Err(self.unknown(method)),
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

    async fn answer(&self, uid: u32, request: Request<Incoming>) -> Result<Vec<u8>, RpcRefusal> {
        let name = request.uri().path().trim_start_matches('/').to_owned();
        let handler = match self.find(&name, uid) {
            Ok(handler) => handler,
            Err(fault) => {
                // A connection that is closed with something unread in it takes the answer along.
                let _ = Limited::new(request.into_body(), UNWANTED_LIMIT).collect().await;
                return Err(fault);
            }
        };
        let body = Limited::new(request.into_body(), BODY_LIMIT)
            .collect()
            .await
            .map_err(|error| RpcRefusal::bad_request(format!("unreadable request: {error}")))?;
        handler(body.to_bytes()).await
    }
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
    let router = Arc::new(router);
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
        let router = Arc::clone(&router);
        let service = hyper::service::service_fn(move |request| {
            let router = Arc::clone(&router);
            async move {
                let (status, body) = match router.answer(uid, request).await {
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
        tokio::spawn(async move {
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a caller broke off");
            }
        });
    }
}
