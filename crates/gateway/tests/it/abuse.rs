//! Clients that flood the gateway over HTTP/2, again and again, beside one that does not: it is served all the time, and memory does not grow.
//! The gateway is a process of its own, so that its memory can be told from the test's. Nothing here is timed: what counts is how many
//! connections were cut off, how many requests reached the instance, and how many answers the good client had.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use http::Response;
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::apart::Apart;
use crate::bed::{Bed, cluster, instance};
use crate::h2::{HEADERS, PREFACE, SETTINGS, answer, frame, request, send, within};

/// Abusers at once.
const ABUSERS: u32 = 4;
/// Connections of each kind of flood that are cut off before the next kind begins.
const CUT_OFF: u32 = 12;
/// Requests of an abuser that an instance gets at most before the connection is cut off: h2 bears 1024 streams that were reset.
const MOST_REACHED: u64 = 1200;
/// What the gateway's memory may grow by, over all floods: debug builds and their allocator included.
const GROWTH_KIB: u64 = 48 << 10;

/// What an abuser sends next, by how often it has sent something.
type Flood = fn(u32) -> Vec<u8>;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A literal field with a name of its own, which the decoder does not keep (RFC 7541 section 6.2.2).
fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0, name.len() as u8][..], name, &[value.len() as u8], value].concat()
}

/// Streams of clients are odd.
fn stream_id(number: u32) -> u32 {
    number * 2 - 1
}

fn rapid_reset(number: u32) -> Vec<u8> {
    let open = frame(1, END_STREAM | END_HEADERS, stream_id(number), &HEADERS);
    [open, frame(3, 0, stream_id(number), &[0, 0, 0, 8])].concat()
}

/// Streams that the abuser's own fault closes: a window of zero is an error (RFC 9113 section 6.9), and the gateway resets them.
fn made_to_reset(number: u32) -> Vec<u8> {
    let open = frame(1, END_HEADERS, stream_id(number), &HEADERS);
    [open, frame(8, 0, stream_id(number), &[0; 4])].concat()
}

fn empty_continuations(number: u32) -> Vec<u8> {
    if number == 1 { frame(1, END_STREAM, 1, &HEADERS) } else { frame(9, 0, 1, &[]) }
}

fn long_continuations(number: u32) -> Vec<u8> {
    if number == 1 { frame(1, END_STREAM, 1, &HEADERS) } else { frame(9, 0, 1, &field(b"x-more", &[b'y'; 120]).repeat(60)) }
}

fn empty_data(number: u32) -> Vec<u8> {
    if number == 1 { frame(1, END_HEADERS, 1, &HEADERS) } else { frame(0, 0, 1, &[]) }
}

/// Each of the settings changes the table that the gateway's encoder keeps.
fn table_sizes(number: u32) -> Vec<u8> {
    frame(4, 0, 0, &[&[0, 1][..], &(number % 2 * 4096).to_be_bytes()].concat())
}

/// Those that end with the connection.
const FLOODS: [(&str, Flood); 10] = [
    ("pings", |_| frame(6, 0, 0, &[0; 8])),
    ("settings", |_| SETTINGS.to_vec()),
    ("sizes of the header table", table_sizes),
    ("priorities", |number| frame(2, 0, stream_id(number), &[0, 0, 0, 0, 1])),
    ("frames of no known kind", |_| frame(200, 0, 0, b"?")),
    ("windows", |_| frame(8, 0, 0, &[0, 0, 0, 1])),
    ("rapid reset", rapid_reset),
    ("resets that the gateway is made to send", made_to_reset),
    ("empty continuations", empty_continuations),
    ("long continuations", long_continuations),
];

/// An abuser's connection from its preface to the moment at which the gateway ends it.
async fn flood(gateway: &Apart, flood: Flood) {
    let Ok(stream) = TcpStream::connect(gateway.address).await else { return };
    let (mut reader, mut writer) = stream.into_split();
    let written = async {
        let mut bytes = [PREFACE, &SETTINGS].concat();
        for number in 1.. {
            bytes.extend(flood(number));
            // Together, as an abuser would: as many frames as can be for each call.
            if bytes.len() > 16 << 10 {
                if writer.write_all(&bytes).await.is_err() {
                    return;
                }
                bytes.clear();
            }
        }
    };
    let read = async {
        let mut buffer = vec![0; 64 << 10];
        while matches!(reader.read(&mut buffer).await, Ok(count) if count > 0) {}
    };
    tokio::select! { () = written => {}, () = read => {} }
}

