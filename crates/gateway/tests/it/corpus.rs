//! Raw messages, each with the verdict that its RFC gives, in the positions where a reader may lose its way.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use weal_model::ClientPolicy;

use crate::bed::*;
use crate::raw::{Received, Recorder, Records, responses};

const CORPUS: &str = include_str!("../corpus/requests.txt");

/// What follows each message: were it answered after a message that is refused, the two readers would differ.
const MARKER: &[u8] = b"GET /marker HTTP/1.1\r\nHost: marker\r\n\r\n";

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Serve,
    Refuse,
    Either,
    BadBody,
    Cut,
}

struct Case {
    verdict: Verdict,
    name: &'static str,
    /// What the instance gets.
    wanted: &'static str,
    message: Vec<u8>,
}

/// What stands before a message, and how it is sent.
struct Position {
    name: &'static str,
    before: &'static [u8],
    /// Requests in `before`.
    requests: usize,
    is_bytewise: bool,
    /// True: a request before came too early, and was refused without a look at it.
    is_after_refusal: bool,
}

const ALONE: Position = Position { name: "alone", before: b"", requests: 0, is_bytewise: false, is_after_refusal: false };

const POSITIONS: [Position; 6] = [
    ALONE,
    Position { name: "byte by byte", is_bytewise: true, ..ALONE },
    Position { name: "after an empty line", before: b"\r\n", ..ALONE },
    Position {
        name: "after a request with a length",
        before: b"POST /before HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
        requests: 1,
        ..ALONE
    },
    Position {
        name: "after a request with chunks",
        before: b"POST /before HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        requests: 1,
        ..ALONE
    },
    Position { name: "after a request that came too early", is_after_refusal: true, ..ALONE },
];

fn cases() -> Vec<Case> {
    CORPUS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(read_case).collect()
}

fn read_case(line: &'static str) -> Case {
    let fields: Vec<&str> = line.splitn(5, " | ").collect();
    let [verdict, _rule, name, wanted, message] = fields.as_slice() else { panic!("five fields in {line:?}") };
    let verdict = match verdict.trim() {
        "serve" => Verdict::Serve,
        "refuse" => Verdict::Refuse,
        "either" => Verdict::Either,
        "bad-body" => Verdict::BadBody,
        "cut" => Verdict::Cut,
        other => panic!("no verdict: {other}"),
    };
    Case { verdict, name, wanted: wanted.trim(), message: unescape(message) }
}

fn unescape(text: &str) -> Vec<u8> {
    let text = text.replace("%REPEAT%", &"a".repeat(70_000));
    let mut bytes = Vec::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let escaped = if character == '\\' { characters.next() } else { None };
        match escaped {
            None => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
            Some('r') => bytes.push(b'\r'),
            Some('n') => bytes.push(b'\n'),
            Some('t') => bytes.push(b'\t'),
            Some('\\') => bytes.push(b'\\'),
            Some('x') => {
                let digits: String = characters.by_ref().take(2).collect();
                bytes.push(u8::from_str_radix(&digits, 16).unwrap());
            }
            Some(other) => panic!("no escape: \\{other}"),
        }
    }
    bytes
}

/// Sends a case and reads until the marker is answered or the gateway closes.
async fn send(bed: &Bed, case: &Case, position: &Position, instance: SocketAddr) -> (Vec<u8>, bool) {
    let mut client = bed.connect().await;
    client.stream.set_nodelay(true).unwrap();
    if position.is_after_refusal {
        refuse_one(bed, &mut client, instance).await;
    }
    let mut bytes = [position.before, &case.message].concat();
    if case.verdict != Verdict::Cut {
        bytes.extend_from_slice(MARKER);
    }
    let piece = if position.is_bytewise { 1 } else { bytes.len() };
    for piece in bytes.chunks(piece) {
        // The gateway may close before it has read everything.
        if client.stream.write_all(piece).await.is_err() {
            break;
        }
    }
    if case.verdict == Verdict::Cut {
        let _ = client.stream.shutdown().await;
    }
    let mut received = Vec::new();
    loop {
        let read = tokio::time::timeout(PATIENCE, client.stream.read_buf(&mut received)).await;
        match read.unwrap_or_else(|_| panic!("{}, {}: {:?}", case.name, position.name, String::from_utf8_lossy(&received))) {
            Ok(0) | Err(_) => return (received, true),
            Ok(_) if received.ends_with(b"GET /marker HTTP/1.1") => return (received, false),
            Ok(_) => {}
        }
    }
}

