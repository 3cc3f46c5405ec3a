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

use crate::fault::Fault;
use crate::http::BODY_LIMIT;

type Answer = Pin<Box<dyn Future<Output = Result<Vec<u8>, Fault>> + Send>>;
type Handler = Box<dyn Fn(Bytes) -> Answer + Send + Sync>;

/// The methods that a role answers.
#[derive(Default)]
pub struct Router {
    handlers: BTreeMap<&'static str, Handler>,
}

impl Router {
    /// Answers `method` with `handler`.
    pub fn on<Q, A, F, H>(mut self, method: Method<Q, A>, handler: H) -> Self
    where
        Q: DeserializeOwned + 'static,
        A: Serialize + 'static,
        F: Future<Output = Result<A, Fault>> + Send + 'static,
        H: Fn(Q) -> F + Send + Sync + Clone + 'static,
    {
        let handle = move |body: Bytes| -> Answer {
            let parsed = serde_json::from_slice::<Q>(&body);
            let handler = handler.clone();
            match parsed {
                Err(error) => Box::pin(async move { Err(Fault::bad_request(format!("unreadable request: {error}"))) }),
                Ok(request) => {
                    let future = handler(request);
                    Box::pin(async move {
                        let answer = future.await?;
                        serde_json::to_vec(&answer).map_err(|error| Fault::internal(error.to_string()))
                    })
                }
            }
        };
        self.handlers.insert(method.name(), Box::new(handle));
        self
    }

    /// The refusal of a method that is not answered here: with the name that the same call has here, if it has one in another version.
    fn unknown(&self, method: &str) -> Fault {
        let asked = without_version(method);
        let same_call = |name: &&&str| asked.is_some() && without_version(name) == asked;
        let speaks = self.handlers.keys().find(same_call).map(|name| (*name).to_owned());
        Fault::refused(404, Refusal::UnknownMethod { method: method.to_owned(), speaks })
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Vec<u8>, Fault> {
        let name = request.uri().path().trim_start_matches('/').to_owned();
        let handler = self.handlers.get(name.as_str()).ok_or_else(|| self.unknown(&name))?;
        let body = Limited::new(request.into_body(), BODY_LIMIT)
            .collect()
            .await
            .map_err(|error| Fault::bad_request(format!("unreadable request: {error}")))?;
        handler(body.to_bytes()).await
    }
}

/// `role.vN/verb` as role and verb.
fn without_version(method: &str) -> Option<(&str, &str)> {
    let (role, rest) = method.split_once(".v")?;
    let (_, verb) = rest.split_once('/')?;
    Some((role, verb))
}

/// Answers calls on `listener` until the process ends or the future is dropped.
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
        let router = Arc::clone(&router);
        let service = hyper::service::service_fn(move |request| {
            let router = Arc::clone(&router);
            async move {
                let (status, body) = match router.answer(request).await {
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
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a caller broke off");
            }
        });
    }
}
