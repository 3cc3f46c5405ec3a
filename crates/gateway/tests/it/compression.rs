//! Compressed answers: what a client gets, what is left alone, and when it comes.

use std::io::Read as _;

use http::{Response, header};
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use weal_gateway::Limits;
use weal_model::{ClientPolicy, RouteExtras, RouteSpec};
use weal_protocol::gateway::ClusterConfig;

use crate::bed::*;

fn compressing() -> ClientPolicy {
    ClientPolicy { compression: true, ..ClientPolicy::default() }
}

async fn bed(cluster: ClusterConfig, limits: Limits) -> Bed {
    let bed = Bed::start_in(folder(), limits).await;
    bed.configure_for(vec![cluster], compressing()).await.unwrap();
    bed
}

/// Two hundred kilobytes that compress well but not to nothing.
fn text() -> String {
    (0..20_000).map(|number: u32| format!("{:08x}, ", number.wrapping_mul(2_654_435_761))).collect()
}

/// An instance whose answer is of the type that the path names.
async fn pages() -> std::net::SocketAddr {
    instance(|request| async move {
        let kind = request.uri().path().trim_start_matches('/').to_owned();
        Response::builder().header(header::CONTENT_TYPE, kind).header(header::ETAG, "\"v1\"").body(Full::from(text())).unwrap()
    })
    .await
}

async fn get(bed: &Bed, path: &str, fields: &str) -> Answer {
    let mut client = bed.connect().await;
    client.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{fields}\r\n")).await;
    Answer::parse(&client.read_to_end().await)
}

/// The body of a chunked answer.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    loop {
        let end = body.windows(2).position(|two| two == b"\r\n").expect("a chunk");
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        whole.extend_from_slice(&body[end + 2..end + 2 + size]);
        if size == 0 {
            return whole;
        }
        body = &body[end + 2 + size + 2..];
    }
}

