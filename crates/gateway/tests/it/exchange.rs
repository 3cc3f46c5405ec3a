//! Requests and their answers in unusual orders: early answers, interim ones, expectations, clients and instances that break off.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weal_gateway::Limits;
use weal_protocol::gateway::Unavailable;

use crate::bed::*;
use crate::raw::Recorder;

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_before_the_end_of_the_request_leaves_a_connection_that_works_or_says_that_it_closes() {
    for closes in [false, true] {
        for size in [1_000, 20_000, 100_000, 8 << 20] {
            for is_chunked in [false, true] {
                let (address, _) = hasty(EARLY, closes).await;
                let bed = Bed::start(vec![cluster(&[address])]).await;
                let mut client = bed.connect().await;
                let body = vec![b'x'; size];
                let head = if is_chunked {
                    format!("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{size:x}\r\n")
                } else {
                    format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n")
                };
                client.send(&head).await;
                // A client that sends all it has before it reads: it must not stall.
                client.stream.write_all(&body).await.unwrap();
                if is_chunked {
                    client.send("\r\n0\r\n\r\n").await;
                }
                let answer = client.read_answer().await;
                let what = format!("{size} bytes, chunked {is_chunked}, closes {closes}");
                assert_eq!((answer.status, answer.text().as_str()), (401, "no"), "{what}");
                if answer.header("connection") == Some("close") {
                    assert!(client.read_to_end().await.is_empty(), "{what}");
                    client = bed.connect().await;
                }
                client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
                assert_eq!(client.read_answer().await.status, 401, "{what}: the next request is answered");
                let counters = bed.until("both are counted", |counters| counters.flows[0].completions == 2).await;
                assert_eq!((counters.flows[0].errors, counters.instances[0].failures), (0, 0), "{what}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_rest_of_a_request_that_nobody_wants_does_not_cost_the_connection() {
    let (address, _) = hasty(EARLY, false).await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send(&format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 20000\r\n\r\n{}", "x".repeat(10_000))).await;
    let answer = client.read_answer().await;
    assert_eq!((answer.status, answer.header("connection")), (401, None));
    client.send(&"x".repeat(10_000)).await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.read_answer().await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_whose_request_is_not_finished_carries_no_other() {
    let (address, connections) = hasty(EARLY, false).await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut unfinished = bed.connect().await;
    unfinished.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc").await;
    assert_eq!(unfinished.read_answer().await.status, 401);
    bed.until("it is counted", |counters| counters.flows[0].completions == 1).await;
    assert_eq!(bed.get("x", "/").await.status, 401);
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_refused_here_are_read_to_their_ends_or_the_connection_says_that_it_closes() {
    let mut elsewhere = cluster(&[named("reached").await]);
    elsewhere.routes = vec![route("gold", Some("other"), None)];
    let bed = Bed::start(vec![elsewhere]).await;
    for size in [20_000, 8 << 20] {
        let mut client = bed.connect().await;
        client.send(&format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n")).await;
        client.stream.write_all(&vec![b'x'; size]).await.unwrap();
        let answer = client.read_answer().await;
        assert_eq!(answer.status, 404);
        if answer.header("connection") == Some("close") {
            assert!(client.read_to_end().await.is_empty());
            continue;
        }
        client.send("GET / HTTP/1.1\r\nhost: other\r\n\r\n").await;
        assert_eq!(client.read_answer().await.text(), "reached");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_clients_do_wrong_is_never_counted_against_an_instance() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address, recorder.address])]).await;
    for body in ["4\r\nabcdXX", "zz\r\n", "4\r\nab"] {
        for _ in 0..6 {
            let mut client = bed.connect().await;
            client.send(&format!("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{body}")).await;
            client.stream.shutdown().await.unwrap();
            let answer = Answer::parse(&client.read_to_end().await);
            assert_eq!((answer.status, answer.header("x-weal-reason")), (400, Some("malformed-body")), "{body:?}");
        }
    }
    for _ in 0..6 {
        let mut client = bed.connect().await;
        client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nabc").await;
        bed.until("it is there", |counters| counters.flows[0].in_service == 1).await;
        client.stream.set_zero_linger().unwrap();
        drop(client);
        bed.until("it is gone", |counters| counters.flows[0].in_service == 0).await;
    }
    let counters = bed.observe().await;
    let failures: u64 = counters.instances.iter().map(|instance| instance.failures).sum();
    assert_eq!(failures, 0);
    assert!(counters.instances.iter().all(|instance| instance.open));
    assert!(recorder.take().await.requests.iter().all(|request| !request.is_complete));
    assert_eq!(bed.get("x", "/").await.status, 200);
}

/// Answers each request with `bytes`, in one piece, and closes.
async fn once(bytes: Vec<u8>) -> SocketAddr {
    ending_with(bytes, false).await
}

/// Answers each request with `bytes`, in one piece, and closes, or resets the connection.
async fn ending_with(bytes: Vec<u8>, resets: bool) -> SocketAddr {
    raw_instance(move |mut stream| {
        let bytes = bytes.clone();
        async move {
            if read_head(&mut stream).await.is_some() {
                let _ = stream.write_all(&bytes).await;
                if resets {
                    stream.set_zero_linger().unwrap();
                }
            }
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coding_that_is_not_just_chunked_is_no_answer() {
    for coding in ["gzip, chunked", "xchunked", "deflate, chunked", "gzip", "identity", "chunked, chunked", "chunked, gzip"] {
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n4\r\nabcd\r\n0\r\n\r\n");
        let bed = Bed::start(vec![cluster(&[once(answer.into_bytes()).await])]).await;
        let answer = bed.get("x", "/").await;
        assert_eq!((answer.status, answer.header("transfer-encoding")), (502, None), "{coding}");
    }
    for coding in ["chunked", "Chunked"] {
        let answer = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\ncontent-length: 3\r\n\r\n4\r\nabcd\r\n0\r\n\r\n");
        let bed = Bed::start(vec![cluster(&[once(answer.into_bytes()).await])]).await;
        let answer = bed.get("x", "/").await;
        assert_eq!(
            (answer.status, answer.header("content-length"), answer.text().as_str()),
            (200, None, "4\r\nabcd\r\n0\r\n\r\n")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_length_is_passed_on_as_one_number_or_not_at_all() {
    for (lengths, status) in [
        ("content-length: 2, 2\r\n", 200),
        ("content-length: 2\r\ncontent-length: 2\r\n", 200),
        ("content-length: 2, 3\r\n", 502),
        ("content-length: 2\r\ncontent-length: 3\r\n", 502),
        ("content-length: +2\r\n", 502),
        ("content-length: 2x\r\n", 502),
        ("content-length:\r\n", 502),
    ] {
        for method in ["GET", "HEAD"] {
            let body = if method == "GET" { "ok" } else { "" };
            let answer = format!("HTTP/1.1 200 OK\r\n{lengths}\r\n{body}");
            let bed = Bed::start(vec![cluster(&[once(answer.into_bytes()).await])]).await;
            let mut client = bed.connect().await;
            client.send(&format!("{method} / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
            let answer = Answer::parse(&client.read_to_end().await);
            assert_eq!(answer.status, status, "{method} {lengths:?}");
            if status == 200 {
                assert_eq!((answer.header("content-length"), answer.text().as_str()), (Some("2"), body), "{method} {lengths:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_dies_with_its_last_bytes_leaves_the_head_and_what_came_of_the_body() {
    for resets in [false, true, false, true] {
        let whole = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf".to_vec();
        let bed = Bed::start(vec![cluster(&[ending_with(whole, resets).await])]).await;
        let answer = bed.get("x", "/").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "half"), "resets {resets}");
        let chunks = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n".to_vec();
        let bed = Bed::start(vec![cluster(&[ending_with(chunks, resets).await])]).await;
        let answer = bed.get("x", "/").await;
        assert_eq!((answer.status, answer.text().as_str()), (200, "4\r\nhalf\r\n"), "resets {resets}");
        for head in ["HTTP/1.1 200 OK\r\ncontent-le", "HTTP/1.1 2", "H"] {
            let bed = Bed::start(vec![cluster(&[ending_with(head.as_bytes().to_vec(), resets).await])]).await;
            assert_eq!(bed.get("x", "/").await.status, 502, "{head}, resets {resets}");
        }
    }
}

/// The end of the connection is the end of such an answer, but a reset is no end. The gateway meets it while it writes.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_ends_with_its_connection_is_not_whole_after_a_reset() {
    let address = raw_instance(|mut stream| async move {
        if read_head(&mut stream).await.is_some() {
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\npart").await.unwrap();
            stream.set_zero_linger().unwrap();
        }
    })
    .await;
    for _ in 0..4 {
        let bed = Bed::start(vec![cluster(&[address])]).await;
        let mut client = bed.connect().await;
        client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 33554432\r\n\r\n").await;
        let (mut reader, mut writer) = client.stream.split();
        let mut all = Vec::new();
        let sending = async {
            let _ = writer.write_all(&vec![b'x'; 32 << 20]).await;
            std::future::pending::<()>().await;
        };
        let reading = async { while matches!(reader.read_buf(&mut all).await, Ok(1..)) {} };
        tokio::time::timeout(PATIENCE, async {
            tokio::select! { () = sending => {}, () = reading => {} }
        })
        .await
        .unwrap();
        let text = String::from_utf8_lossy(&all);
        assert!(!text.ends_with("0\r\n\r\n"), "it is passed on as a whole: {text}");
        let counters = bed.until("it has ended", |counters| counters.flows[0].errors == 1).await;
        assert_eq!(counters.flows[0].completions, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn interim_responses_pass_on_in_order() {
    let answer =
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x-hop\r\n\
        X-Hop: 1\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    for pieces in [1, 7, answer.len()] {
        let address = raw_instance(move |mut stream| async move {
            while read_head(&mut stream).await.is_some() {
                for piece in answer.chunks(pieces) {
                    stream.write_all(piece).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
        let bed = Bed::start(vec![cluster(&[address])]).await;
        let mut client = bed.connect().await;
        for _ in 0..3 {
            client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
            let all = client.read_until("\r\n\r\nok").await;
            let hints = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\nHTTP/1.1 200 OK\r\n";
            assert!(all.starts_with(hints), "{pieces}: {all}");
        }
        // RFC 9110 section 15.2: HTTP/1.0 does not know them.
        let mut old = bed.connect().await;
        old.send("GET / HTTP/1.0\r\n\r\n").await;
        let answer = Answer::parse(&old.read_to_end().await);
        assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_comes_before_the_answer_is_there() {
    let (go, next) = tokio::sync::watch::channel(false);
    let address = raw_instance(move |mut stream| {
        let mut next = next.clone();
        async move {
            if read_head(&mut stream).await.is_some() {
                stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").await.unwrap();
                let _ = next.wait_for(|go| *go).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert_eq!(client.read_until("\r\n\r\n").await, "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
    go.send(true).unwrap();
    assert_eq!(client.read_answer().await.text(), "ok");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_first_is_told_to_go_on_by_the_instance() {
    let (go, next) = tokio::sync::watch::channel(false);
    let address = raw_instance(move |mut stream| {
        let mut next = next.clone();
        async move {
            let Some(head) = read_head(&mut stream).await else { return };
            assert!(head.contains("expect: 100-continue\r\n"), "{head}");
            let _ = next.wait_for(|go| *go).await;
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            let mut body = [0; 4];
            stream.read_exact(&mut body).await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n").await;
            let _ = stream.write_all(&body).await;
        }
    })
    .await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    let mut client = bed.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
    bed.until("it is at the instance", |counters| counters.flows[0].in_service == 1).await;
    go.send(true).unwrap();
    assert_eq!(client.read_until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abcd").await;
    assert_eq!(client.read_answer().await.text(), "abcd");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_first_and_is_refused_sends_no_body() {
    let (address, connections) = hasty("HTTP/1.1 413 Content Too Large\r\ncontent-length: 2\r\n\r\nno", false).await;
    let bed = Bed::start(vec![cluster(&[address])]).await;
    for _ in 0..2 {
        let mut client = bed.connect().await;
        client.send("POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 9999999\r\n\r\n").await;
        let everything = client.read_to_end().await;
        let answer = Answer::parse(&everything);
        assert_eq!((answer.status, answer.header("connection"), answer.text().as_str()), (413, Some("close"), "no"));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 2, "the unfinished connection is not used again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_does_not_know_expectations_gets_the_body_all_the_same() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    let mut client = bed.connect().await;
    client.send("POST /a HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n").await;
    assert_eq!(client.read_until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abcd").await;
    assert_eq!(client.read_answer().await.status, 200);
    assert_eq!(recorder.take().await.requests[0].summary(), "POST /a abcd");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_have_removed_what_the_gateway_says() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    let mut client = bed.connect().await;
    client
        .send(
            "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close, X-Forwarded-For, Forwarded, X-Forwarded-Host, X-Forwarded-Proto, \
             X-Request-Id, Via, Host\r\nx-forwarded-for: 192.0.2.1\r\nx-request-id: mine\r\n\r\n",
        )
        .await;
    let answer = Answer::parse(&client.read_to_end().await);
    let request = &recorder.take().await.requests[0];
    assert_eq!(request.fields("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(request.fields("forwarded"), ["for=127.0.0.1;proto=http;host=a.test"]);
    assert_eq!((request.fields("x-forwarded-host"), request.fields("x-forwarded-proto")), (vec!["a.test"], vec!["http"]));
    assert_eq!((request.fields("via"), request.fields("host")), (vec!["1.1 weal"], vec!["a.test"]));
    assert_eq!(request.fields("x-request-id"), [answer.header("x-request-id").unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_gateway_says_cannot_be_said_again_in_trailers() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    let mut client = bed.connect().await;
    client
        .send(
            "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntrailer: x-sum, x-forwarded-for, via, forwarded, x-request-id\r\n\r\n\
             4\r\nabcd\r\n0\r\nX-Sum: 10\r\nX-Forwarded-For: 192.0.2.1\r\nVia: 1.1 me\r\nForwarded: for=me\r\nX-Request-Id: me\r\n\r\n",
        )
        .await;
    assert_eq!(client.read_answer().await.status, 200);
    let request = &recorder.take().await.requests[0];
    assert_eq!((request.summary().as_str(), request.trailers.as_slice()), ("POST / abcd", &["x-sum: 10".to_owned()][..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_are_asked_for_on_each_connection_anew() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    for (te, wanted) in [("trailers", true), ("gzip;q=0.5, trailers", true), ("gzip", false)] {
        let mut client = bed.connect().await;
        client.send(&format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: TE\r\nte: {te}\r\n\r\n")).await;
        assert_eq!(client.read_answer().await.status, 200);
        let request = &recorder.take().await.requests[0];
        let asked = (request.fields("te"), request.fields("connection"));
        assert_eq!(asked == (vec!["trailers"], vec!["TE"]), wanted, "{te}: {asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_method_names_those_that_there_are() {
    let bed = Bed::start(vec![cluster(&[named("reached").await])]).await;
    let mut client = bed.connect().await;
    client.send("CONNECT x:443 HTTP/1.1\r\nhost: x:443\r\n\r\n").await;
    let answer = Answer::parse(&client.read_to_end().await);
    assert_eq!(answer.status, 405);
    assert!(answer.header("allow").unwrap().contains("GET, HEAD, POST"));
}

/// RFC 9110 section 7.6.2: how far a client looks along the way of its requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_on_as_far_as_it_says() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    for (method, hops, status, passed) in [
        ("OPTIONS", "0", 200, None),
        ("TRACE", "0", 405, None),
        ("OPTIONS", "1", 200, Some("0")),
        ("TRACE", "12", 200, Some("11")),
        ("OPTIONS", "many", 200, Some("many")),
        ("GET", "0", 200, Some("0")),
    ] {
        let mut client = bed.connect().await;
        client.send(&format!("{method} / HTTP/1.1\r\nhost: x\r\nmax-forwards: {hops}\r\n\r\n")).await;
        let answer = client.read_answer().await;
        assert_eq!(answer.status, status, "{method} {hops}");
        let requests = recorder.take().await.requests;
        let got: Vec<&str> = requests.iter().flat_map(|request| request.fields("max-forwards")).collect();
        assert_eq!(got, Vec::from_iter(passed), "{method} {hops}");
        assert_eq!(answer.header("allow").is_some(), passed.is_none(), "{method} {hops}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_may_take_longer_than_the_time_for_requests_as_long_as_bytes_flow() {
    let recorder = Recorder::start().await;
    let mut hurried = cluster(&[recorder.address]);
    hurried.request_timeout_s = 0.4;
    let bed = Bed::start(vec![hurried]).await;
    let mut client = bed.connect().await;
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 30\r\n\r\n").await;
    for _ in 0..30 {
        // The pace of a slow client is what this is about.
        tokio::time::sleep(Duration::from_millis(40)).await;
        client.send("x").await;
    }
    assert_eq!(client.read_answer().await.status, 200);
    let mut still = bed.connect().await;
    still.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 30\r\n\r\nxxx").await;
    let answer = Answer::parse(&still.read_to_end().await);
    assert_eq!((answer.status, answer.header("x-weal-reason")), (408, Some("client-timeout")));
    assert_eq!(bed.observe().await.instances[0].failures, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_may_have_times_of_its_own() {
    let gate = gate().await;
    let mut timed = cluster(&[gate.address]);
    let mut hurried = route("gold", None, Some("/idle"));
    hurried.idle_timeout_s = Some(0.1);
    let mut short = route("gold", None, Some("/total"));
    short.total_timeout_s = Some(0.1);
    timed.routes.extend([hurried, short]);
    let bed = Bed::start(vec![timed]).await;
    assert_eq!((bed.get("x", "/idle").await.status, bed.get("x", "/total").await.status), (504, 504));
    // An answer that flows for ever: the idle time never passes, the total one does.
    let address = raw_instance(|mut stream| async move {
        if read_head(&mut stream).await.is_some() {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await;
            while stream.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    })
    .await;
    let mut endless = cluster(&[address]);
    endless.routes[0].total_timeout_s = Some(0.3);
    endless.routes[0].idle_timeout_s = Some(5.0);
    let bed = Bed::start(vec![endless]).await;
    let answer = bed.get("x", "/").await;
    assert!(answer.status == 200 && answer.body.len() < 1000, "{}", answer.body.len());
    let counters = bed.until("it has ended", |counters| counters.flows[0].errors == 1).await;
    assert_eq!(counters.instances[0].failures, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_head_behind_an_answered_request_is_cut_off_in_time() {
    let strict = Limits { head: Duration::from_millis(300), ..limits() };
    let bed = Bed::start_with(vec![cluster(&[named("alive").await])], strict).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nho").await;
    assert_eq!(client.read_answer().await.status, 200);
    let rest = client.read_to_end().await;
    assert!(String::from_utf8_lossy(&rest).contains("408 "), "{:?}", String::from_utf8_lossy(&rest));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_an_application_that_cannot_start() {
    let mut broken = cluster(&[]);
    let bed = Bed::start(vec![broken.clone()]).await;
    let mut waiting = bed.connect().await;
    waiting.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
    bed.until("it waits", |counters| counters.flows[0].queued == 1).await;
    broken.unavailable = Some(Unavailable::EndsAtOnce);
    bed.configure(vec![broken]).await.unwrap();
    for answer in [waiting.read_answer().await, bed.get("x", "/").await] {
        assert_eq!((answer.status, answer.header("x-weal-reason")), (503, Some("unavailable")));
        assert_eq!(answer.text(), "the application ends each time it is started: try again later\n");
    }
    bed.configure(vec![cluster(&[named("mended").await])]).await.unwrap();
    assert_eq!(bed.get("x", "/").await.text(), "mended");
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_of_instances_are_counted_by_their_status_codes() {
    let statuses = ["200 OK", "204 No Content", "304 Not Modified", "404 Not Found", "503 Service Unavailable"];
    for status in statuses {
        let answer = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        let bed = Bed::start(vec![cluster(&[once(answer.into_bytes()).await])]).await;
        let shown = bed.get("x", "/").await.status;
        assert_eq!(shown.to_string(), status[..3]);
        let counters = bed.until("it is counted", |counters| counters.flows[0].completions == 1).await;
        let class = format!("{}xx", &status[..1]);
        let counted: Vec<_> = counters.flows[0].responses.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [(class.as_str(), 1)], "{status}");
    }
    // What the gateway says itself is no response of an instance.
    let bed = Bed::start(vec![cluster(&[once(b"nonsense\r\n\r\n".to_vec()).await])]).await;
    assert_eq!(bed.get("x", "/").await.status, 502);
    let counters = bed.until("it has failed", |counters| counters.flows[0].errors == 1).await;
    assert_eq!(counters.flows[0].responses.iter().map(|(_, count)| count).sum::<u64>(), 0);
}
