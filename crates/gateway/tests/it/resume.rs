//! Downloads that break in the middle and go on from another instance.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::bed::*;

/// A file of which every byte says where it is.
fn file() -> Vec<u8> {
    (0..200_000u32).map(|at| (at % 251) as u8).collect()
}

/// How an instance serves the file.
#[derive(Clone)]
struct Serving {
    etag: &'static str,
    /// It breaks off after so many bytes of a body.
    breaks_after: Option<usize>,
    /// It knows ranges.
    ranges: bool,
    /// What a part says of its length, in place of that length, and what stands before its range.
    length: Option<&'static str>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Serving {
    fn new(etag: &'static str, breaks_after: Option<usize>) -> Self {
        Self { etag, breaks_after, ranges: true, length: None, heads: Arc::default() }
    }

    async fn start(&self) -> std::net::SocketAddr {
        let serving = self.clone();
        raw_instance(move |stream| serving.clone().serve(stream)).await
    }

    async fn serve(self, mut stream: TcpStream) {
        let Some(head) = read_head(&mut stream).await else { return };
        let head = head.to_lowercase();
        let (first, last) = self.range(&head);
        self.heads.lock().unwrap().push(head);
        let body = &file()[first..=last];
        let (status, range) = if body.len() < file().len() && self.ranges {
            ("206 Partial Content", format!("content-range: bytes {first}-{last}/{}\r\n", file().len()))
        } else {
            ("200 OK", String::new())
        };
        let own = format!("content-length: {}", body.len());
        let length = self.length.filter(|_| !range.is_empty()).unwrap_or(&own);
        let head = format!("HTTP/1.1 {status}\r\netag: {}\r\n{length}\r\n{range}\r\n", self.etag);
        stream.write_all(head.as_bytes()).await.unwrap();
        let sent = self.breaks_after.unwrap_or(body.len()).min(body.len());
        // The client may have gone.
        let _ = stream.write_all(&body[..sent]).await;
        if self.length.is_some_and(|length| length.contains("x-more")) {
            let _ = stream.write_all(b"more").await;
        }
    }

    fn range(&self, head: &str) -> (usize, usize) {
        let whole = (0, file().len() - 1);
        let asked = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
        let Some((first, last)) = asked.filter(|_| self.ranges).and_then(|range| range.split_once('-')) else { return whole };
        (first.parse().unwrap(), last.parse().unwrap_or(whole.1))
    }
}

