//! What could be read in two ways is refused; what cannot is passed on written anew.

use http::Response;
use http_body_util::{BodyExt, Full};
use weal_model::ClientPolicy;

use crate::bed::*;

/// Every request here would, if two readers disagree about it, smuggle `GET /admin` past one of them.
const REFUSED: &[(&str, &str)] = &[
    ("CL then TE", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("TE then CL", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"),
    ("TE then cl in lower case", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\ncontent-length:4\r\n\r\n0\r\n\r\n"),
    ("two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde"),
    ("a list of lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4, 4\r\n\r\nabcd"),
    ("a signed length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +4\r\n\r\nabcd"),
    ("a negative length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -4\r\n\r\nabcd"),
    ("a hexadecimal length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0x4\r\n\r\nabcd"),
    ("an empty length", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length:\r\n\r\nabcd"),
    ("a length beyond all numbers", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\na"),
    ("space before the colon", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length : 4\r\n\r\nabcd"),
    ("obs-fold", "POST / HTTP/1.1\r\nHost: x\r\nX-A: b\r\n Content-Length: 4\r\n\r\nabcd"),
    ("a folded TE", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n"),
    ("chunked not last", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
    ("another coding before chunked", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked twice", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("an unknown coding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("TE in HTTP/1.0", "POST / HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("a bare CR", "GET / HTTP/1.1\r\nHost: x\r\nX-A: a\rContent-Length: 4\r\n\r\n"),
    ("a NUL", "GET / HTTP/1.1\r\nHost: x\r\nX-A: a\0b\r\n\r\n"),
    ("no colon", "GET / HTTP/1.1\r\nHost: x\r\nX-A\r\n\r\n"),
    ("an empty name", "GET / HTTP/1.1\r\nHost: x\r\n: a\r\n\r\n"),
    ("no host", "GET / HTTP/1.1\r\nX-A: a\r\n\r\n"),
    ("two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n"),
    ("a host with a path", "GET / HTTP/1.1\r\nHost: x/y\r\n\r\n"),
    ("a host with a space", "GET / HTTP/1.1\r\nHost: x y\r\n\r\n"),
    ("a URL for another host", "GET http://y/ HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("CONNECT", "CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\n"),
    ("no path", "GET x HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("an unknown version", "GET / HTTP/3.7\r\nHost: x\r\n\r\n"),
    ("a space in the target", "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("half of HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\n"),
    ("TLS", "\x16\x03\x01\x02\0\x01\0\x01\u{7f}\x03\x03"),
];

#[tokio::test(flavor = "multi_thread")]
async fn ambiguous_and_malformed_requests_are_refused_and_the_connection_closed() {
    let bed = Bed::start(vec![cluster(&[named("reached").await])]).await;
    for (what, request) in REFUSED {
        let mut client = bed.connect().await;
        client.send(&format!("{request}GET /admin HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let everything = client.read_to_end().await;
        let answer = Answer::parse(&everything);
        // To HTTP/2's preface, hyper says nothing: such a client would not understand it.
        let silent = everything.is_empty() && request.starts_with("PRI");
        assert!(silent || (400..=599).contains(&answer.status), "{what}: {:?}", String::from_utf8_lossy(&everything));
        assert!(silent || (answer.header("x-weal-reason").is_some() && answer.text().len() > 10), "{what}: it is said why");
        let answers = String::from_utf8_lossy(&everything).matches("HTTP/1.1 ").count();
        assert!(answers <= 1, "{what}: nothing after it is answered");
    }
    let counters = bed.observe().await;
    assert_eq!((counters.flows[0].arrivals, counters.malformed), (0, REFUSED.len() as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_too_early_is_no_less_malformed() {
    let bed = Bed::start(vec![]).await;
    let clients = ClientPolicy { unlimited_clients: Vec::new(), client_rate: 1, ..ClientPolicy::default() };
    bed.configure_for(vec![cluster(&[named("reached").await])], clients).await.unwrap();
    let mut client = bed.connect().await;
    let mut statuses = Vec::new();
    while statuses.last() != Some(&429) {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        statuses.push(client.read_answer().await.status);
    }
    client.send(REFUSED[0].1).await;
    client.send("GET /admin HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let everything = client.read_to_end().await;
    assert_eq!(Answer::parse(&everything).status, 400, "{:?}", String::from_utf8_lossy(&everything));
    assert_eq!(String::from_utf8_lossy(&everything).matches("HTTP/1.1 ").count(), 1, "nothing after it is answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_is_too_large_is_refused() {
    let bed = Bed::start(vec![cluster(&[named("reached").await])]).await;
    for head in [format!("X-A: {}\r\n", "a".repeat(40 << 10)), "X-A: a\r\n".repeat(200)] {
        let mut client = bed.connect().await;
        client.send(&format!("GET / HTTP/1.1\r\nHost: x\r\n{head}\r\n")).await;
        let answer = Answer::parse(&client.read_to_end().await);
        assert_eq!((answer.status, answer.text().as_str()), (431, "the request's head is too large\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn chunked_bodies_with_a_length_inside_are_no_ambiguity() {
    let echo = |request: http::Request<hyper::body::Incoming>| async move {
        Response::new(Full::from(request.into_body().collect().await.unwrap().to_bytes()))
    };
    let bed = Bed::start(vec![cluster(&[instance(echo).await])]).await;
    let mut client = bed.connect().await;
    for _ in 0..2 {
        client
            .send(
                "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                 14\r\n\nContent-Length: 5\r\n\r\n4;ext=1\r\nabcd\r\n0\r\n\r\n",
            )
            .await;
        assert_eq!(client.read_answer().await.text(), "\nContent-Length: 5\r\nabcd");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let path =
        |request: http::Request<hyper::body::Incoming>| async move { Response::new(Full::from(request.uri().path().to_owned())) };
    let bed = Bed::start(vec![cluster(&[instance(path).await])]).await;
    let mut client = bed.connect().await;
    client.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\nGET /3 HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let all = client.read_until("/3").await;
    let (one, two) = (all.find("/1\r\n").or(all.find("/1HTTP")), all.find("/2HTTP"));
    assert!(one < two && two.is_some(), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_client_gets_what_it_understands() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = raw_instance(|mut stream| async move {
        let mut buffer = [0; 4096];
        while stream.read(&mut buffer).await.unwrap_or(0) > 0 {
            let answer = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
            stream.write_all(answer).await.unwrap();
        }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    let answer = Answer::parse(&client.read_to_end().await);
    assert_eq!((answer.status, answer.header("transfer-encoding"), answer.text().as_str()), (200, None, "hello"));
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_without_a_body_are_not_waited_for() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let address = raw_instance(|mut stream| async move {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            let status = if buffer[..count].starts_with(b"HEAD") { "200 OK" } else { "304 Not Modified" };
            let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 1234\r\netag: \"x\"\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    for (method, start, field) in [
        ("HEAD", "HTTP/1.1 200 ", "content-length: 1234\r\n"),
        ("GET", "HTTP/1.1 304 ", "etag: \"x\"\r\n"),
        ("HEAD", "HTTP/1.1 200 ", "content-length: 1234\r\n"),
    ] {
        client.send(&format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let head = client.read_until("\r\n\r\n").await;
        assert!(head.starts_with(start) && head.contains(field), "{head}");
    }
}