fn decoded(coding: &str, bytes: &[u8]) -> String {
    let mut text = String::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_string(&mut text),
        "br" => brotli::Decompressor::new(bytes, 4096).read_to_string(&mut text),
        _ => zstd::stream::read::Decoder::new(bytes).unwrap().read_to_string(&mut text),
    }
    .unwrap();
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn each_coding_brings_the_same_bytes_back() {
    let bed = bed(cluster(&[pages().await]), limits()).await;
    for coding in ["gzip", "br", "zstd"] {
        let answer = get(&bed, "/text/plain", &format!("accept-encoding: {coding}\r\n")).await;
        assert_eq!((answer.header("content-encoding"), answer.header("etag")), (Some(coding), Some("W/\"v1\"")));
        assert_eq!((answer.header("vary"), answer.header("content-length")), (Some("Accept-Encoding"), None));
        let body = unchunked(&answer.body);
        assert!(body.len() < text().len() * 2 / 3, "{coding}: {} of {} bytes", body.len(), text().len());
        assert!(decoded(coding, &body) == text(), "{coding} changed something");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_compressed_comes_as_it_is() {
    let route = |path: &str, compression| RouteSpec {
        extras: RouteExtras { compression, ..RouteExtras::default() },
        ..route("gold", None, Some(path))
    };
    let routes = vec![route("/*", None), route("/text/css", Some(false))];
    let bed = bed(ClusterConfig { routes, ..cluster(&[pages().await]) }, limits()).await;
    for (path, fields) in [
        ("/image/png", "accept-encoding: gzip\r\n"),
        ("/text/css", "accept-encoding: gzip\r\n"),
        ("/text/plain", "accept-encoding: gzip;q=0\r\n"),
        ("/text/plain", "accept-encoding: gzip\r\nrange: bytes=0-9\r\n"),
        ("/text/plain", ""),
    ] {
        let answer = get(&bed, path, fields).await;
        assert_eq!((answer.header("content-encoding"), answer.header("etag")), (None, Some("\"v1\"")), "{path} {fields}");
        assert!(answer.text() == text(), "{path} {fields}");
    }
    bed.configure(vec![ClusterConfig {
        routes: vec![route("/*", None), route("/text/css", Some(true))],
        ..cluster(&[pages().await])
    }])
    .await
    .unwrap();
    assert_eq!(
        get(&bed, "/text/plain", "accept-encoding: gzip\r\n").await.header("content-encoding"),
        None,
        "off is the default"
    );
    assert_eq!(get(&bed, "/text/css", "accept-encoding: gzip\r\n").await.header("content-encoding"), Some("gzip"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_request_gets_the_head_of_the_coded_answer() {
    let bed = bed(cluster(&[pages().await]), limits()).await;
    let mut client = bed.connect().await;
    client.send("HEAD /text/plain HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept-encoding: br\r\n\r\n").await;
    let answer = Answer::parse(&client.read_to_end().await);
    assert_eq!((answer.header("content-encoding"), answer.header("content-length")), (Some("br"), None));
    assert!(answer.body.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_reach_the_client_one_by_one() {
    let (told, next) = tokio::sync::mpsc::unbounded_channel::<String>();
    let next = std::sync::Arc::new(tokio::sync::Mutex::new(next));
    let address = raw_instance(move |mut stream: TcpStream| {
        let next = std::sync::Arc::clone(&next);
        async move {
            let Some(_) = read_head(&mut stream).await else { return };
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            while let Some(event) = next.lock().await.recv().await {
                stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await.unwrap();
            }
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let bed = bed(cluster(&[address]), limits()).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\naccept-encoding: gzip\r\n\r\n").await;
    let (mut received, mut heard) = (Vec::new(), String::new());
    for number in 0..5 {
        told.send(format!("data: event {number}\n\n")).unwrap();
        heard.push_str(&format!("data: event {number}\n\n"));
        // It is all there before the next event exists.
        while so_far(&Answer::parse(&received).body) != heard {
            let read = tokio::time::timeout(PATIENCE, client.stream.read_buf(&mut received)).await.expect("the event comes");
            assert!(read.unwrap() > 0, "closed after {heard:?}");
        }
    }
    assert_eq!(Answer::parse(&received).header("content-encoding"), Some("gzip"));
}

/// What can be read of a chunked gzip stream that goes on.
fn so_far(coded: &[u8]) -> String {
    let (mut whole, mut rest) = (Vec::new(), coded);
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).unwrap(), 16).unwrap();
        let Some(chunk) = rest.get(end + 2..end + 2 + size) else { break };
        whole.extend_from_slice(chunk);
        rest = rest.get(end + 2 + size + 2..).unwrap_or_default();
    }
    let mut text = Vec::new();
    let mut buffer = [0; 256];
    let mut decoder = flate2::read::GzDecoder::new(&whole[..]);
    while let Ok(count @ 1..) = decoder.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_beyond_the_limit_go_out_as_they_are() {
    let bed = bed(cluster(&[pages().await]), Limits { compressions: 0, ..limits() }).await;
    let answer = get(&bed, "/text/plain", "accept-encoding: gzip\r\n").await;
    assert_eq!((answer.header("content-encoding"), answer.text() == text()), (None, true));
}

/// A coded answer has no length. Only its end says that it is whole, so there may be none where the instance did not come to its own.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_breaks_off_has_no_end_in_any_coding() {
    let breaking = raw_instance(|mut stream| async move {
        if read_head(&mut stream).await.is_some() {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", text().len());
            stream.write_all(head.as_bytes()).await.unwrap();
            let _ = stream.write_all(&text().as_bytes()[..text().len() / 2]).await;
        }
    })
    .await;
    for coding in ["gzip", "br", "zstd"] {
        let bed = bed(cluster(&[breaking]), limits()).await;
        let answer = get(&bed, "/", &format!("accept-encoding: {coding}\r\n")).await;
        assert_eq!((answer.status, answer.header("content-encoding")), (200, Some(coding)));
        assert!(!answer.body.ends_with(b"0\r\n\r\n"), "{coding}: {} bytes", answer.body.len());
        let mut client = crate::h2::connect(&bed).await;
        let asked = crate::h2::request("GET", "http://x/").header("accept-encoding", coding);
        let response = crate::h2::within("a head", crate::h2::send(&mut client, asked)).await.unwrap();
        assert!(crate::h2::read_all(response.into_body()).await.is_err(), "{coding}: it is no whole answer over HTTP/2");
        let counters = bed.until("both are counted", |counters| counters.flows[0].errors == 2).await;
        assert_eq!(counters.flows[0].completions, 0, "{coding}");
    }
}
