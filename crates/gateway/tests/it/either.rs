//! What goes wrong where a client or an instance speaks HTTP/2: the faults that [`crate::exchange`] has over HTTP/1.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use h2::server::SendResponse;
use http::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weal_protocol::gateway::{ClusterConfig, GatewayCounters, Unavailable};

use crate::bed::*;
use crate::downgrade::{Field, block};
use crate::grpc::{calls, instance as instance_of_http2};
use crate::h2::{PREFACE, SETTINGS, answer, begin, connect, frame, read_all, request, send, within};

/// Flags of frames (RFC 9113 section 6).
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// HEADERS of the first stream, with more to come.
fn head(fields: &[Field]) -> Vec<u8> {
    frame(1, END_HEADERS, 1, &block(fields))
}

fn data(flags: u8, data: &str) -> Vec<u8> {
    frame(0, flags, 1, data.as_bytes())
}

fn reset(reason: Reason) -> Vec<u8> {
    frame(3, 0, 1, &u32::from(reason).to_be_bytes())
}

/// An instance that answers the first request of each connection with these frames.
async fn framing(answer: Vec<u8>) -> SocketAddr {
    raw_instance(move |mut stream| {
        let answer = [SETTINGS.to_vec(), answer.clone()].concat();
        async move {
            if read_request(&mut stream).await.is_ok() {
                let _ = stream.write_all(&answer).await;
                while matches!(stream.read(&mut [0; 4096]).await, Ok(1..)) {}
            }
        }
    })
    .await
}

/// Reads up to the head of a request.
async fn read_request(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.read_exact(&mut [0; PREFACE.len()]).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        stream.read_exact(&mut vec![0; length]).await?;
        if head[3] == 1 {
            return Ok(());
        }
    }
}

/// Answers at once, whatever is still to come of the request.
async fn refuse(mut respond: SendResponse<Bytes>, status: u16) {
    let head = Response::builder().status(status).header("content-length", 2).body(()).unwrap();
    // Its client may have gone.
    if let Ok(mut stream) = respond.send_response(head, false) {
        let _ = stream.send_data("no".into(), true);
    }
}

