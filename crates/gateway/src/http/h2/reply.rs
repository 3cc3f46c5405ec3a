//! One stream: its request becomes an exchange, and the exchange's answer is written to it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body::{Body as _, Frame};
use weal_control::flow::pipeline::Reading;

use super::conduct::Conduct;
use super::outgoing::poll_send;
use crate::http::answer_body::AnswerBody;
use crate::http::exchange::Exchange;
use crate::http::forward;
use crate::http::incoming::{Incoming, Stream};
use crate::http::interim::Interims;
use crate::http::relay::BodyError;
use crate::http::session::Session;
use crate::listen::client::Client;
use crate::listen::patience::{self, Patience};

/// How often, and how many times, a reply that breaks off looks whether all of it was written. A client that takes nothing for a second does
/// not need the rest.
const LOOK: Duration = Duration::from_millis(2);
const LOOKS: u32 = 500;

/// What the replies of one connection share.
pub(super) struct Replies {
    session: Arc<Session>,
    conduct: Arc<Mutex<Conduct>>,
}

/// One stream's exchange, begun. Small, since it is moved into a task: what is large stands behind `answer`.
pub(super) struct Reply<F> {
    answer: Pin<Box<F>>,
    respond: SendResponse<Bytes>,
    interims: Arc<Interims>,
    client: Arc<Client>,
    conduct: Arc<Mutex<Conduct>>,
    patience: Patience,
    /// Bytes per second that the client takes at least.
    min_rate: u32,
    is_head: bool,
}

/// An exchange on its way to its answer.
pub(super) trait Answer: Future<Output = Result<Response<AnswerBody>, Infallible>> + Send + 'static {}

impl<F: Future<Output = Result<Response<AnswerBody>, Infallible>> + Send + 'static> Answer for F {}

/// A stream came to its end before its time: the client wants no more of it, or its connection is gone.
struct Gone;

impl Replies {
    pub fn new(session: Arc<Session>, conduct: Arc<Mutex<Conduct>>) -> Self {
        Self { session, conduct }
    }

    /// Everything of a request that needs no waiting, in the order in which requests come.
    pub fn begin(&self, request: Request<RecvStream>, respond: SendResponse<Bytes>) -> Reply<impl Answer> {
        let (mut parts, stream) = request.into_parts();
        join_cookies(&mut parts.headers);
        let is_head = parts.method == Method::HEAD;
        let incoming = Incoming::H2(Stream::new(stream, &parts.headers));
        let interims = Arc::<Interims>::default();
        let session = Arc::clone(&self.session);
        let client = Arc::clone(&session.client);
        let patience = Patience::new(session.gateway.limits.stalled_write);
        let request = Request::from_parts(parts, incoming);
        let (exchange, request, routed) = Exchange::begin(session, request, Some(Arc::clone(&interims)));
        let min_rate = routed.as_ref().map_or(0, |routed| routed.destination.rules.min_rate);
        let conduct = Arc::clone(&self.conduct);
        Reply { answer: exchange.answer(request, routed), respond, interims, client, conduct, patience, min_rate, is_head }
    }
}

impl<F: Answer> Reply<F> {
    /// Answers it.
    pub async fn run(self) {
        let Self { answer, mut respond, interims, client, conduct, patience, min_rate, is_head } = self;
        let Ok(response) = head(answer, &mut respond, &interims).await else { return };
        let (mut parts, body) = response.map(AnswerBody::failing_at_once).into_parts();
        let ends = is_head || body.is_end_stream();
        complete(&mut parts.headers, parts.status, &body, is_head);
        let sender = match respond.send_response(Response::from_parts(parts, ()), ends) {
            Ok(sender) => sender,
            Err(error) => return tracing::debug!(%error, "an answer cannot be sent"),
        };
        let mut sending = Sending { sender, patience, min_rate, conduct: &conduct, client: &client };
        let sent = if ends { Ok(()) } else { sending.send(pin!(body)).await };
        if sent.is_ok() {
            conduct.lock().unwrap_or_else(PoisonError::into_inner).handle_answered();
        }
    }
}

/// The head of the answer. Interim ones are sent as they come.
async fn head<F: Answer>(
    mut answer: Pin<Box<F>>,
    respond: &mut SendResponse<Bytes>,
    interims: &Interims,
) -> Result<Response<AnswerBody>, Gone> {
    std::future::poll_fn(|cx| {
        if respond.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Gone));
        }
        let polled = answer.as_mut().poll(cx).map_err(|never| match never {});
        for interim in interims.take() {
            if let Err(error) = respond.send_informational(interim) {
                tracing::debug!(%error, "an interim response cannot be sent");
            }
        }
        polled
    })
    .await
}

