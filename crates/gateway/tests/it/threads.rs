//! Servers that give a thread to each connection.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use weal_gateway::Limits;

use crate::bed::*;

/// A server of so many threads, each of which serves one connection to its end. It counts the connections that it took.
fn server(threads: usize) -> (SocketAddr, Arc<AtomicU32>) {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let (address, taken) = (listener.local_addr().unwrap(), Arc::new(AtomicU32::new(0)));
    for _ in 0..threads {
        let (listener, taken) = (Arc::clone(&listener), Arc::clone(&taken));
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                taken.fetch_add(1, Ordering::SeqCst);
                let mut writer = stream.try_clone().unwrap();
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if line.is_empty() {
                        std::thread::sleep(Duration::from_millis(2));
                        let _ = writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                    }
                }
            }
        });
    }
    (address, taken)
}

/// Without a gateway that gives connections up, six of eight would wait until the others have been idle for ten minutes.
#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_keep_new_ones_from_a_server_of_two_threads() {
    let (address, _) = server(2);
    let limits = Limits { idle_upstream: Duration::from_secs(600), ..limits() };
    let bed = Bed::start_with(vec![cluster(&[address])], limits).await;
    for _ in 0..3 {
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let mut client = bed.connect().await;
            asking.spawn(async move {
                for _ in 0..5 {
                    client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
                    assert_eq!(client.read_answer().await.status, 200);
                }
            });
        }
        while let Some(asked) = asking.join_next().await {
            asked.unwrap();
        }
    }
    let flow = bed.flow("gold").await;
    assert_eq!((flow.completions, flow.errors), (120, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_in_time_keeps_its_connections() {
    let (address, taken) = server(64);
    let limits = Limits { workers: 1, idle_upstream: Duration::from_secs(600), ..limits() };
    let bed = Bed::start_with(vec![cluster(&[address])], limits).await;
    let mut client = bed.connect().await;
    for _ in 0..50 {
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        assert_eq!(client.read_answer().await.status, 200);
    }
    assert_eq!(taken.load(Ordering::SeqCst), 1);
}