/// The same pool with instances of HTTP/1 and of HTTP/2.
fn either(over_h1: SocketAddr, over_h2: SocketAddr) -> [(&'static str, ClusterConfig); 2] {
    [("HTTP/1", cluster(&[over_h1, over_h1])), ("HTTP/2", calls(&[over_h2, over_h2]))]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_of_http2_that_breaks_its_rules_has_not_answered() {
    let bad: [&[Field]; 11] = [
        &[(":status", "200"), ("transfer-encoding", "chunked")],
        &[(":status", "200"), ("transfer-encoding", "gzip, chunked")],
        &[(":status", "200"), ("connection", "close")],
        &[(":status", "200"), ("content-length", "2"), ("content-length", "3")],
        &[(":status", "200"), ("content-length", "+2")],
        &[(":status", "200"), ("X-Large", "1")],
        &[(":status", "200"), ("x", "1\r\ny: 2")],
        &[("x", "1")],
        // Over HTTP/1 the client would take what follows for another protocol.
        &[(":status", "101")],
        &[(":status", "101"), ("upgrade", "websocket")],
        &[(":status", "103"), ("transfer-encoding", "chunked")],
    ];
    for fields in bad {
        // What would be a good answer follows those that are interim.
        let is_interim = fields[0].1.starts_with('1') && fields[0].0 == ":status";
        let rest = if is_interim { head(&[(":status", "200"), ("content-length", "2")]) } else { Vec::new() };
        let pool = vec![calls(&[framing([head(fields), rest, data(END_STREAM, "ok")].concat()).await])];
        let answered = Bed::start(pool.clone()).await.get("x", "/").await;
        assert_eq!(answered.status, 502, "{fields:?}: {}", answered.text());
        let bed = Bed::start(pool).await;
        let mut client = connect(&bed).await;
        assert_eq!(answer(send(&mut client, request("GET", "http://x/"))).await.0.status, 502, "over HTTP/2, {fields:?}");
    }
}

/// RFC 9113 section 8.1: by a reset without an error, a server says that it wants no more of the request. It says nothing of its response.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_reset_is_whole_only_where_its_end_came_before() {
    const OK: [Field; 1] = [(":status", "200")];
    const LONG: [Field; 2] = [(":status", "200"), ("content-length", "9")];
    for (frames, is_whole) in [
        ([head(&OK), data(END_STREAM, "part"), Vec::new()], true),
        ([head(&OK), data(END_STREAM, "part"), reset(Reason::NO_ERROR)], true),
        ([head(&OK), data(0, "part"), reset(Reason::NO_ERROR)], false),
        ([head(&OK), data(0, "part"), reset(Reason::CANCEL)], false),
        ([head(&LONG), data(0, "part"), reset(Reason::NO_ERROR)], false),
        ([head(&LONG), data(END_STREAM, "part"), Vec::new()], false),
    ] {
        let what = format!("{frames:?}");
        let pool = vec![calls(&[framing(frames.concat()).await])];
        let beds = [Bed::start(pool.clone()).await, Bed::start(pool).await];
        let answered = beds[0].get("x", "/").await;
        let is_ended = answered.status == 200 && answered.text().ends_with("4\r\npart\r\n0\r\n\r\n");
        assert_eq!(is_ended, is_whole, "{what}: {} {:?}", answered.status, answered.text());
        let mut client = connect(&beds[1]).await;
        let response = within("a head", send(&mut client, request("GET", "http://x/"))).await.unwrap();
        let is_ended = response.status() == 200 && read_all(response.into_body()).await.is_ok();
        assert_eq!(is_ended, is_whole, "over HTTP/2, {what}");
        for bed in beds {
            let ended = |counters: &GatewayCounters| counters.flows[0].completions + counters.flows[0].errors == 1;
            let counters = bed.until("it is counted", ended).await;
            let wrong = u64::from(!is_whole);
            assert_eq!((counters.flows[0].errors, counters.instances[0].failures), (wrong, wrong), "{what}");
        }
    }
}

/// Whatever reason its client gives, and whether or not the answer was there: a part is not taken for the whole.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_its_client_resets_has_no_end_for_the_instance() {
    for (answers, reason) in
        [(true, Reason::NO_ERROR), (true, Reason::CANCEL), (false, Reason::NO_ERROR), (false, Reason::CANCEL)]
    {
        let (told, mut heard) = tokio::sync::mpsc::channel(1);
        let address = raw_instance(move |mut stream| {
            let told = told.clone();
            async move {
                if read_head(&mut stream).await.is_none() {
                    return;
                }
                if answers {
                    stream.write_all(b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await.unwrap();
                }
                let mut all = Vec::new();
                while !all.ends_with(b"0\r\n\r\n") && matches!(stream.read_buf(&mut all).await, Ok(1..)) {}
                told.send(String::from_utf8(all).unwrap()).await.unwrap();
            }
        })
        .await;
        let bed = Bed::start(vec![cluster(&[address])]).await;
        let mut client = connect(&bed).await;
        let (response, mut body) = begin(&mut client, request("POST", "http://x/"));
        body.send_data("half".into(), false).unwrap();
        if answers {
            assert_eq!(answer(response).await.0.status, 202);
        } else {
            bed.until("it is at the instance", |counters| counters.flows[0].in_service == 1).await;
        }
        body.send_reset(reason);
        let got = within("the instance hears of it", heard.recv()).await.unwrap();
        assert!(!got.ends_with("0\r\n\r\n"), "answers {answers}, {reason:?}: {got:?}");
        let counters = bed.until("its seat is free", |counters| counters.flows[0].in_service == 0).await;
        assert_eq!(counters.instances[0].failures, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_before_the_end_of_their_requests_leave_a_connection_of_http2_that_works() {
    // Together more than the window of a connection: what nobody reads may not use it up.
    const UPLOADS: u64 = 40;
    let over_h1 = hasty(EARLY, false).await.0;
    let over_h2 = instance_of_http2(|_, _, respond| refuse(respond, 401)).await;
    for (what, pool) in either(over_h1, over_h2) {
        let bed = Bed::start(vec![pool]).await;
        let mut client = connect(&bed).await;
        let (mut asked, mut sent) = (0, 0);
        while sent < UPLOADS {
            let (response, mut body) = begin(&mut client, request("POST", "http://x/"));
            // The answer may have come before, and the stream is over then.
            sent += u64::from(body.send_data(vec![b'x'; 100_000].into(), true).is_ok());
            let (parts, text) = answer(response).await;
            asked += 1;
            assert_eq!((parts.status.as_u16(), text.as_str()), (401, "no"), "{what}, {asked}");
        }
        assert_eq!(answer(send(&mut client, request("GET", "http://x/"))).await.0.status, 401, "{what}");
        let counters = bed.until("all are counted", |counters| counters.flows[0].completions == asked + 1).await;
        let failures: u64 = counters.instances.iter().map(|instance| instance.failures).sum();
        assert_eq!((counters.flows[0].errors, failures, counters.connections), (0, 0, 1), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_break_off_is_never_counted_against_an_instance_of_either_version() {
    let reading = crate::raw::Recorder::start().await;
    let over_h2 = instance_of_http2(|_, request, respond| async move {
        if read_all(request.into_body()).await.is_ok() {
            refuse(respond, 200).await;
        }
    })
    .await;
    for (what, pool) in either(reading.address, over_h2) {
        let bed = Bed::start(vec![pool]).await;
        let there = || bed.until("it is there", |counters| counters.flows[0].in_service == 1);
        let gone = || bed.until("it is gone", |counters| counters.flows[0].in_service == 0);
        for _ in 0..6 {
            let mut client = connect(&bed).await;
            let (_response, mut body) = begin(&mut client, request("POST", "http://x/"));
            body.send_data("half".into(), false).unwrap();
            there().await;
            body.send_reset(Reason::CANCEL);
            gone().await;
        }
        for _ in 0..6 {
            let stream = TcpStream::connect(bed.address).await.unwrap();
            let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
            let driving = tokio::spawn(connection);
            let (_response, mut body) = begin(&mut client, request("POST", "http://x/"));
            body.send_data("half".into(), false).unwrap();
            there().await;
            driving.abort();
            gone().await;
        }
        for body in ["4\r\nabcdXX", "4\r\nab"] {
            for _ in 0..6 {
                let mut client = bed.connect().await;
                client.send(&format!("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{body}")).await;
                client.stream.shutdown().await.unwrap();
                assert_eq!(Answer::parse(&client.read_to_end().await).status, 400, "{what}, {body:?}");
            }
        }
        let counters = bed.observe().await;
        let failures: u64 = counters.instances.iter().map(|instance| instance.failures).sum();
        assert_eq!(failures, 0, "{what}");
        assert!(counters.instances.iter().all(|instance| instance.open), "{what}");
        assert_eq!(bed.get("x", "/").await.status, 200, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http2_that_asks_first_and_is_refused_sends_no_body() {
    let over_h1 = hasty("HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno", false).await.0;
    let over_h2 = instance_of_http2(|_, _, respond| refuse(respond, 413)).await;
    for (what, pool) in either(over_h1, over_h2) {
        let bed = Bed::start(vec![pool]).await;
        let mut client = connect(&bed).await;
        for _ in 0..3 {
            let asking = request("POST", "http://x/").header("expect", "100-continue").header("content-length", 9_999_999);
            let (mut response, _body) = begin(&mut client, asking);
            let interim = within("no interim answer", std::future::poll_fn(|cx| response.poll_informational(cx))).await;
            assert!(interim.is_none(), "{what}: it is told to go on");
            assert_eq!(answer(response).await.0.status, 413, "{what}");
        }
        assert_eq!(bed.observe().await.connections, 1, "{what}: its connection goes on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_over_http2_may_take_longer_than_the_time_for_requests_as_long_as_bytes_flow() {
    let reading = crate::raw::Recorder::start().await;
    let mut hurried = cluster(&[reading.address]);
    hurried.request_timeout_s = 0.4;
    let bed = Bed::start(vec![hurried]).await;
    let mut client = connect(&bed).await;
    let (response, mut body) = begin(&mut client, request("POST", "http://x/"));
    for number in 1..=30 {
        // The pace of a slow client is what this is about.
        tokio::time::sleep(Duration::from_millis(40)).await;
        body.send_data("x".into(), number == 30).unwrap();
    }
    assert_eq!(answer(response).await.0.status, 200);
    let (response, mut body) = begin(&mut client, request("POST", "http://x/"));
    body.send_data("xxx".into(), false).unwrap();
    let (parts, _) = answer(response).await;
    assert_eq!((parts.status.as_u16(), parts.headers["x-weal-reason"].to_str().unwrap()), (408, "client-timeout"));
    assert_eq!(bed.observe().await.instances[0].failures, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn codings_and_lengths_of_instances_are_as_strict_for_clients_of_http2() {
    for (fields, status) in [
        ("transfer-encoding: chunked", 200),
        ("transfer-encoding: gzip, chunked", 502),
        ("transfer-encoding: xchunked", 502),
        ("transfer-encoding: deflate, chunked", 502),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked", 502),
        ("content-length: 12, 12", 200),
        ("content-length: 12, 13", 502),
        ("content-length: +12", 502),
    ] {
        for method in ["GET", "HEAD"] {
            let body = if method == "GET" { "2\r\nok\r\n0\r\n\r\n" } else { "" };
            let (address, _) = hasty(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}"), true).await;
            let bed = Bed::start(vec![cluster(&[address])]).await;
            let mut client = connect(&bed).await;
            let (parts, _) = answer(send(&mut client, request(method, "http://x/"))).await;
            assert_eq!(parts.status, status, "{method} {fields:?}");
            let lengths: Vec<_> = parts.headers.get_all("content-length").iter().collect();
            assert!(!parts.headers.contains_key("transfer-encoding") && lengths.len() <= 1, "{method} {fields:?}: {parts:?}");
            if status == 200 && fields.starts_with("content-length") {
                assert_eq!(lengths, ["12"], "{method} {fields:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_over_http2_for_an_application_that_cannot_start() {
    let broken = ClusterConfig { unavailable: Some(Unavailable::CannotStart), ..cluster(&[]) };
    let bed = Bed::start(vec![broken]).await;
    let mut client = connect(&bed).await;
    let (parts, text) = answer(send(&mut client, request("GET", "http://x/"))).await;
    assert_eq!((parts.status.as_u16(), parts.headers["x-weal-reason"].to_str().unwrap()), (503, "unavailable"));
    assert_eq!(text, "the application cannot be started: try again later\n");
}
