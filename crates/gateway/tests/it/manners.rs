//! What routes do besides passing requests on.

use weal_model::{AccessLog, Bytes, ClientPolicy, HeaderEdits, RedirectRule, RouteExtras, RouteSpec};
use weal_protocol::gateway::ClusterConfig;

use crate::bed::*;
use crate::raw::Recorder;

/// `shop` at `address` with one route for `path` that does `extras`, and one for everything else.
fn with_extras(address: std::net::SocketAddr, path: &str, extras: RouteExtras) -> ClusterConfig {
    let special = RouteSpec { extras, ..route("gold", None, Some(path)) };
    ClusterConfig { routes: vec![special, route("gold", None, None)], ..cluster(&[address]) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stripped_prefix_is_gone_for_the_instance_which_is_told_of_it() {
    let recorder = Recorder::start().await;
    let extras = RouteExtras { strip_prefix: Some("/api".into()), ..RouteExtras::default() };
    let bed = Bed::start(vec![with_extras(recorder.address, "/api/*", extras)]).await;
    for (path, target, prefix) in [
        ("/api/a?b=/api", "/a?b=/api", vec!["/api"]),
        ("/%61pi", "/", vec!["/api"]),
        ("/api;v=1/a;x=2", "/a;x=2", vec!["/api"]),
        ("/apis/api", "/apis/api", vec![]),
    ] {
        assert_eq!(bed.get("x", path).await.status, 200);
        let got = recorder.take().await.requests.remove(0);
        assert!(got.head.starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{path}: {}", got.head);
        assert_eq!(got.fields("x-forwarded-prefix"), prefix, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_takes_no_instance_and_is_no_refusal() {
    let rule = RedirectRule { to: "https://$host:8443$path".into(), status: 308 };
    let extras = RouteExtras { redirect: Some(rule), strip_prefix: Some("/old".into()), ..RouteExtras::default() };
    let bed = Bed::start(vec![with_extras(nobody().await, "/old/*", extras)]).await;
    let mut client = bed.connect().await;
    client.send("POST /old/a?b HTTP/1.1\r\nhost: Shop.Example:80\r\ncontent-length: 3\r\n\r\nabc").await;
    let answer = client.read_answer().await;
    assert_eq!((answer.status, answer.header("location")), (308, Some("https://shop.example:8443/a?b")));
    client.send("HEAD /old HTTP/1.1\r\nhost: shop.example\r\nconnection: close\r\n\r\n").await;
    let answer = Answer::parse(&client.read_to_end().await);
    assert_eq!((answer.status, answer.header("location")), (308, Some("https://shop.example:8443/")));
    assert!(refused(&bed).await.is_empty());
}

async fn refused(bed: &Bed) -> Vec<weal_model::RefusedRequest> {
    let query = weal_protocol::gateway::RefusedQuery { app: None, id: None, limit: 100 };
    bed.rpc.call(weal_protocol::gateway::REFUSED, &query).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_changed_as_the_route_says_in_both_directions_and_in_the_gateways_own_answers() {
    let recorder = Recorder::start().await;
    let edits = |set: &[(&str, &str)], remove: &[&str]| HeaderEdits {
        set: set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        remove: remove.iter().map(|name| (*name).to_owned()).collect(),
    };
    let extras = RouteExtras {
        request_headers: edits(&[("host", "inner"), ("x-env", "live")], &["cookie", "x-forwarded-for"]),
        response_headers: edits(&[("strict-transport-security", "max-age=1")], &["content-type"]),
        body_limit: Some(Bytes(1)),
        ..RouteExtras::default()
    };
    let bed = Bed::start(vec![with_extras(recorder.address, "/", extras)]).await;
    let mut client = bed.connect().await;
    client.send("GET / HTTP/1.1\r\nhost: x\r\ncookie: a\r\nx-env: test\r\nx-env: more\r\ncookie: b\r\n\r\n").await;
    let answer = client.read_answer().await;
    assert_eq!((answer.status, answer.header("strict-transport-security")), (200, Some("max-age=1")));
    let got = recorder.take().await.requests.remove(0);
    for (name, values) in [
        ("host", vec!["inner"]),
        ("x-env", vec!["live"]),
        ("cookie", vec![]),
        ("x-forwarded-for", vec![]),
        ("x-forwarded-host", vec!["x"]),
    ] {
        assert_eq!(got.fields(name), values, "{name}");
    }
    client.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n").await;
    let answer = client.read_answer().await;
    assert_eq!(
        (answer.status, answer.header("strict-transport-security"), answer.header("content-type")),
        (413, Some("max-age=1"), None)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_beyond_the_limit_is_refused_before_it_is_read_when_its_length_tells_and_where_it_passes_the_limit_otherwise() {
    let recorder = Recorder::start().await;
    let extras = RouteExtras { body_limit: Some(Bytes(10)), ..RouteExtras::default() };
    let bed = Bed::start(vec![with_extras(recorder.address, "/small", extras)]).await;
    let mut known = bed.connect().await;
    known.send("POST /small HTTP/1.1\r\nhost: x\r\ncontent-length: 11\r\n\r\n").await;
    let answer = known.read_answer().await;
    assert_eq!((answer.status, answer.header("x-weal-reason")), (413, Some("body-too-large")));
    assert_eq!(answer.header("connection"), Some("close"));
    let mut expecting = bed.connect().await;
    expecting.send("POST /small HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 11\r\n\r\n").await;
    assert_eq!(expecting.read_answer().await.status, 413);
    assert!(recorder.take().await.requests.is_empty(), "nothing of them is sent");
    let mut chunked = bed.connect().await;
    chunked.send("POST /small HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").await;
    chunked.send("6\r\nabcdef\r\n5\r\nabcde\r\n0\r\n\r\n").await;
    assert_eq!(chunked.read_answer().await.status, 413);
    for body in ["content-length: 10\r\n\r\nabcdefghij", "transfer-encoding: chunked\r\n\r\na\r\nabcdefghij\r\n0\r\n\r\n"] {
        let mut client = bed.connect().await;
        client.send(&format!("POST /small HTTP/1.1\r\nhost: x\r\n{body}")).await;
        assert_eq!(client.read_answer().await.status, 200, "{body}");
    }
    let counters = bed.observe().await;
    assert_eq!(counters.instances[0].failures, 0, "clients' faults are not the instance's");
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_and_errors_are_said_with_the_pages_of_the_route() {
    let folder = folder();
    let page = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let pages = [("503".into(), page("closed.html", "<p>closed")), ("5xx".into(), page("sorry.txt", "sorry"))];
    let extras = RouteExtras { maintenance: true, error_pages: pages.clone().into(), ..RouteExtras::default() };
    let mut config = with_extras(nobody().await, "/closed/*", extras);
    config.routes[1].extras.error_pages = [pages[1].clone(), ("404".into(), "/nowhere".into())].into();
    let bed = Bed::start(vec![config]).await;
    let closed = bed.get("x", "/closed/a").await;
    assert_eq!((closed.status, closed.text().as_str()), (503, "<p>closed"));
    assert_eq!((closed.header("content-type"), closed.header("retry-after")), (Some("text/html; charset=utf-8"), Some("1")));
    assert_eq!(closed.header("x-weal-reason"), Some("maintenance"));
    let failed = bed.get("x", "/open").await;
    assert_eq!((failed.status, failed.text().as_str()), (502, "sorry"));
    assert_eq!(refused(&bed).await.len(), 2);
}

/// A gateway before a recorder that treats clients as `clients` says.
async fn with_policy(clients: ClientPolicy) -> (Bed, Recorder) {
    let recorder = Recorder::start().await;
    let bed = Bed::start_in(folder(), limits()).await;
    bed.configure_for(vec![cluster(&[recorder.address])], clients).await.unwrap();
    (bed, recorder)
}

const FORWARDED: &str =
    "x-forwarded-for: 198.51.100.9, 203.0.113.7\r\nx-forwarded-proto: https\r\nx-forwarded-host: shop.example\r\n";

async fn forwarded(bed: &Bed) -> Answer {
    let mut client = bed.connect().await;
    client.send(&format!("GET /a?b HTTP/1.1\r\nhost: x\r\n{FORWARDED}user-agent: \"x\u{9b}\r\nconnection: close\r\n\r\n")).await;
    Answer::parse(&client.read_to_end().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_trusted_proxies_say_who_the_client_is() {
    for (networks, address, proto) in [
        (vec!["127.0.0.0/8"], "198.51.100.9, 203.0.113.7, 127.0.0.1", "https"),
        (vec!["10.0.0.0/8"], "127.0.0.1", "http"),
        // As a pool is whose config says nothing of proxies.
        (vec![], "127.0.0.1", "http"),
    ] {
        let trusted_proxies = networks.iter().map(|network| network.parse().unwrap()).collect();
        let (bed, recorder) = with_policy(ClientPolicy { trusted_proxies, ..ClientPolicy::default() }).await;
        assert_eq!(forwarded(&bed).await.status, 200);
        let got = recorder.take().await.requests.remove(0);
        assert_eq!(
            (got.fields("x-forwarded-for"), got.fields("x-forwarded-proto")),
            (vec![address], vec![proto]),
            "{networks:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_carries_a_trace_when_the_pool_says_so_and_else_what_its_client_sent() {
    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for traceparent in [true, false] {
        let (bed, recorder) = with_policy(ClientPolicy { traceparent, ..ClientPolicy::default() }).await;
        for sent in [Some(PARENT), Some("nonsense"), None] {
            let mut client = bed.connect().await;
            let field = sent.map_or_else(String::new, |sent| format!("traceparent: {sent}\r\n"));
            client.send(&format!("GET / HTTP/1.1\r\nhost: x\r\n{field}\r\n")).await;
            assert_eq!(client.read_answer().await.status, 200);
            let got = recorder.take().await.requests.remove(0);
            let got = got.fields("traceparent");
            if !traceparent {
                assert_eq!(got, Vec::from_iter(sent));
                continue;
            }
            assert_eq!((got.len(), got[0].len()), (1, PARENT.len()));
            assert_ne!(got[0], PARENT, "the gateway is the parent now");
            assert_eq!(got[0].starts_with(&PARENT[..36]), sent == Some(PARENT), "{sent:?}: {got:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_has_a_line_for_each_request_whose_bytes_are_all_visible() {
    for access_log in [AccessLog::Json, AccessLog::Combined] {
        let (bed, _recorder) = with_policy(ClientPolicy { access_log, ..behind_local_proxies() }).await;
        let id = forwarded(&bed).await.header("x-request-id").unwrap().to_owned();
        let file = bed.state.join("gateway/access.log");
        let begun = std::time::Instant::now();
        let log = loop {
            let log = std::fs::read_to_string(&file).unwrap_or_default();
            if log.ends_with('\n') {
                break log;
            }
            assert!(begun.elapsed() < PATIENCE, "no line: {log:?}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        };
        assert_eq!(log.lines().count(), 1);
        assert!(log.trim_end().bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{log}");
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&file).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        if access_log == AccessLog::Combined {
            assert!(log.starts_with("203.0.113.7 - - [") && log.contains("\"GET /a?b HTTP/1.1\" 200 "), "{log}");
            continue;
        }
        let line: serde_json::Value = serde_json::from_str(&log).unwrap();
        let year: u32 = line["time"].as_str().unwrap()[..4].parse().unwrap();
        assert!((2026..2200).contains(&year), "{log}");
        for (key, value) in
            [("client", "203.0.113.7"), ("target", "/a?b"), ("flow", "shop/gold"), ("user_agent", "\"x\u{9b}"), ("id", &id)]
        {
            assert_eq!(line[key], value, "{log}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_gets_so_many_connections_and_requests_and_those_behind_a_trusted_proxy_have_their_own() {
    let clients =
        ClientPolicy { unlimited_clients: Vec::new(), client_connections: 2, client_rate: 2, ..ClientPolicy::default() };
    let (bed, _recorder) = with_policy(clients.clone()).await;
    let mut first = bed.connect().await;
    let _second = bed.connect().await;
    bed.until("both are open", |counters| counters.connections == 2).await;
    let third = Answer::parse(&bed.connect().await.read_to_end().await);
    assert_eq!((third.status, third.header("retry-after")), (429, Some("1")));
    let mut statuses = Vec::new();
    for _ in 0..50 {
        first.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        let answer = first.read_answer().await;
        statuses.push((answer.status, answer.header("retry-after").is_some()));
    }
    assert_eq!(statuses[..4], [(200, false); 4], "a burst may come");
    assert!(statuses.contains(&(429, true)), "{statuses:?}");
    drop((first, _second));
    bed.until("they are gone", |counters| counters.connections == 0).await;
    let behind = ClientPolicy { client_rate: 1, trusted_proxies: vec!["127.0.0.1".parse().unwrap()], ..clients };
    bed.configure_for(vec![cluster(&[named("one").await])], behind).await.unwrap();
    let mut proxy = bed.connect().await;
    let mut by_client = std::collections::BTreeMap::<&str, Vec<u16>>::new();
    for _ in 0..20 {
        for client in ["192.0.2.1", "192.0.2.2", ""] {
            let field = if client.is_empty() { String::new() } else { format!("x-forwarded-for: {client}\r\n") };
            proxy.send(&format!("GET / HTTP/1.1\r\nhost: x\r\n{field}\r\n")).await;
            by_client.entry(client).or_default().push(proxy.read_answer().await.status);
        }
    }
    for client in ["192.0.2.1", "192.0.2.2"] {
        assert_eq!(by_client[client][..2], [200, 200], "{by_client:?}");
        assert!(by_client[client].contains(&429), "{by_client:?}");
    }
    assert!(by_client[""].iter().all(|status| *status == 200), "the proxy itself is not limited: {by_client:?}");
}

/// As a pool is whose config says nothing of proxies: a hosted application connects from this machine as well.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_this_machine_takes_nothing_of_another_clients_rate() {
    let clients =
        ClientPolicy { client_rate: 2, unlimited_clients: vec!["127.0.0.1".parse().unwrap()], ..ClientPolicy::default() };
    let (bed, _recorder) = with_policy(clients).await;
    let mut program = bed.connect().await;
    for _ in 0..20 {
        program.send("GET / HTTP/1.1\r\nhost: x\r\nx-forwarded-for: 127.0.0.2\r\n\r\n").await;
        assert_eq!(program.read_answer().await.status, 200, "this machine is not limited");
    }
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut victim = Client { stream: socket.connect(bed.address).await.unwrap() };
    let mut statuses = Vec::new();
    for _ in 0..50 {
        victim.send("GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        statuses.push(victim.read_answer().await.status);
    }
    assert_eq!(statuses[..4], [200; 4], "nobody has used what it may send");
    assert!(statuses.contains(&429), "it has a limit of its own: {statuses:?}");
}