async fn get(bed: &Bed, more: &str) -> Answer {
    let mut client = bed.connect().await;
    client.send(&format!("GET /file HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{more}\r\n")).await;
    Answer::parse(&client.read_to_end().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_breaks_goes_on_from_another_instance() {
    let (broken, whole) = (Serving::new("\"v1\"", Some(70_000)), Serving::new("\"v1\"", None));
    let bed = Bed::start(vec![cluster(&[broken.start().await, whole.start().await])]).await;
    let answer = get(&bed, "").await;
    assert_eq!((answer.status, answer.header("content-length")), (200, Some("200000")));
    assert!(answer.body == file(), "{} bytes", answer.body.len());
    let asked = whole.heads.lock().unwrap().clone();
    assert_eq!(asked.len(), 1);
    assert!(asked[0].contains("range: bytes=70000-199999\r\n") && asked[0].contains("if-range: \"v1\"\r\n"), "{}", asked[0]);
    let counters = bed.until("it is counted", |counters| counters.flows[0].completions == 1).await;
    let flow = &counters.flows[0];
    assert_eq!((flow.arrivals, flow.completions, flow.errors, flow.retries, flow.in_service), (1, 1, 0, 1, 0), "once");
    let instances: Vec<_> = counters.instances.iter().map(|one| (one.completions, one.failures, one.in_flight)).collect();
    assert_eq!(instances, [(0, 1, 0), (1, 0, 0)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_breaks_twice_and_the_clients_own_range_is_kept() {
    let (first, second) = (Serving::new("\"v1\"", Some(10_000)), Serving::new("\"v1\"", Some(20_000)));
    let third = Serving::new("\"v1\"", None);
    let addresses = [first.start().await, second.start().await, third.start().await];
    let bed = Bed::start(vec![cluster(&addresses)]).await;
    let answer = get(&bed, "range: bytes=50000-149999\r\n").await;
    assert_eq!((answer.status, answer.header("content-range")), (206, Some("bytes 50000-149999/200000")));
    assert!(answer.body == file()[50_000..150_000], "{} bytes", answer.body.len());
    let asked = |serving: &Serving| serving.heads.lock().unwrap()[0].clone();
    assert!(asked(&second).contains("range: bytes=60000-149999\r\n"), "{}", asked(&second));
    assert!(asked(&third).contains("range: bytes=80000-149999\r\n"), "{}", asked(&third));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_not_be_put_together_breaks_off() {
    let no_ranges = Serving { ranges: false, ..Serving::new("\"v1\"", None) };
    let part = |fields| Serving { length: Some(fields), ..Serving::new("\"v1\"", None) };
    for (first, second) in [
        (Serving::new("W/\"v1\"", Some(5000)), Serving::new("W/\"v1\"", None)),
        (Serving::new("\"v1\"", Some(5000)), Serving::new("\"v2\"", None)),
        (Serving::new("\"v1\"", Some(5000)), no_ranges),
        (Serving::new("\"v1\"", Some(5000)), part("content-length: 195000\r\ncontent-encoding: gzip")),
        (Serving::new("\"v1\"", Some(5000)), part("content-length: 195000\r\ncontent-range: bytes 5001-199999/200000")),
        (Serving::new("\"v1\"", Some(5000)), part("content-length: 195000\r\ncontent-range: bytes 5000-199998/200000")),
        (Serving::new("\"v1\"", Some(5000)), part("content-length: 195000\r\ncontent-range: bytes 5000-199999/200001")),
    ] {
        let bed = Bed::start(vec![cluster(&[first.start().await, second.start().await])]).await;
        let answer = get(&bed, "").await;
        assert_eq!((answer.status, answer.body.len()), (200, 5000), "{} then {}, {:?}", first.etag, second.etag, second.length);
        let counters = bed.until("it is counted", |counters| counters.flows[0].errors == 1).await;
        assert_eq!((counters.flows[0].completions, counters.flows[0].in_service), (0, 0));
        assert_eq!(counters.instances[1].failures, 0, "the other one has done nothing wrong");
    }
}

/// The bytes of such a part would come into the middle of a file.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_of_which_the_end_is_not_sure_is_no_rest() {
    for length in
        ["transfer-encoding: gzip, chunked", "content-length: 50", "content-length: 129999", "content-length: 130000, 129999"]
    {
        let first = Serving::new("\"v1\"", Some(70_000));
        let second = Serving { length: Some(length), ..Serving::new("\"v1\"", None) };
        let bed = Bed::start(vec![cluster(&[first.start().await, second.start().await])]).await;
        let answer = get(&bed, "").await;
        assert!(answer.body == file()[..70_000], "{length}: {} bytes", answer.body.len());
        let counters = bed.until("it is counted", |counters| counters.flows[0].errors == 1).await;
        assert_eq!((counters.flows[0].completions, counters.instances[1].failures), (0, 1), "{length}");
    }
}

/// Without a length, only the range says how much has to come.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_ends_too_early_is_gone_on_with_from_a_third() {
    let first = Serving::new("\"v1\"", Some(70_000));
    let second = Serving { length: Some("connection: close"), ..Serving::new("\"v1\"", Some(30_000)) };
    let third = Serving::new("\"v1\"", None);
    let bed = Bed::start(vec![cluster(&[first.start().await, second.start().await, third.start().await])]).await;
    let answer = get(&bed, "").await;
    assert!(answer.body == file(), "{} bytes", answer.body.len());
    let asked = third.heads.lock().unwrap()[0].clone();
    assert!(asked.contains("range: bytes=100000-199999\r\n"), "{asked}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_is_too_long_does_not_pass_its_end() {
    let first = Serving::new("\"v1\"", Some(70_000));
    let second = Serving { length: Some("connection: close\r\nx-more: 1"), ..Serving::new("\"v1\"", None) };
    let bed = Bed::start(vec![cluster(&[first.start().await, second.start().await])]).await;
    let mut client = crate::h2::connect(&bed).await;
    let response = crate::h2::send(&mut client, crate::h2::request("GET", "http://x/file"));
    let answered = crate::h2::within("an answer", response).await.unwrap();
    assert!(crate::h2::read_all(answered.into_body()).await.is_err(), "it is no whole answer");
    bed.until("the second is to blame", |counters| counters.instances[1].failures == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_get_goes_on() {
    for (method, attempts) in [("GET", 2), ("DELETE", 1)] {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let address = raw_instance(move |mut stream| {
            counted.fetch_add(1, Ordering::SeqCst);
            async move {
                read_head(&mut stream).await;
                stream.write_all(b"HTTP/1.1 200 OK\r\netag: \"v1\"\r\ncontent-length: 200000\r\n\r\nhalf").await.unwrap();
            }
        })
        .await;
        let bed = Bed::start(vec![cluster(&[address, address])]).await;
        let mut client = bed.connect().await;
        client.send(&format!("{method} /file HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")).await;
        assert_eq!(Answer::parse(&client.read_to_end().await).text(), "half");
        assert_eq!(asked.load(Ordering::SeqCst), attempts, "{method}");
    }
}
