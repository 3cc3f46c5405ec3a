//! WebSocket through the gateway (RFC 6455), in the kinds of cases of the Autobahn test suite. A tunnel must not look at frames: well-formed
//! or not, however they are cut, each byte has to come out as it went in. Judging them is for the two ends.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::bed::*;

const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;
const FIN: u8 = 0x80;

/// A frame as clients send it (section 5.2): masked, with the length in as few bytes as it takes.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
    let length = match payload.len() {
        short @ 0..=125 => vec![0x80 | short as u8],
        middle @ 126..=0xffff => [&[0x80 | 126][..], &(middle as u16).to_be_bytes()].concat(),
        long => [&[0x80 | 127][..], &(long as u64).to_be_bytes()].concat(),
    };
    let masked: Vec<u8> = payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
    [&[first][..], &length, &MASK, &masked].concat()
}

/// What a client sends in one case, by Autobahn's groups.
fn cases() -> Vec<(String, Vec<u8>)> {
    let mut cases = Vec::new();
    let mut add = |group: &str, frames: Vec<u8>| cases.push((format!("{group}, case {}", cases.len() + 1), frames));
    for kind in [TEXT, BINARY] {
        for length in [0, 1, 125, 126, 127, 128, 65_535, 65_536] {
            add("1 framing", frame(FIN | kind, &vec![b'*'; length]));
        }
    }
    for length in [0, 1, 125, 126] {
        add("2 pings", frame(FIN | PING, &vec![0xfe; length]));
    }
    add("2 unsolicited pongs", [frame(FIN | PONG, b"nobody asked"), frame(FIN | PING, b"")].concat());
    add("2 ten pings", (0..10).flat_map(|number| frame(FIN | PING, format!("payload-{number}").as_bytes())).collect());
    for reserved in 1..=7 {
        add("3 reserved bits", frame(FIN | reserved << 4 | TEXT, b"Hello"));
    }
    for opcode in (3..=7).chain(11..=15) {
        add("4 reserved opcodes", [frame(FIN | opcode, b"Hello"), frame(FIN | PING, b"")].concat());
    }
    let parts = |kind: u8, parts: &[&[u8]]| -> Vec<u8> {
        let of = |(at, part): (usize, &&[u8])| {
            let fin = if at + 1 == parts.len() { FIN } else { 0 };
            frame(fin | if at == 0 { kind } else { 0 }, part)
        };
        parts.iter().enumerate().flat_map(of).collect()
    };
    add("5 fragments", parts(TEXT, &[b"fragment1", b"fragment2"]));
    add("5 a ping in between", [frame(TEXT, b"one"), frame(FIN | PING, b"between"), frame(FIN, b"two")].concat());
    add("5 continuation of nothing", frame(FIN, b"non-continuation"));
    add("5 a fragmented ping", parts(PING, &[b"a", b"b"]));
    for text in ["κόσμε".as_bytes(), b"\xce\xba\xe1\xbd\xb9\xcf\x83\xed\xa0\x80edited", b"\xf4\x90\x80\x80", b"\xff", b"\xc0\xaf"]
    {
        add("6 text, valid and not", frame(FIN | TEXT, text));
        add("6 the same byte by byte", parts(TEXT, &text.chunks(1).collect::<Vec<_>>()));
    }
    for code in [0_u16, 999, 1000, 1001, 1004, 1005, 1006, 1011, 1015, 1016, 2999, 3000, 4999, 5000, 65_535] {
        add("7 close", frame(FIN | CLOSE, &[&code.to_be_bytes()[..], b"going away"].concat()));
    }
    for payload in [&b""[..], b"\x03", &[b'*'; 126]] {
        add("7 close, well-formed and not", frame(FIN | CLOSE, payload));
    }
    add("7 frames after the close", [frame(FIN | CLOSE, &1000_u16.to_be_bytes()), frame(FIN | TEXT, b"too late")].concat());
    for size in [64 << 10, 1 << 20, 4 << 20] {
        let message: Vec<u8> = (0..size).map(|at: usize| (at % 251) as u8).collect();
        add("9 one large frame", frame(FIN | BINARY, &message));
        add("9 the same in parts of 4 KiB", parts(BINARY, &message.chunks(4096).collect::<Vec<_>>()));
    }
    add("10 many small frames", (0..20_000_u32).flat_map(|number| frame(FIN | BINARY, &number.to_be_bytes())).collect());
    add("12 compressed by an extension", frame(FIN | 0x40 | TEXT, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]));
    add("a length of 2^63", [&[FIN | BINARY, 0xff][..], &u64::MAX.to_be_bytes(), b"no such length"].concat());
    cases
}

