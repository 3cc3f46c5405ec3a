//! HTTP/2 with clients: the same requests as over HTTP/1, many on one connection, and what happens to clients that abuse it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weal_gateway::Limits;

use crate::apart::Apart;
use crate::bed::{Bed, PATIENCE, cluster, gate, instance, limits, named, nobody, raw_instance};

/// What a client says first.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// SETTINGS without any.
pub const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// A connection of a client, which a task drives.
pub async fn connect(bed: &Bed) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(bed.address).await.unwrap();
    let (sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    sender
}

pub fn request(method: &str, uri: &str) -> http::request::Builder {
    Request::builder().method(method).uri(uri)
}

/// Sends a request without a body.
pub fn send(client: &mut SendRequest<Bytes>, request: http::request::Builder) -> ResponseFuture {
    client.send_request(request.body(()).unwrap(), true).unwrap().0
}

/// Begins a request with a body.
pub fn begin(client: &mut SendRequest<Bytes>, request: http::request::Builder) -> (ResponseFuture, SendStream<Bytes>) {
    client.send_request(request.body(()).unwrap(), false).unwrap()
}

pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// The body to its end, with the trailers.
pub async fn read_all(mut body: RecvStream) -> Result<(Vec<u8>, Option<HeaderMap>), h2::Error> {
    let mut all = Vec::new();
    while let Some(data) = within("more of a body", body.data()).await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        all.extend_from_slice(&data);
    }
    Ok((all, body.trailers().await?))
}

/// An answer with its body as text.
pub async fn answer(response: ResponseFuture) -> (http::response::Parts, String) {
    let (parts, body) = within("an answer", response).await.unwrap().into_parts();
    let (body, _) = read_all(body).await.unwrap();
    (parts, String::from_utf8(body).unwrap())
}

/// An instance that says what it was sent.
async fn told() -> SocketAddr {
    instance(|request| async move {
        let (parts, body) = request.into_parts();
        let mut lines = vec![format!("{} {} {:?}", parts.method, parts.uri, parts.version)];
        lines.extend(parts.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())));
        let body = body.collect().await.unwrap().to_bytes();
        lines.push(String::from_utf8(body.to_vec()).unwrap());
        Response::new(Full::from(lines.join("\n")))
    })
    .await
}

#[tokio::test]
async fn a_request_over_http2_reaches_an_instance_as_one_over_http1() {
    let bed = Bed::start(vec![cluster(&[told().await])]).await;
    let mut client = connect(&bed).await;
    let crumbs = request("GET", "http://shop.test/a?b=1").header("cookie", "a=1").header("cookie", "b=2");
    let (parts, text) = answer(send(&mut client, crumbs)).await;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((parts.status.as_u16(), lines[0]), (200, "GET /a?b=1 HTTP/1.1"));
    for line in ["host: shop.test", "cookie: a=1; b=2", "via: 2.0 weal", "x-forwarded-host: shop.test", "x-forwarded-proto: http"]
    {
        assert!(lines.contains(&line), "{line} is missing in {text}");
    }
    for name in ["x-request-id", "date", "content-length"] {
        assert!(parts.headers.contains_key(name), "{name} is missing in {parts:?}");
    }
    assert!(!parts.headers.contains_key("connection"));
}

#[tokio::test]
async fn bodies_pass_whether_or_not_their_length_is_known() {
    let bed = Bed::start(vec![cluster(&[told().await])]).await;
    let mut client = connect(&bed).await;
    for (method, length) in [("POST", Some("9")), ("POST", None), ("GET", None)] {
        let mut head = request(method, "http://shop.test/");
        if let Some(length) = length {
            head = head.header("content-length", length);
        }
        let (response, mut body) = begin(&mut client, head);
        body.send_data("some ".into(), false).unwrap();
        body.send_data("body".into(), true).unwrap();
        let (parts, text) = answer(response).await;
        assert_eq!((parts.status.as_u16(), text.lines().last().unwrap()), (200, "some body"), "{method} {length:?}");
    }
}

