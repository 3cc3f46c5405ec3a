//! Frames of HTTP/2 that no client means, sent to a gateway as it runs.

use std::cell::Cell;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::bed::{Bed, cluster, named};

/// Each input takes a connection: of this many, one is sent.
const ONE_OF: u64 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fuzz_http2() {
    let bed = Bed::start(vec![cluster(&[named("a").await])]).await;
    let (handle, number) = (Handle::current(), Cell::new(0_u64));
    block_in_place(|| {
        weal_fuzz::target("http2", |bytes| {
            number.set(number.get() + 1);
            // The corpus comes first, and all of it is sent.
            if number.get() < ONE_OF || number.get().is_multiple_of(ONE_OF) {
                handle.block_on(send(&bed, bytes));
            }
        });
    });
    assert_eq!(bed.get("x", "/").await.status, 200, "it serves all others as before");
    bed.until("nothing is left of it", |counters| counters.connections <= 1 && counters.flows[0].in_service == 0).await;
}

/// Sends it all, and goes away after the first words of an answer, or at the end of the connection.
async fn send(bed: &Bed, bytes: &[u8]) {
    let mut client = bed.connect().await;
    // The gateway may have closed before the last byte.
    let _ = client.stream.write_all(bytes).await;
    let _ = client.stream.shutdown().await;
    let mut some = [0; 64];
    let _ = client.stream.read(&mut some).await;
}
