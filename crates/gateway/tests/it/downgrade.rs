//! Requests over HTTP/2 that would say something else over HTTP/1: what an instance gets of them leaves no room for a second opinion.
//!
//! Every byte of a head is this client's own, because libraries refuse to write most of these. The instance records by the letter what it gets.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::bed::*;
use crate::h2::{PREFACE, SETTINGS, frame, within};
use crate::raw::Recorder;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    /// The instance gets this: method, target and body.
    Serve(&'static str),
    /// The instance gets nothing.
    Refuse,
    /// The instance gets no whole request.
    Cut,
    /// The instance gets nothing but what the head says.
    Own,
}
use Verdict::{Cut, Own, Refuse, Serve};

pub type Field = (&'static str, &'static str);

/// What a body is: none, or these bytes with the end of the stream or trailers behind them.
#[derive(Debug, Clone, Copy)]
enum Body {
    None,
    Data(&'static str),
    Trailers(&'static str, &'static [Field]),
}
use Body::{Data, Trailers};

const POST: [Field; 4] = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "x")];

/// `POST /a` for `x` with more fields.
fn post(verdict: Verdict, fields: &[Field], body: Body) -> (Verdict, Vec<Field>, Body) {
    (verdict, [&POST, fields].concat(), body)
}

/// `POST /a` for `x`, with another value of one pseudo-header, or without it.
fn with(verdict: Verdict, name: &str, value: Option<&'static str>) -> (Verdict, Vec<Field>, Body) {
    let head = POST.iter().filter_map(|field| if field.0 == name { value.map(|value| (field.0, value)) } else { Some(*field) });
    (verdict, head.collect(), Data("abcd"))
}

fn cases() -> Vec<(Verdict, Vec<Field>, Body)> {
    const WHOLE: Verdict = Serve("POST /a abcd");
    let mut cases = vec![
        post(WHOLE, &[], Data("abcd")),
        post(WHOLE, &[("content-length", "4")], Data("abcd")),
        post(WHOLE, &[("content-length", "4"), ("content-length", "4")], Data("abcd")),
        post(WHOLE, &[("te", "trailers")], Data("abcd")),
        post(WHOLE, &[("host", "x")], Data("abcd")),
        post(WHOLE, &[("cookie", "a=1"), ("cookie", "b=2")], Data("abcd")),
        post(Serve("POST /a "), &[], Body::None),
        post(Serve("POST /a "), &[("content-length", "0")], Body::None),
        post(WHOLE, &[("trailer", "x-sum")], Trailers("abcd", &[("x-sum", "1")])),
        post(WHOLE, &[("trailer", "content-length, host")], Trailers("abcd", &[("content-length", "9"), ("host", "y")])),
        post(Cut, &[], Trailers("abcd", &[("transfer-encoding", "chunked")])),
        // h2 leaves it out.
        post(WHOLE, &[], Trailers("abcd", &[(":path", "/b")])),
        post(Cut, &[("content-length", "5")], Data("abcd")),
        post(Cut, &[("content-length", "3")], Data("abcd")),
        post(Own, &[("content-length", "0")], Data("GET /admin HTTP/1.1\r\nHost: x\r\n\r\n")),
    ];
    let refused_fields: [&[Field]; 31] = [
        &[("content-length", "4"), ("content-length", "5")],
        &[("content-length", "4"), ("content-length", "04")],
        &[("content-length", "4, 4")],
        &[("content-length", "+4")],
        &[("content-length", "-4")],
        &[("content-length", "0x4")],
        &[("content-length", "4\r\nx: y")],
        &[("content-length", "18446744073709551620")],
        &[("transfer-encoding", "chunked")],
        &[("transfer-encoding", "chunked"), ("content-length", "4")],
        &[("connection", "close")],
        &[("connection", "transfer-encoding")],
        &[("keep-alive", "1")],
        &[("proxy-connection", "keep-alive")],
        &[("upgrade", "h2c")],
        &[("te", "gzip")],
        &[("X-Large", "1")],
        &[("x y", "1")],
        &[("x:y", "1")],
        &[("x\r\ny", "1")],
        &[("", "1")],
        &[("x", "1\r\ny: 2")],
        &[("x", "1\ny: 2")],
        &[("x", "1\r")],
        &[("x", "1\0")],
        &[("host", "y")],
        &[("host", "x"), ("host", "x")],
        &[("host", "x\r\nx: y")],
        &[(":path", "/b")],
        &[(":authority", "y")],
        &[(":status", "200")],
    ];
    cases.extend(refused_fields.map(|fields| post(Refuse, fields, Data("abcd"))));
    for (name, values) in [
        (":path", &["", "a", "*", "/a b", "/a HTTP/1.1\r\nx: y", "/a\r\n", "http://y/", "/a\0", "/a\t"][..]),
        (":method", &["", "GET / HTTP/1.1\r\nx: y", "G ET", "CONNECT", "GET\r\n"]),
        (":authority", &["x y", "x/y", "u@x", "x\r\ny: z", "x:y", "x..", "[::1"]),
        (":scheme", &["ftp", "http://x/", "http\r\nx: y"]),
    ] {
        cases.extend(values.iter().map(|value| with(Refuse, name, Some(*value))));
    }
    cases.extend([":path", ":method", ":authority"].map(|name| with(Refuse, name, None)));
    // A WebSocket over HTTP/2 (RFC 8441), which nobody was told to ask for.
    cases.push(post(Refuse, &[(":protocol", "websocket")], Data("abcd")));
    let connect = [(":method", "CONNECT"), (":protocol", "websocket"), (":scheme", "http"), (":path", "/a"), (":authority", "x")];
    cases.push((Refuse, connect.to_vec(), Body::None));
    // Pseudo-headers behind a field.
    cases.push((
        Refuse,
        vec![(":method", "POST"), (":scheme", "http"), (":path", "/a"), ("x", "1"), (":authority", "x")],
        Body::None,
    ));
    cases
}