#[tokio::test]
async fn exchanges_of_one_connection_do_not_wait_for_each_other() {
    let gate = gate().await;
    let bed = Bed::start(vec![cluster(&[gate.address])]).await;
    let mut client = connect(&bed).await;
    let waiting: Vec<ResponseFuture> =
        (0..20).map(|number| send(&mut client, request("GET", &format!("http://shop.test/{number}")))).collect();
    bed.until("all are there", |counters| counters.flows[0].in_service == 20).await;
    assert_eq!(bed.observe().await.connections, 1);
    gate.permits.add_permits(20);
    for (number, response) in waiting.into_iter().enumerate() {
        assert_eq!(answer(response).await.1, format!("/{number}"));
    }
}

#[tokio::test]
async fn what_goes_wrong_is_answered_as_over_http1() {
    let mut shop = cluster(&[nobody().await]);
    shop.routes[0].host = Some("shop.test".into());
    let bed = Bed::start(vec![shop]).await;
    let mut client = connect(&bed).await;
    let reason = |parts: &http::response::Parts| parts.headers["x-weal-reason"].to_str().unwrap().to_owned();
    for (head, expected) in [
        (request("GET", "http://other.test/"), (404, "no-route")),
        (request("GET", "http://shop.test/"), (502, "instance-refused")),
        (request("GET", "http://user@shop.test/"), (400, "malformed")),
        (request("GET", "http://shop.test/").header("host", "other.test"), (400, "malformed")),
        (request("CONNECT", "shop.test:443"), (405, "malformed")),
    ] {
        let (parts, text) = answer(send(&mut client, head)).await;
        assert_eq!((parts.status.as_u16(), reason(&parts).as_str()), expected, "{text}");
    }
    let many = (0..200).fold(request("GET", "http://shop.test/"), |head, number| head.header(format!("x-{number}"), "1"));
    assert_eq!(answer(send(&mut client, many)).await.0.status, 431);
    let (parts, _) = answer(send(&mut client, request("HEAD", "http://other.test/"))).await;
    assert_eq!(parts.status, 404);
}

#[tokio::test]
async fn a_stream_that_its_client_resets_frees_its_seat() {
    let gate = gate().await;
    let bed = Bed::start(vec![cluster(&[gate.address])]).await;
    let mut client = connect(&bed).await;
    let (response, mut sender) = client.send_request(request("GET", "http://shop.test/").body(()).unwrap(), true).unwrap();
    bed.until("it is there", |counters| counters.flows[0].in_service == 1).await;
    sender.send_reset(Reason::CANCEL);
    drop(response);
    bed.until("it has gone", |counters| counters.flows[0].in_service == 0).await;
    gate.permits.add_permits(2);
    assert_eq!(answer(send(&mut client, request("GET", "http://shop.test/b"))).await.0.status, 200, "the connection goes on");
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_taken_for_a_whole_one() {
    let broken = raw_instance(|mut stream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\npart\r\n").await;
    })
    .await;
    let bed = Bed::start(vec![cluster(&[broken])]).await;
    let mut client = connect(&bed).await;
    let response = within("a head", send(&mut client, request("GET", "http://shop.test/"))).await.unwrap();
    let broken = read_all(response.into_body()).await.unwrap_err();
    assert_eq!(broken.reason(), Some(Reason::INTERNAL_ERROR));
}

#[tokio::test]
async fn interim_responses_reach_clients() {
    let early = raw_instance(|mut stream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        let interim = "HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n";
        let answer = format!("{interim}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.read(&mut [0; 1024]).await;
    })
    .await;
    let bed = Bed::start(vec![cluster(&[early])]).await;
    let mut client = connect(&bed).await;
    let mut response = send(&mut client, request("GET", "http://shop.test/"));
    let interim = within("an interim response", std::future::poll_fn(|cx| response.poll_informational(cx))).await;
    let interim = interim.unwrap().unwrap();
    assert_eq!((interim.status().as_u16(), interim.headers()["link"].as_bytes()), (103, &b"</a>; rel=preload"[..]));
    assert_eq!(answer(response).await.1, "ok");
}