/// RFC 9113 section 8.2.3: a client may cut its cookies into several fields, so that they compress better. Others expect one.
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    if crumbs.next().is_none() || crumbs.next().is_none() {
        return;
    }
    let joined = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b"; "[..]);
    if let Ok(joined) = HeaderValue::from_bytes(&joined) {
        headers.insert(header::COOKIE, joined);
    }
}

/// Makes an answer's head one for HTTP/2 (RFC 9113 section 8.2.2), with what hyper adds over HTTP/1: date and length.
fn complete(headers: &mut HeaderMap, status: StatusCode, body: &AnswerBody, is_head: bool) {
    forward::remove_connection_fields(headers);
    if !headers.contains_key(header::DATE)
        && let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now()))
    {
        headers.insert(header::DATE, date);
    }
    let has_length = !is_head && status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED;
    if has_length
        && !headers.contains_key(header::CONTENT_LENGTH)
        && let Some(length) = body.size_hint().exact()
    {
        headers.insert(header::CONTENT_LENGTH, length.into());
    }
}

/// A body on its way to the client.
struct Sending<'a> {
    sender: SendStream<Bytes>,
    patience: Patience,
    min_rate: u32,
    conduct: &'a Mutex<Conduct>,
    client: &'a Client,
}

impl Sending<'_> {
    async fn send(&mut self, mut body: Pin<&mut AnswerBody>) -> Result<(), Gone> {
        loop {
            match self.next_frame(body.as_mut()).await? {
                None => return self.end(),
                Some(Err(error)) => return self.reset(&error).await,
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let is_last = body.is_end_stream();
                        self.send_data(body.as_mut(), data, is_last).await?;
                        if is_last {
                            return Ok(());
                        }
                    }
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        return self.sender.send_trailers(trailers).map_err(|_| Gone);
                    }
                },
            }
        }
    }

    async fn next_frame(&mut self, mut body: Pin<&mut AnswerBody>) -> Result<Option<Result<Frame<Bytes>, BodyError>>, Gone> {
        std::future::poll_fn(|cx| {
            if self.sender.poll_reset(cx).is_ready() {
                return Poll::Ready(Err(Gone));
            }
            body.as_mut().poll_frame(cx).map(Ok)
        })
        .await
    }

    /// Sends `data` as the client makes room. Meanwhile what is left of the request flows on, or a client that sends all before it reads
    /// would wait for ever.
    async fn send_data(&mut self, mut body: Pin<&mut AnswerBody>, mut data: Bytes, is_last: bool) -> Result<(), Gone> {
        if data.is_empty() {
            return if is_last { self.end() } else { Ok(()) };
        }
        let Self { sender, patience, min_rate, conduct, .. } = self;
        std::future::poll_fn(|cx| {
            let (before, waited) = (data.len(), patience.waits());
            let sent = poll_send(cx, sender, &mut data, is_last);
            let taken = before - data.len();
            if taken > 0 {
                patience.note_progress(taken, *min_rate);
            }
            if waited != sent.is_pending() || (waited && taken > 0) {
                let waits = sent.is_pending();
                body.note_reading(Reading { waits, taken: if waited { taken as u64 } else { 0 }, min_rate: *min_rate });
            }
            if sent.is_ready() {
                return sent.map_err(std::io::Error::other);
            }
            body.as_mut().drive(cx);
            if body.poll_cut(cx).is_ready() {
                return Poll::Ready(Err(patience::others_wait()));
            }
            patience
                .poll_exhausted(cx)
                .map(|()| Err(std::io::Error::new(std::io::ErrorKind::TimedOut, "the client reads too slowly")))
        })
        .await
        .map_err(|error| {
            tracing::debug!(%error, "an answer could not be sent to its client");
            sender.send_reset(Reason::CANCEL);
            Gone
        })?;
        conduct.lock().unwrap_or_else(PoisonError::into_inner).handle_data_sent();
        Ok(())
    }

    fn end(&mut self) -> Result<(), Gone> {
        self.sender.send_data(Bytes::new(), true).map_err(|_| Gone)
    }

    /// What was sent is not all: the client must not take it for that. A reset overtakes what waits to be written, so that is written first.
    async fn reset(&mut self, error: &BodyError) -> Result<(), Gone> {
        tracing::debug!(%error, "an answer was cut off");
        let before = self.client.flushes();
        for _ in 0..LOOKS {
            if self.client.flushes() != before {
                break;
            }
            tokio::time::sleep(LOOK).await;
        }
        self.sender.send_reset(Reason::INTERNAL_ERROR);
        Err(Gone)
    }
}