/// A head in HPACK: each field a literal, nothing compressed (RFC 7541 section 6.2.2).
pub fn block(fields: &[Field]) -> Vec<u8> {
    let text = |text: &str, into: &mut Vec<u8>| {
        assert!(text.len() < 127);
        into.push(u8::try_from(text.len()).unwrap());
        into.extend_from_slice(text.as_bytes());
    };
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        text(name, &mut block);
        text(value, &mut block);
    }
    block
}

/// Sends a request, and reads until its stream or its connection has ended.
async fn exchange(bed: &Bed, head: &[Field], body: Body) {
    const END_STREAM: u8 = 1;
    const END_HEADERS: u8 = 4;
    let mut stream = TcpStream::connect(bed.address).await.unwrap();
    let ends = if matches!(body, Body::None) { END_STREAM } else { 0 };
    let mut bytes = [PREFACE, &SETTINGS, &frame(1, END_HEADERS | ends, 1, &block(head))].concat();
    match body {
        Body::None => {}
        Data(data) => bytes.extend(frame(0, END_STREAM, 1, data.as_bytes())),
        Trailers(data, trailers) => {
            bytes.extend(frame(0, 0, 1, data.as_bytes()));
            bytes.extend(frame(1, END_HEADERS | END_STREAM, 1, &block(trailers)));
        }
    }
    stream.write_all(&bytes).await.unwrap();
    loop {
        let mut head = [0; 9];
        if within("a frame", stream.read_exact(&mut head)).await.is_err() {
            return;
        }
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let (of, flags, number) = (head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]));
        if stream.read_exact(&mut vec![0; length]).await.is_err() {
            return;
        }
        // HEADERS or DATA with the end of the stream, RST_STREAM, GOAWAY.
        if (number == 1 && (of == 3 || (of <= 1 && flags & END_STREAM != 0))) || of == 7 {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_request_over_http2_is_read_otherwise_over_http1() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    let mut wrong = Vec::new();
    for (verdict, head, body) in cases() {
        exchange(&bed, &head, body).await;
        bed.until("it has ended", |counters| counters.flows[0].in_service == 0).await;
        let records = recorder.take().await;
        let got: Vec<String> =
            records.requests.iter().map(|request| format!("{} {}", request.summary(), request.is_complete)).collect();
        let is_good = records.violations.is_empty()
            && match verdict {
                Serve(wanted) => got == [format!("{wanted} true")],
                Refuse => got.is_empty(),
                Own => records.requests.iter().all(|request| request.summary() == "POST /a "),
                Cut => records.requests.iter().all(|request| !request.is_complete),
            };
        if !is_good {
            wrong.push(format!("{verdict:?} {head:?} {body:?}: {got:?} {:?}", records.violations));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// RFC 9110 section 8.6: some servers answer 411 to such a request without a length.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_may_have_a_body_says_that_it_has_none() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    for (method, lengths) in [("POST", vec!["0"]), ("PUT", vec!["0"]), ("PATCH", vec!["0"]), ("GET", vec![]), ("DELETE", vec![])]
    {
        exchange(&bed, &[(":method", method), (":scheme", "http"), (":path", "/a"), (":authority", "x")], Body::None).await;
        let records = recorder.take().await;
        assert_eq!(records.requests[0].fields("content-length"), lengths, "{method}");
    }
}

/// RFC 9110 section 8.6: h2 would send what is said, and clients take that for a broken answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_content_says_no_length() {
    let (address, _) = hasty("HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\n", false).await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = crate::h2::connect(&bed).await;
    let (parts, body) = crate::h2::answer(crate::h2::send(&mut client, crate::h2::request("GET", "http://x/"))).await;
    assert_eq!((parts.status.as_u16(), parts.headers.get("content-length"), body.as_str()), (204, None, ""));
}