#[tokio::test]
async fn trailers_of_an_instance_of_http1_reach_clients() {
    let checked = raw_instance(|mut stream| async move {
        let _ = stream.read(&mut [0; 1024]).await;
        // What speaks of a connection is no trailer, and h2 would break the answer off.
        let trailers = "x-checksum: 7\r\nconnection: x\r\ntransfer-encoding: chunked\r\nset-cookie: a=b\r\n";
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n{trailers}\r\n");
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.read(&mut [0; 1024]).await;
    })
    .await;
    let bed = Bed::start(vec![cluster(&[checked])]).await;
    let mut client = connect(&bed).await;
    let response = within("a head", send(&mut client, request("GET", "http://shop.test/"))).await.unwrap();
    let (body, trailers) = read_all(response.into_body()).await.unwrap();
    let trailers = trailers.unwrap();
    assert_eq!((body.as_slice(), &trailers["x-checksum"], trailers.len()), (&b"ok"[..], &"7".parse().unwrap(), 1));
}

#[tokio::test]
async fn a_client_that_waits_to_be_told_to_go_on_is_told() {
    let bed = Bed::start(vec![cluster(&[told().await])]).await;
    let mut client = connect(&bed).await;
    let head = request("POST", "http://shop.test/").header("expect", "100-continue");
    let (mut response, mut body) = begin(&mut client, head);
    let interim = within("100", std::future::poll_fn(|cx| response.poll_informational(cx))).await;
    assert_eq!(interim.unwrap().unwrap().status(), 100);
    body.send_data("told".into(), true).unwrap();
    assert_eq!(answer(response).await.1.lines().last().unwrap(), "told");
}