/// Agrees to a WebSocket, says a word at once, and sends back what comes.
async fn mirror() -> std::net::SocketAddr {
    raw_instance(|mut stream| async move {
        let Some(head) = read_head(&mut stream).await else { return };
        let field = |name: &str| {
            let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name)).unwrap_or_default();
            line.split_once(": ").map_or("", |(_, value)| value).to_owned()
        };
        let consent = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {}\r\n\
             sec-websocket-protocol: {}\r\nsec-websocket-extensions: {}\r\nx-version: {}\r\n\r\nhello;",
            field("sec-websocket-key"),
            field("sec-websocket-protocol"),
            field("sec-websocket-extensions"),
            field("sec-websocket-version"),
        );
        stream.write_all(consent.as_bytes()).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
        let _ = to.write_all(b"the end").await;
    })
    .await
}

async fn open(bed: &Bed) -> TcpStream {
    let mut client = bed.connect().await;
    client
        .send(
            "GET /chat HTTP/1.1\r\nhost: x\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: a2V5\r\n\
             sec-websocket-version: 13\r\nsec-websocket-protocol: chat, superchat\r\n\
             sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n\r\n",
        )
        .await;
    let head = client.read_until("hello;").await.to_ascii_lowercase();
    for expected in [
        "http/1.1 101 ",
        "upgrade: websocket\r\n",
        "sec-websocket-accept: a2v5\r\n",
        "sec-websocket-protocol: chat, superchat\r\n",
        "sec-websocket-extensions: permessage-deflate; client_max_window_bits\r\n",
        "x-version: 13\r\n",
    ] {
        assert!(head.contains(expected), "{expected:?} in {head}");
    }
    client.stream.set_nodelay(true).unwrap();
    client.stream
}

/// Sends `bytes` in pieces of `size` and closes its side; what comes back until the other side has closed too.
async fn pass(stream: TcpStream, bytes: &[u8], size: usize) -> Vec<u8> {
    let (mut from, mut to) = stream.into_split();
    let sending = async {
        for piece in bytes.chunks(size) {
            to.write_all(piece).await.unwrap();
        }
        to.shutdown().await.unwrap();
    };
    let receiving = async {
        let mut all = Vec::new();
        from.read_to_end(&mut all).await.unwrap();
        all
    };
    tokio::time::timeout(PATIENCE, async { tokio::join!(sending, receiving).1 }).await.expect("both sides close")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_of_a_websocket_comes_through_whatever_its_frames_say() {
    let bed = Bed::start(vec![cluster(&[mirror().await])]).await;
    let cases = cases();
    assert!(cases.len() > 80, "{}", cases.len());
    for (name, frames) in &cases {
        let chopped = if frames.len() < 2000 { 1 } else { 997 };
        for size in [frames.len(), chopped] {
            let back = pass(open(&bed).await, frames, size).await;
            let end = back.len().saturating_sub(b"the end".len());
            assert!(back[..end] == frames[..] && &back[end..] == b"the end", "{name} in pieces of {size}: {} bytes", back.len());
        }
    }
    let counters = bed.until("all are closed", |counters| counters.connections == 0).await;
    assert_eq!((counters.flows[0].errors, counters.instances[0].failures), (0, 0));
}
