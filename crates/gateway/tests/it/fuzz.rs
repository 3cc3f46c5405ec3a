//! Frames of HTTP/2 that no client means, sent to a gateway as it runs.

use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::bed::{Bed, cluster, named};

/// Kinds of frames (RFC 9113 section 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_http2() {
    let bed = Bed::start(vec![cluster(&[named("a").await])]).await;
    let handle = Handle::current();
    block_in_place(|| {
        weal_fuzz::target("http2", |bytes| {
            let said = handle.block_on(answer_to(&bed, bytes));
            check_said(&said).unwrap_or_else(|frame| panic!("{frame} in {said:?}"));
        });
    });
    assert_eq!(bed.get("x", "/").await.status, 200, "it serves all others as before");
    bed.until("nothing is left of it", |counters| counters.connections <= 1 && counters.flows[0].in_service == 0).await;
}

/// All that the gateway says to these bytes and the end of the client's side. It has to close then, whatever they were.
async fn answer_to(bed: &Bed, bytes: &[u8]) -> Vec<u8> {
    let mut client = bed.connect().await;
    // The gateway may have closed before the last byte.
    let _ = client.stream.write_all(bytes).await;
    let _ = client.stream.shutdown().await;
    client.read_to_end().await
}

/// Nothing, an answer of HTTP/1, or the settings and then frames that a server may send: each on a stream that a client can have begun,
/// or on the connection. A reset may have cut the last one off. An error says which frame is none of those.
fn check_said(said: &[u8]) -> Result<(), String> {
    if said.starts_with(b"HTTP/1.") {
        return Ok(());
    }
    let (mut rest, mut numbers) = (said, 0..);
    while let Some((head, after)) = rest.split_first_chunk::<9>() {
        let [_, _, _, kind, _, stream @ ..] = *head;
        let (number, stream) = (numbers.next().unwrap_or(0), u32::from_be_bytes(stream));
        let is_of_request = stream % 2 == 1;
        let may_be = match kind {
            DATA | HEADERS | RST_STREAM | CONTINUATION => is_of_request,
            SETTINGS | PING | GOAWAY => stream == 0,
            WINDOW_UPDATE => is_of_request || stream == 0,
            _ => false,
        };
        if !may_be || (number == 0 && kind != SETTINGS) {
            return Err(format!("frame {number} of kind {kind} on stream {stream}"));
        }
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        rest = after.get(length..).unwrap_or_default();
    }
    Ok(())
}

#[test]
fn frames_that_no_server_sends_are_noticed() {
    let settings = [0, 0, 0, SETTINGS, 0, 0, 0, 0, 0];
    let with = |frame: [u8; 9]| check_said(&[settings, frame].concat());
    assert!(with([0, 0, 0, HEADERS, 4, 0, 0, 0, 1]).is_ok());
    assert!(with([0, 0, 0, HEADERS, 4, 0, 0, 0, 2]).is_err(), "no client begins this stream");
    assert!(with([0, 0, 0, 5, 0, 0, 0, 0, 1]).is_err(), "nobody asked for a push");
    assert!(check_said(&[0, 0, 0, PING, 0, 0, 0, 0, 0]).is_err(), "settings come first");
}