#[tokio::test]
async fn a_connection_drains_when_the_gateway_ends() {
    let gate = gate().await;
    let mut bed = Bed::start(vec![cluster(&[gate.address])]).await;
    let mut client = connect(&bed).await;
    let response = send(&mut client, request("GET", "http://shop.test/last"));
    bed.until("it is there", |counters| counters.flows[0].in_service == 1).await;
    bed.stop.take().unwrap().send(()).unwrap();
    let refused = async {
        loop {
            match client.clone().ready().await {
                Err(error) => return error,
                Ok(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    assert_eq!(within("GOAWAY", refused).await.reason(), Some(Reason::NO_ERROR));
    gate.permits.add_permits(1);
    assert_eq!(answer(response).await.1, "/last", "what was under way is answered");
    within("the gateway ends", &mut bed.ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed_in_order() {
    let bed =
        Bed::start_with(vec![cluster(&[named("one").await])], Limits { idle: Duration::from_millis(300), ..limits() }).await;
    let stream = TcpStream::connect(bed.address).await.unwrap();
    let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
    let ended = tokio::spawn(connection);
    assert_eq!(answer(send(&mut client, request("GET", "http://shop.test/"))).await.1, "one");
    within("the connection ends", ended).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_preface_may_come_in_pieces_and_http1_is_spoken_beside_it() {
    let bed = Bed::start(vec![cluster(&[named("one").await])]).await;
    let mut stream = TcpStream::connect(bed.address).await.unwrap();
    for part in PREFACE.chunks(5) {
        stream.write_all(part).await.unwrap();
        tokio::task::yield_now().await;
    }
    stream.write_all(&SETTINGS).await.unwrap();
    let mut head = [0; 9];
    within("settings", stream.read_exact(&mut head)).await.unwrap();
    assert_eq!(head[3], 4, "the gateway's own settings");
    assert_eq!(bed.get("shop.test", "/").await.text(), "one");
    let mut client = bed.connect().await;
    for part in ["P", "UT / HTTP/1.1\r\nhost: shop.test\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx"] {
        client.send(part).await;
    }
    assert!(String::from_utf8(client.read_to_end().await).unwrap().ends_with("one"));
}

/// A raw client that has said its preface; what the gateway sends is read to no purpose.
async fn raw(bed: &Bed) -> TcpStream {
    let mut stream = TcpStream::connect(bed.address).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&SETTINGS).await.unwrap();
    stream
}

/// What a client sends next, by how often it has sent something.
type Flood = Box<dyn FnMut(u32) -> Vec<u8>>;

/// The code of the GOAWAY with which the gateway answers `flood`, sent for as long as it takes.
async fn answered_with(bed: &Bed, mut flood: impl FnMut(u32) -> Vec<u8>) -> u32 {
    let (mut reader, mut writer) = raw(bed).await.into_split();
    let written = async {
        let mut number = 0;
        loop {
            number += 1;
            if writer.write_all(&flood(number)).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    let read = async {
        let mut all = Vec::new();
        while matches!(reader.read_buf(&mut all).await, Ok(count) if count > 0) {}
        all
    };
    let all = within("the gateway ends it", async {
        tokio::select! { () = written => unreachable!(), all = read => all }
    })
    .await;
    goaway(&all).expect("a GOAWAY")
}

fn goaway(mut bytes: &[u8]) -> Option<u32> {
    while bytes.len() >= 9 {
        let length = usize::from(bytes[1]) << 8 | usize::from(bytes[2]);
        if bytes[3] == 7 {
            return bytes.get(13..17).map(|code| u32::from_be_bytes(code.try_into().unwrap()));
        }
        bytes = bytes.get(9 + length..)?;
    }
    None
}

pub fn frame(of: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[of, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET http://a/` in HPACK: three entries of the static table and one literal.
pub const HEADERS: [u8; 6] = [0x82, 0x86, 0x84, 0x41, 0x01, b'a'];

#[tokio::test]
async fn floods_end_the_connection_and_are_counted() {
    const ENHANCE_YOUR_CALM: u32 = 11;
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let slow = instance(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { std::future::pending().await }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[slow])]).await;
    let floods: [(&str, Flood); 5] = [
        ("pings", Box::new(|_| frame(6, 0, 0, &[0; 8]))),
        ("settings", Box::new(|_| SETTINGS.to_vec())),
        ("priorities", Box::new(|number| frame(2, 0, number * 2 + 1, &[0, 0, 0, 0, 1]))),
        (
            "rapid reset",
            Box::new(|number| [frame(1, 5, number * 2 - 1, &HEADERS), frame(3, 0, number * 2 - 1, &[0, 0, 0, 8])].concat()),
        ),
        ("continuations", Box::new(|number| if number == 1 { frame(1, 1, 1, &HEADERS) } else { frame(9, 0, 1, &[]) })),
    ];
    for (name, flood) in floods {
        assert_eq!(answered_with(&bed, flood).await, ENHANCE_YOUR_CALM, "{name}");
    }
    let counters = bed.until("all have gone", |counters| counters.connections == 0 && counters.flows[0].in_service == 0).await;
    assert!(counters.abusive >= 3, "{}", counters.abusive);
    assert!(served.load(Ordering::Relaxed) < 1000, "an instance got {} of the requests", served.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_an_answer_loses_its_stream() {
    let large = instance(|_| async { Response::new(Full::from(vec![b'x'; 1 << 20])) }).await;
    let bed = Bed::start_with(vec![cluster(&[large])], Limits { stalled_write: Duration::from_millis(300), ..limits() }).await;
    let mut client = connect(&bed).await;
    let response = within("a head", send(&mut client, request("GET", "http://shop.test/"))).await.unwrap();
    let mut body = response.into_body();
    let ended = async {
        loop {
            match body.data().await {
                // Nothing is released: the window stays closed.
                Some(Ok(_)) => {}
                Some(Err(error)) => return error.reason(),
                None => return None,
            }
        }
    };
    assert_eq!(within("a reset", ended).await, Some(Reason::CANCEL));
    bed.until("its seat is free", |counters| counters.flows[0].in_service == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_take_nothing_never_hold_all_seats() {
    let sized = instance(|request| async move {
        let length = if request.uri().path() == "/good" { 4 } else { 16 << 20 };
        Response::new(Full::from(vec![b'x'; length]))
    })
    .await;
    let mut limited = cluster(&[sized]);
    limited.seats = Some(2);
    let bed = Bed::start(vec![limited]).await;
    let (mut slow, mut good) = (connect(&bed).await, connect(&bed).await);
    let mut bodies = Vec::new();
    for _ in 0..3 {
        let response = within("a head", send(&mut slow, request("GET", "http://shop.test/slow"))).await.unwrap();
        bodies.push(response.into_body());
    }
    bed.until("they take nothing", |counters| counters.flows[0].at_clients == 3).await;
    assert_eq!(answer(send(&mut good, request("GET", "http://shop.test/good"))).await.1, "xxxx");
    let counters = bed.until("one was cut off", |counters| counters.flows[0].in_service == 2).await;
    assert_eq!((counters.flows[0].at_clients, counters.flows[0].errors), (2, 1));
    let reset = std::future::poll_fn(|cx| {
        for body in &mut bodies {
            while let Poll::Ready(Some(data)) = body.poll_data(cx) {
                if let Err(error) = data {
                    return Poll::Ready(error.reason());
                }
            }
        }
        Poll::Pending
    });
    assert_eq!(within("a reset", reset).await, Some(Reason::CANCEL));
}

#[tokio::test]
async fn a_header_bomb_is_refused() {
    let bed = Bed::start(vec![cluster(&[named("one").await])]).await;
    let mut client = connect(&bed).await;
    let bomb =
        (0..20).fold(request("GET", "http://shop.test/"), |head, number| head.header(format!("x-{number}"), "y".repeat(4000)));
    assert_eq!(answer(send(&mut client, bomb)).await.0.status, 431);
    assert_eq!(answer(send(&mut client, request("GET", "http://shop.test/"))).await.1, "one", "the connection goes on");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_take_nothing_hold_no_more_memory_than_their_streams_may() {
    const CONNECTIONS: u32 = 4;
    const STREAMS: u32 = 128;
    let large = instance(|_| async { Response::new(Full::from(vec![b'x'; 1 << 20])) }).await;
    let gateway = Apart::start(large).await;
    let before = gateway.peak_kib();
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(gateway.address).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        // Windows as large as they can be, so that only the socket stops the gateway.
        stream.write_all(&frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])).await.unwrap();
        stream.write_all(&frame(8, 0, 0, &0x7fff_0000_u32.to_be_bytes())).await.unwrap();
        for number in 0..STREAMS {
            stream.write_all(&frame(1, 5, number * 2 + 1, &HEADERS)).await.unwrap();
        }
        held.push(stream);
    }
    let grown_kib = gateway.settled_peak_kib().await - before;
    // Each stream: 64 KiB that wait in h2, as much on the way to it, what hyper has read of the instance, and what an allocator takes besides.
    let bound_kib = u64::from(CONNECTIONS * STREAMS) * 320;
    assert!(grown_kib > u64::from(CONNECTIONS * STREAMS) * 16, "{grown_kib} KiB: the streams are held");
    assert!(grown_kib < bound_kib, "{grown_kib} KiB of {bound_kib}");
    assert_eq!(gateway.first_status().await, Some(200), "others are served meanwhile");
}

#[tokio::test]
async fn no_request_of_either_version_is_lost_while_the_config_changes() {
    let (one, two) = (named("one").await, named("two").await);
    let bed = Arc::new(Bed::start(vec![cluster(&[one])]).await);
    let over_h1 = {
        let bed = Arc::clone(&bed);
        tokio::spawn(async move {
            let mut client = bed.connect().await;
            for _ in 0..1000 {
                client.send("GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n").await;
                assert_eq!(client.read_answer().await.status, 200);
            }
        })
    };
    let over_h2 = {
        let bed = Arc::clone(&bed);
        tokio::spawn(async move {
            let mut client = connect(&bed).await;
            for _ in 0..100 {
                let sent: Vec<_> = (0..10).map(|_| send(&mut client, request("GET", "http://shop.test/"))).collect();
                for response in sent {
                    assert_eq!(answer(response).await.0.status, 200);
                }
            }
        })
    };
    let mut round = 0;
    while !(over_h1.is_finished() && over_h2.is_finished()) {
        round += 1;
        let address = if round % 2 == 0 { one } else { two };
        bed.configure(vec![cluster(&[address])]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    over_h1.await.unwrap();
    over_h2.await.unwrap();
    let counters = bed.observe().await;
    assert_eq!(counters.flows[0].errors, 0);
}
