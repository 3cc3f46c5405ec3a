//! Spans of requests: of which there are some, and what they say.

use weal_model::ClientPolicy;
use weal_protocol::spans::{RequestSpan, SPANS, SpansQuery, SpansTaken};

use crate::bed::*;
use crate::raw::Recorder;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A gateway before a recorder that keeps spans, and samples the share `trace_ratio` of the traces that begin at it.
async fn tracing(trace_ratio: f64) -> (Bed, Recorder) {
    let recorder = Recorder::start().await;
    let bed = Bed::start_in(folder(), limits()).await;
    let clients = ClientPolicy { spans: true, trace_ratio, ..behind_local_proxies() };
    bed.configure_for(vec![cluster(&[recorder.address])], clients).await.unwrap();
    (bed, recorder)
}

/// One request with these fields; what its instance got as `traceparent`.
async fn ask(bed: &Bed, recorder: &Recorder, fields: &str) -> String {
    let mut client = bed.connect().await;
    client.send(&format!("GET /a?b=c HTTP/1.1\r\nhost: shop.example\r\n{fields}connection: close\r\n\r\n")).await;
    assert_eq!(Answer::parse(&client.read_to_end().await).status, 200);
    let got = recorder.take().await.requests.remove(0);
    let parents = got.fields("traceparent");
    assert_eq!(parents.len(), 1, "{parents:?}");
    parents[0].to_owned()
}

async fn take(bed: &Bed, most: u32) -> SpansTaken {
    bed.rpc.call(SPANS, &SpansQuery { most }).await.unwrap()
}

/// So many spans that have ended, once there are as many.
async fn spans(bed: &Bed, count: usize) -> Vec<RequestSpan> {
    bed.until("the requests have ended", |counters| counters.spans.ended >= count as u64).await;
    let taken = take(bed, 100).await;
    assert_eq!((taken.spans.len(), taken.has_more, taken.gateway.as_str()), (count, false, "gw"), "{:?}", taken.spans);
    taken.spans
}

#[tokio::test(flavor = "multi_thread")]
async fn a_traced_request_yields_one_span_that_its_instance_has_as_parent() {
    let (bed, recorder) = tracing(0.0).await;
    let sent = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\nx-forwarded-for: 203.0.113.7\r\nuser-agent: it\r\n");
    let parent = ask(&bed, &recorder, &sent).await;
    let span = spans(&bed, 1).await.remove(0);
    assert_eq!(parent, format!("00-{TRACE}-{}-01", span.id), "the instance's parent is the gateway's span");
    assert_eq!((span.trace.as_str(), span.parent.as_deref()), (TRACE, Some(PARENT)), "the gateway's parent is the client's");
    assert_eq!((span.method.as_str(), span.target.as_str(), span.host.as_str()), ("GET", "/a?b=c", "shop.example"));
    assert_eq!((span.status, span.reason, span.version.as_str(), span.secure), (200, None, "1.1", false));
    assert_eq!((span.app, span.class), (Some("shop".into()), Some("gold".into())));
    assert_eq!((span.client.to_string(), span.peer.ip().to_string()), ("203.0.113.7".to_owned(), "127.0.0.1".to_owned()));
    assert!(
        span.agent == "it" && span.begun <= span.ended && !span.request_id.is_empty(),
        "it took some time, and says whose it is"
    );
    assert!(take(&bed, 100).await.spans.is_empty(), "each is told once");
}

#[tokio::test(flavor = "multi_thread")]
async fn its_client_decides_whether_a_trace_is_sampled_and_else_the_ratio() {
    for (ratio, fields, sampled) in [
        (1.0, format!("traceparent: 00-{TRACE}-{PARENT}-00\r\n"), false),
        (0.0, format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n"), true),
        (0.0, String::new(), false),
        (1.0, String::new(), true),
        (1.0, "traceparent: nonsense\r\n".to_owned(), true),
    ] {
        let (bed, recorder) = tracing(ratio).await;
        let parent = ask(&bed, &recorder, &fields).await;
        assert_eq!(parent.ends_with("-01"), sampled, "{ratio} {fields}: {parent}");
        // A request of a trace that is sampled for sure: when its span is there, that of the one before would be too.
        ask(&bed, &recorder, &format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n")).await;
        let count = 1 + usize::from(sampled);
        let spans = spans(&bed, count).await;
        if sampled && !fields.contains(TRACE) {
            assert!(spans[0].parent.is_none() && parent.contains(&spans[0].trace), "{ratio} {fields}: {spans:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_gateway_answers_itself_has_a_span_with_the_reason() {
    let bed = Bed::start_in(folder(), limits()).await;
    bed.configure_for(Vec::new(), ClientPolicy { spans: true, ..ClientPolicy::default() }).await.unwrap();
    let answer = bed.get("nobody.example", "/").await;
    let span = spans(&bed, 1).await.remove(0);
    assert_eq!((span.status, span.reason.as_deref()), (answer.status, answer.header("x-weal-reason")));
    assert!(span.reason.is_some() && span.app.is_none() && span.parent.is_none(), "{span:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_nobody_fetches_are_dropped_and_counted_and_none_are_kept_when_nobody_asks_for_any() {
    const ROOM: u64 = 8192;
    let (bed, _recorder) = tracing(1.0).await;
    let mut client = bed.connect().await;
    let count = ROOM + 8;
    // A host without a route: no instance slows this down.
    bed.configure_for(Vec::new(), ClientPolicy { spans: true, client_rate: 0, ..ClientPolicy::default() }).await.unwrap();
    for _ in 0..count {
        client.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        client.read_answer().await;
    }
    let counters = bed.until("all have ended", |counters| counters.spans.ended >= count).await;
    assert_eq!((counters.spans.ended, counters.spans.dropped), (count, 8));
    let first = take(&bed, 10).await;
    assert!(first.spans.len() == 10 && first.has_more, "{}", first.spans.len());
    bed.configure_for(Vec::new(), ClientPolicy::default()).await.unwrap();
    client.send("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await;
    client.read_answer().await;
    bed.until("the connection has ended", |counters| counters.connections == 0).await;
    assert_eq!(bed.observe().await.spans, counters.spans, "nothing is kept without the policy");
}