/// Has a request of `client` refused because it comes too early. The next one may come at any time.
async fn refuse_one(bed: &Bed, client: &mut Client, instance: SocketAddr) {
    let counted = |client_rate| ClientPolicy { unlimited_clients: Vec::new(), client_rate, ..ClientPolicy::default() };
    let clusters = || vec![cluster(&[instance])];
    bed.configure_for(clusters(), counted(1)).await.unwrap();
    loop {
        client.send("GET /early HTTP/1.1\r\nHost: early\r\n\r\n").await;
        if client.read_answer().await.status == 429 {
            break;
        }
    }
    bed.configure_for(clusters(), counted(0)).await.unwrap();
}

/// Compares what came of a case with its verdict.
fn judge(case: &Case, position: &Position, received: &[Received], is_closed: bool, records: &Records) -> Result<(), String> {
    if let Some(violation) = records.violations.first() {
        return Err(format!("the instance got {violation}"));
    }
    let (before, mine) = received.split_at(received.len().min(position.requests));
    if before.len() != position.requests || before.iter().any(|response| response.status != 200) {
        return Err("what stood before it was not answered".to_owned());
    }
    let early = records.requests.iter().filter(|request| request.summary().starts_with("GET /early")).count();
    let recorded = &records.requests[records.requests.len().min(position.requests + early)..];
    let whole = recorded.iter().filter(|request| request.is_complete).count();
    let is_refusal = match mine {
        [] => is_closed,
        [only] => is_closed && (400..=599).contains(&only.status),
        _ => false,
    };
    let is_refused = is_refusal && recorded.is_empty();
    let serves = |response: &Received| response.status == 200;
    let is_last = mine.len() == 1 && is_closed && is_last(&case.message);
    let is_whole = recorded
        .first()
        .is_some_and(|first| first.is_complete && (case.wanted.is_empty() || first.summary().trim_end() == case.wanted));
    let is_served = is_whole && whole == mine.len() && mine.iter().all(serves) && (is_last || (mine.len() == 2 && !is_closed));
    let is_good = match case.verdict {
        Verdict::Serve => is_served,
        Verdict::Refuse => is_refused,
        Verdict::Either => is_refused || is_served,
        Verdict::BadBody => is_refusal && whole == 0 && mine.first().is_some_and(|response| response.status == 400),
        Verdict::Cut => is_refusal && whole == 0,
    };
    if is_good { Ok(()) } else { Err(format!("{mine:?}, closed {is_closed}, {recorded:?}")) }
}

/// True when a message says that none follows it.
fn is_last(message: &[u8]) -> bool {
    let text = String::from_utf8_lossy(message).to_ascii_lowercase();
    text.contains("connection: close") || (text.contains("http/1.0") && !text.contains("keep-alive"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_the_corpus_gets_the_verdict_of_its_rfc_wherever_it_stands() {
    let count = cases().len();
    assert!(count >= 300, "{count}");
    // Nearly all of it is waiting for sockets.
    let shares: Vec<_> = (0..SHARES).map(|share| tokio::spawn(judge_share(share))).collect();
    let mut wrong = Vec::new();
    for share in shares {
        wrong.extend(share.await.unwrap());
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), count * POSITIONS.len(), wrong.join("\n"));
}

const SHARES: usize = 8;

/// Every so many-th case, at a gateway and an instance of its own; returns what is wrong.
async fn judge_share(share: usize) -> Vec<String> {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    let mut wrong = Vec::new();
    for case in cases().iter().skip(share).step_by(SHARES) {
        // A long message byte by byte is only long.
        for position in POSITIONS.iter().filter(|position| !position.is_bytewise || case.message.len() < 1000) {
            let (bytes, is_closed) = send(&bed, case, position, recorder.address).await;
            // The instance notes the end of a request that broke off when its connection ends.
            bed.until("all have ended", |counters| counters.flows[0].in_service == 0).await;
            let heads = if case.message.starts_with(b"HEAD ") { vec![position.requests] } else { Vec::new() };
            let records = recorder.take().await;
            let judged = responses(&bytes, &heads).and_then(|received| judge(case, position, &received, is_closed, &records));
            if let Err(why) = judged {
                wrong.push(format!("{:?} {}, {}: {why}", case.verdict, case.name, position.name));
            }
        }
    }
    wrong
}

#[tokio::test(flavor = "multi_thread")]
async fn every_name_in_the_corpus_is_there_once() {
    let mut names: Vec<&str> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    let twice: Vec<_> = names.windows(2).filter(|pair| pair[0] == pair[1]).collect();
    assert!(twice.is_empty(), "{twice:?}");
}
