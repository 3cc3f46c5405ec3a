//! Instances that speak HTTP/2: gRPC from end to end, with a service of these tests' own, and what is sent again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use weal_model::InstanceProtocol;
use weal_protocol::gateway::ClusterConfig;

use crate::bed::{Bed, cluster, nobody, raw_instance};
use crate::h2::{answer, begin, connect, read_all, request, send, within};

/// A cluster of instances that speak HTTP/2.
pub fn calls(addresses: &[SocketAddr]) -> ClusterConfig {
    let mut cluster = cluster(addresses);
    cluster.http.protocol = InstanceProtocol::H2c;
    cluster
}

/// An instance that does with each stream what `serve` says, given how many connections there were before.
pub async fn instance<F>(
    serve: impl Fn(u32, Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + Clone + 'static,
) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut connections = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let (serve, number) = (serve.clone(), connections);
            connections += 1;
            tokio::spawn(async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(serve(number, request, respond));
                }
            });
        }
    });
    address
}

/// A message with its prefix: not compressed, so long.
fn message(text: &str) -> Bytes {
    let mut framed = BytesMut::new();
    framed.put_u8(0);
    framed.put_u32(u32::try_from(text.len()).unwrap());
    framed.put_slice(text.as_bytes());
    framed.freeze()
}

fn status(status: &'static str) -> HeaderMap {
    HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static(status))])
}

fn grpc_head() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).unwrap()
}

/// Says each message back as it comes, and OK at the end.
async fn echo(_: u32, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    assert_eq!(request.headers()["te"], "trailers");
    assert_eq!(request.uri().to_string(), "http://calls.test/echo.Echo/Say");
    assert!(!request.headers().contains_key("host") && !request.headers().contains_key("connection"));
    let mut stream = respond.send_response(grpc_head(), false).unwrap();
    let mut body = request.into_body();
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
        stream.send_data(data, false).unwrap();
    }
    stream.send_trailers(status("0")).unwrap();
}

fn call(client: &mut SendRequest<Bytes>) -> (ResponseFuture, SendStream<Bytes>) {
    let head =
        request("POST", "http://calls.test/echo.Echo/Say").header("content-type", "application/grpc").header("te", "trailers");
    begin(client, head)
}

#[tokio::test]
async fn a_unary_call_brings_its_status_in_trailers() {
    let bed = Bed::start(vec![calls(&[instance(echo).await])]).await;
    let mut client = connect(&bed).await;
    let (response, mut sender) = call(&mut client);
    sender.send_data(message("hello"), true).unwrap();
    let (parts, body) = within("an answer", response).await.unwrap().into_parts();
    assert_eq!((parts.status.as_u16(), &parts.headers["content-type"]), (200, &HeaderValue::from_static("application/grpc")));
    let (body, trailers) = read_all(body).await.unwrap();
    assert_eq!((body.as_slice(), &trailers.unwrap()["grpc-status"]), (&message("hello")[..], &HeaderValue::from_static("0")));
}

#[tokio::test]
async fn both_sides_of_a_call_stream_at_once() {
    let bed = Bed::start(vec![calls(&[instance(echo).await])]).await;
    let mut client = connect(&bed).await;
    let (response, mut sender) = call(&mut client);
    let mut body = within("a head before the first message", response).await.unwrap().into_body();
    for number in 0..50 {
        let said = message(&format!("message {number}"));
        sender.send_data(said.clone(), false).unwrap();
        let heard = within("an echo before the next message", body.data()).await.unwrap().unwrap();
        body.flow_control().release_capacity(heard.len()).unwrap();
        assert_eq!(heard, said);
    }
    sender.send_data(Bytes::new(), true).unwrap();
    assert!(within("the end", body.data()).await.is_none());
    assert_eq!(body.trailers().await.unwrap().unwrap()["grpc-status"], "0");
}

#[tokio::test]
async fn a_client_that_sends_all_before_it_reads_is_served() {
    let bed = Bed::start(vec![calls(&[instance(echo).await])]).await;
    let stream = TcpStream::connect(bed.address).await.unwrap();
    let mut builder = h2::client::Builder::new();
    let (mut client, connection) = builder.initial_window_size(1000).handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(connection);
    let (response, mut sender) = call(&mut client);
    // The echo does not fit the client's window, but what the client sends fits the instance's memory.
    let said = message(&"x".repeat(60_000));
    sender.send_data(said.clone(), true).unwrap();
    let body = within("a head", response).await.unwrap().into_body();
    let counters = bed.until("it was taken", |counters| counters.flows[0].in_service == 1).await;
    assert_eq!(counters.flows[0].errors, 0);
    assert_eq!(read_all(body).await.unwrap().0, said);
}