/// Asks over both versions until `stop`, on connections that stay, and says how often.
async fn good_client(gateway: Arc<Apart>, stop: Arc<AtomicBool>) -> u32 {
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    let mut plain = crate::bed::Client { stream: TcpStream::connect(gateway.address).await.unwrap() };
    let mut answers = 0;
    while !stop.load(Ordering::Relaxed) {
        assert_eq!(answer(send(&mut sender, request("GET", "http://a/"))).await.1, "good");
        plain.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        assert_eq!(plain.read_answer().await.text(), "good");
        answers += 2;
    }
    answers
}

/// An instance that says "good", and how many requests have reached it.
async fn counting_instance() -> (SocketAddr, Arc<AtomicU64>) {
    let reached = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reached);
    let good = instance(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        async { Response::new(Full::from("good")) }
    });
    (good.await, reached)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn floods_cost_their_senders_the_connection_and_others_nothing() {
    let (good, reached) = counting_instance().await;
    let gateway = Arc::new(Apart::start(good).await);
    let before = gateway.settled_peak_kib().await;
    for (name, what) in FLOODS {
        let (stop, cut_off) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        reached.store(0, Ordering::Relaxed);
        let client = tokio::spawn(good_client(Arc::clone(&gateway), Arc::clone(&stop)));
        let mut abusers = Vec::new();
        for _ in 0..ABUSERS {
            let (gateway, cut_off) = (Arc::clone(&gateway), Arc::clone(&cut_off));
            abusers.push(tokio::spawn(async move {
                while cut_off.load(Ordering::Relaxed) < CUT_OFF {
                    flood(&gateway, what).await;
                    cut_off.fetch_add(1, Ordering::Relaxed);
                }
            }));
        }
        for abuser in abusers {
            within(name, abuser).await.unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        let answers = u64::from(within("the good client's last answer", client).await.unwrap());
        assert!(answers >= 2, "{name}");
        let theirs = reached.load(Ordering::Relaxed) - answers;
        let most = u64::from(CUT_OFF + ABUSERS) * MOST_REACHED;
        assert!(theirs <= most, "{name}: an instance got {theirs} requests of abusers");
    }
    let grown = gateway.settled_peak_kib().await - before;
    assert!(grown < GROWTH_KIB, "{grown} KiB more than before");
}

/// One field of 4000 bytes in the decoder's table, which each of the following heads names sixteen thousand times in as many bytes: each would be
/// 64 MB (CVE-2016-6581).
#[tokio::test(flavor = "multi_thread")]
async fn a_head_of_64_mb_in_16_kb_takes_no_memory_and_no_instance_sees_it() {
    let (good, reached) = counting_instance().await;
    let gateway = Apart::start(good).await;
    let before = gateway.settled_peak_kib().await;
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    // 3900 is 127 + 3773, in three bytes (RFC 7541 section 5.1).
    let kept = [&[0x40, 1, b'x', 0x7f, 0xbd, 0x1d][..], &[b'y'; 3900]].concat();
    let first = frame(1, END_STREAM | END_HEADERS, 1, &[&HEADERS[..], &kept].concat());
    stream.write_all(&[PREFACE, &SETTINGS, &first].concat()).await.unwrap();
    let bomb = [&HEADERS[..], &[0x80 | 62; 16_000]].concat();
    let (mut reader, mut writer) = stream.into_split();
    tokio::spawn(async move { while matches!(reader.read(&mut [0; 4096]).await, Ok(count) if count > 0) {} });
    let served_before = reached.load(Ordering::Relaxed);
    for number in 2..=100 {
        // It may be cut off at any time.
        if writer.write_all(&frame(1, END_STREAM | END_HEADERS, stream_id(number), &bomb)).await.is_err() {
            break;
        }
    }
    assert_eq!(gateway.first_status().await, Some(200));
    let grown = gateway.settled_peak_kib().await - before;
    assert!(grown < GROWTH_KIB, "{grown} KiB more than before");
    assert!(reached.load(Ordering::Relaxed) <= served_before + 2, "the first head and the good request");
}

/// It is within the limits of a body, and costs nothing but its reader's time: the connection goes on, and others are served.
#[tokio::test(flavor = "multi_thread")]
async fn empty_frames_of_a_body_hold_up_nobody() {
    let good = instance(|_| async { Response::new(Full::from("good")) }).await;
    let bed = Bed::start(vec![cluster(&[good])]).await;
    let mut stream = TcpStream::connect(bed.address).await.unwrap();
    stream.write_all(&[PREFACE, &SETTINGS].concat()).await.unwrap();
    for number in 1..=20_000 {
        if stream.write_all(&empty_data(number)).await.is_err() {
            break;
        }
    }
    assert_eq!(bed.get("a", "/").await.text(), "good");
}