#[tokio::test]
async fn many_calls_share_a_connection_to_the_instance() {
    let (most, count) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (seen, served) = (Arc::clone(&most), Arc::clone(&count));
    let address = instance(move |number, request, respond| {
        seen.fetch_max(number + 1, Ordering::Relaxed);
        served.fetch_add(1, Ordering::Relaxed);
        echo(number, request, respond)
    })
    .await;
    let bed = Bed::start(vec![calls(&[address])]).await;
    let mut client = connect(&bed).await;
    let mut waiting = Vec::new();
    for _ in 0..100 {
        let (response, mut sender) = call(&mut client);
        sender.send_data(message("x"), true).unwrap();
        waiting.push(response);
    }
    for response in waiting {
        assert_eq!(answer(response).await.0.status, 200);
    }
    assert_eq!((count.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (100, 1), "calls and connections");
}

#[tokio::test]
async fn a_client_that_cancels_a_call_cancels_it_at_the_instance() {
    let cancelled = Arc::new(tokio::sync::Notify::new());
    let told = Arc::clone(&cancelled);
    let address = instance(move |_, _request, mut respond| {
        let told = Arc::clone(&told);
        async move {
            let reset = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            assert_eq!(reset.unwrap(), Reason::CANCEL);
            told.notify_one();
        }
    })
    .await;
    let bed = Bed::start(vec![calls(&[address])]).await;
    let mut client = connect(&bed).await;
    let (response, mut sender) = call(&mut client);
    bed.until("it is there", |counters| counters.flows[0].in_service == 1).await;
    sender.send_reset(Reason::CANCEL);
    within("the instance learns of it", cancelled.notified()).await;
    drop(response);
}

#[tokio::test]
async fn refusals_of_calls_are_said_in_grpcs_words() {
    let mut shop = calls(&[nobody().await]);
    shop.routes[0].host = Some("calls.test".into());
    let bed = Bed::start(vec![shop]).await;
    let mut client = connect(&bed).await;
    for (host, expected) in [("calls.test", ("14", "instance-refused")), ("other.test", ("12", "no-route"))] {
        let head = request("POST", &format!("http://{host}/echo.Echo/Say")).header("content-type", "application/grpc+proto");
        let (parts, body) = within("an answer", send(&mut client, head)).await.unwrap().into_parts();
        assert!(body.is_end_stream(), "trailers only");
        let field = |name: &str| parts.headers[name].to_str().unwrap();
        assert_eq!((parts.status.as_u16(), (field("grpc-status"), field("x-weal-reason"))), (200, expected));
        assert!(field("grpc-message").len() > 10 && field("content-type") == "application/grpc");
    }
    let refused = bed.observe().await;
    assert_eq!(refused.unrouted, 1);
}

#[tokio::test]
async fn a_stream_that_an_instance_refuses_goes_to_another() {
    let refusing = instance(|_, _, mut respond| async move { respond.send_reset(Reason::REFUSED_STREAM) }).await;
    let serving = instance(|_, _, mut respond| async move {
        respond.send_response(Response::new(()), true).unwrap();
    })
    .await;
    let bed = Bed::start(vec![calls(&[refusing, serving])]).await;
    let mut client = connect(&bed).await;
    for _ in 0..20 {
        // POST is not idempotent: only what an instance has surely not begun with is sent again.
        assert_eq!(answer(send(&mut client, request("POST", "http://calls.test/"))).await.0.status, 200);
    }
    assert!(bed.observe().await.flows[0].retries > 0);
}

#[tokio::test]
async fn what_an_instance_may_have_begun_with_is_not_sent_again() {
    let count = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&count);
    let failing = instance(move |_, _, mut respond| {
        seen.fetch_add(1, Ordering::Relaxed);
        async move { respond.send_reset(Reason::INTERNAL_ERROR) }
    })
    .await;
    let bed = Bed::start(vec![calls(&[failing])]).await;
    let mut client = connect(&bed).await;
    assert_eq!(answer(send(&mut client, request("POST", "http://calls.test/"))).await.0.status, 502);
    assert_eq!(count.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn clients_of_http1_reach_instances_of_http2() {
    let address = instance(|_, request, mut respond| async move {
        let text = format!("{} {}", request.method(), request.uri());
        let (body, _) = read_all(request.into_body()).await.unwrap();
        let length = text.len() + body.len();
        let head = Response::builder().header("content-length", length).body(()).unwrap();
        let mut stream = respond.send_response(head, false).unwrap();
        stream.send_data(text.into(), false).unwrap();
        stream.send_data(body.into(), true).unwrap();
    })
    .await;
    let bed = Bed::start(vec![calls(&[address])]).await;
    let mut client = bed.connect().await;
    client.send("POST /a?b HTTP/1.1\r\nhost: calls.test\r\ntransfer-encoding: chunked\r\n\r\n5\r\n body\r\n0\r\n\r\n").await;
    assert_eq!(client.read_answer().await.text(), "POST http://calls.test/a?b body");
    client.send("GET / HTTP/1.1\r\nhost: calls.test\r\n\r\n").await;
    assert_eq!(client.read_answer().await.text(), "GET http://calls.test/");
}

#[tokio::test]
async fn what_came_after_the_last_stream_of_a_connection_goes_to_another_instance() {
    let leaving = raw_instance(|mut stream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        // SETTINGS, and a GOAWAY that says that not even the first stream was begun.
        let _ = stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
        let _ = stream.write_all(&[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).await;
        while matches!(stream.read(&mut [0; 1024]).await, Ok(count) if count > 0) {}
    })
    .await;
    let serving = instance(|_, _, mut respond| async move {
        respond.send_response(Response::new(()), true).unwrap();
    })
    .await;
    let bed = Bed::start(vec![calls(&[leaving, serving])]).await;
    let mut client = connect(&bed).await;
    for _ in 0..20 {
        assert_eq!(answer(send(&mut client, request("POST", "http://calls.test/"))).await.0.status, 200);
    }
    assert!(bed.observe().await.flows[0].retries > 0);
}

#[tokio::test]
async fn interim_responses_and_trailers_pass_in_both_directions() {
    let address = instance(|_, request, mut respond| async move {
        let early = Response::builder().status(103).header("link", "</a>").body(()).unwrap();
        respond.send_informational(early).unwrap();
        let (_, trailers) = read_all(request.into_body()).await.unwrap();
        let mut stream = respond.send_response(grpc_head(), false).unwrap();
        // What a client says about the way of its request counts for nothing, in trailers too.
        let mut said = trailers.unwrap();
        assert!(!said.contains_key("x-forwarded-for"));
        said.extend(status("0"));
        stream.send_trailers(said).unwrap();
    })
    .await;
    let bed = Bed::start(vec![calls(&[address])]).await;
    let mut client = connect(&bed).await;
    let (mut response, mut sender) = call(&mut client);
    let interim = within("an interim response", std::future::poll_fn(|cx| response.poll_informational(cx))).await;
    assert_eq!(interim.unwrap().unwrap().headers()["link"], "</a>");
    sender.send_data(message("x"), false).unwrap();
    let said = [("x-checksum", "7"), ("x-forwarded-for", "192.0.2.1")];
    let said = said.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
    sender.send_trailers(HeaderMap::from_iter(said)).unwrap();
    let body = within("an answer", response).await.unwrap().into_body();
    let trailers = read_all(body).await.unwrap().1.unwrap();
    assert_eq!(
        (&trailers["x-checksum"], &trailers["grpc-status"]),
        (&HeaderValue::from_static("7"), &HeaderValue::from_static("0"))
    );
}

/// h2 refuses to send such trailers, and without trailers the request would have no end.
#[tokio::test]
async fn trailers_that_speak_of_a_connection_do_not_keep_a_request_from_its_end() {
    let address = instance(|_, request, mut respond| async move {
        let (_, trailers) = read_all(request.into_body()).await.unwrap();
        let names: Vec<String> = trailers.unwrap_or_default().keys().map(ToString::to_string).collect();
        let text = names.join(" ");
        let head = Response::builder().header("content-length", text.len()).body(()).unwrap();
        respond.send_response(head, false).unwrap().send_data(text.into(), true).unwrap();
    })
    .await;
    let bed = Bed::start(vec![calls(&[address])]).await;
    let mut client = bed.connect().await;
    let fields = "Connection: x\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 1\r\nUpgrade: x\r\nTE: gzip\r\nCookie: a=b\r\nRange: bytes=0-1\r\n\
        If-Match: x\r\nAuthorization: x\r\nX-Sum: 7\r\n";
    client
        .send(&format!("POST / HTTP/1.1\r\nhost: calls.test\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{fields}\r\n"))
        .await;
    let answer = client.read_answer().await;
    assert_eq!((answer.status, answer.text().as_str()), (200, "x-sum"));
}
