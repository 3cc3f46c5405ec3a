//! Clients that speak as if they were proxies.

use std::net::TcpListener;
use std::os::fd::AsFd;

use weal_model::{ClientPolicy, HeaderEdits, RouteExtras, RouteSpec};
use weal_protocol::gateway::{ClusterConfig, InnerTier, Listener, Listeners};

use crate::bed::*;
use crate::h2::{answer, connect, request, send};
use crate::raw::{Recorded, Recorder};

/// What only a proxy says, and what is no concern of proxies.
const OF_PROXIES: [&str; 15] = [
    "X-Forwarded-Prefix",
    "X-Forwarded-Port",
    "X-Forwarded-Ssl",
    "X-Forwarded-Server",
    "X-Forwarded-Scheme",
    "X-Forwarded-User",
    "X-Real-IP",
    "Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Accel-Mapping",
    "Front-End-Https",
    "Client-Cert",
];
/// Taken away whoever sends them.
const NEVER: [&str; 9] = [
    "Proxy",
    "X_Forwarded_For",
    "X-Forwarded_Proto",
    "X_Forwarded_Host",
    "X_Forwarded_Prefix",
    "X_Real_IP",
    "X_Request_Id",
    "X_Weal_Class",
    "X_Original_URL",
];
const OF_CLIENTS: [&str; 5] = ["X-Requested-With", "X_Api_Key", "X-Original-Filename", "Proxy-Status", "Cookie"];

fn lines(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name}: forged\r\n")).collect()
}

/// Those of `names` that reached the instance.
fn passed<'n>(got: &Recorded, names: &[&'n str]) -> Vec<&'n str> {
    names.iter().filter(|name| got.fields(name).contains(&"forged")).copied().collect()
}

async fn with_policy(networks: &[&str]) -> (Bed, Recorder) {
    let recorder = Recorder::start().await;
    let bed = Bed::start_in(folder(), limits()).await;
    let trusted_proxies = networks.iter().map(|network| network.parse().unwrap()).collect();
    let clients = ClientPolicy { trusted_proxies, ..ClientPolicy::default() };
    bed.configure_for(vec![cluster(&[recorder.address])], clients).await.unwrap();
    (bed, recorder)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_trusted_proxy_speaks_as_one() {
    for (networks, expected) in [(["10.0.0.0/8"], &[][..]), (["127.0.0.0/8"], &OF_PROXIES[..])] {
        let (bed, recorder) = with_policy(&networks).await;
        let mut client = bed.connect().await;
        let all = [&OF_PROXIES[..], &NEVER, &OF_CLIENTS].concat();
        client.send(&format!("GET / HTTP/1.1\r\nhost: x\r\n{}\r\n", lines(&all))).await;
        assert_eq!(client.read_answer().await.status, 200);
        let got = recorder.take().await.requests.remove(0);
        assert_eq!(passed(&got, &OF_PROXIES), expected, "{networks:?}");
        assert_eq!(passed(&got, &NEVER), [""; 0], "{networks:?}");
        assert_eq!(passed(&got, &OF_CLIENTS), OF_CLIENTS, "{networks:?}");
        assert_eq!(got.fields("x-forwarded-host"), ["x"], "the gateway speaks itself");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_http2_speaks_as_a_proxy_no_more_than_one_of_http1() {
    let (bed, recorder) = with_policy(&[]).await;
    let mut client = connect(&bed).await;
    let all = [&OF_PROXIES[..], &NEVER, &OF_CLIENTS].concat();
    let forged = all.iter().fold(request("GET", "http://x/"), |head, name| head.header(*name, "forged"));
    assert_eq!(answer(send(&mut client, forged)).await.0.status, 200);
    let got = recorder.take().await.requests.remove(0);
    assert_eq!((passed(&got, &OF_PROXIES), passed(&got, &NEVER)), (Vec::new(), Vec::new()));
    assert_eq!(passed(&got, &OF_CLIENTS), OF_CLIENTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_application_that_calls_another_speaks_for_no_proxy_unless_this_machine_is_trusted() {
    for (networks, expected) in [(["10.0.0.0/8"], &[][..]), (["127.0.0.0/8"], &OF_PROXIES[..])] {
        let recorder = Recorder::start().await;
        let flows = [("default".into(), flow(1.0, 9))].into();
        let api = ClusterConfig {
            app: "api".into(),
            routes: Vec::new(),
            flows: std::collections::BTreeMap::new(),
            inner: Some(InnerTier { http: true, flows, unmarked: "default".into(), callers: [].into() }),
            ..cluster(&[recorder.address])
        };
        let bed = Bed::start_in(folder(), limits()).await;
        let trusted_proxies = networks.iter().map(|network| network.parse().unwrap()).collect();
        bed.configure_for(vec![api], ClientPolicy { trusted_proxies, ..ClientPolicy::default() }).await.unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let listeners = Listeners(vec![Listener::Inner { app: "api".into(), address }]);
        weal_rpc::hand_over(&bed.state.join("ports.sock"), &listeners, &[socket.as_fd()]).unwrap();
        let mut caller = Client { stream: tokio::net::TcpStream::connect(address).await.unwrap() };
        let all = lines(&[&OF_PROXIES[..], &NEVER].concat());
        caller.send(&format!("GET / HTTP/1.1\r\nhost: {address}\r\n{all}\r\n")).await;
        assert_eq!(caller.read_answer().await.status, 200);
        let got = recorder.take().await.requests.remove(0);
        assert_eq!((passed(&got, &OF_PROXIES).as_slice(), passed(&got, &NEVER).len()), (expected, 0), "{networks:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_say_nothing_that_only_a_proxy_says() {
    let (bed, recorder) = with_policy(&["127.0.0.0/8"]).await;
    let mut client = bed.connect().await;
    let names = ["X-Sum", "X-Real-IP", "X_Forwarded_For", "Proxy", "X-Forwarded-Port"];
    let (all, named) = (lines(&names), names.join(", "));
    let head = format!("POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntrailer: {named}\r\n\r\n");
    client.send(&format!("{head}4\r\nabcd\r\n0\r\n{all}\r\n")).await;
    assert_eq!(client.read_answer().await.status, 200);
    assert_eq!(recorder.take().await.requests[0].trailers, ["x-sum: forged"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_route_sets_or_removes_has_no_second_form() {
    let recorder = Recorder::start().await;
    let edits = HeaderEdits {
        set: [("x-env".to_owned(), "live".to_owned()), ("x_old".to_owned(), "kept".to_owned())].into(),
        remove: vec!["x-auth-user".to_owned()],
    };
    let extras = RouteExtras { request_headers: edits, ..RouteExtras::default() };
    let shop = ClusterConfig { routes: vec![RouteSpec { extras, ..route("gold", None, None) }], ..cluster(&[recorder.address]) };
    let bed = Bed::start(vec![shop]).await;
    let mut client = bed.connect().await;
    let all = lines(&["X_Env", "X-Env", "X_Auth_User", "X-Auth-User", "X-Auth_User", "X_Other"]);
    client.send(&format!("GET / HTTP/1.1\r\nhost: x\r\n{all}\r\n")).await;
    assert_eq!(client.read_answer().await.status, 200);
    let got = recorder.take().await.requests.remove(0);
    assert_eq!(passed(&got, &["X_Env", "X-Env", "X_Auth_User", "X-Auth-User", "X-Auth_User", "X_Other"]), ["X_Other"]);
    assert_eq!((got.fields("x-env"), got.fields("x_old")), (vec!["live"], vec!["kept"]));
}

/// A byte that no token has makes one name of a list bad, and not the others.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_meant_for_one_connection_is_removed_whatever_else_its_list_names() {
    let recorder = Recorder::start().await;
    let bed = Bed::start(vec![cluster(&[recorder.address])]).await;
    let mut client = bed.connect().await;
    let head = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: X-Secret, \xff\r\nx-secret: 1\r\nte: trailers, \xff\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut client.stream, head).await.unwrap();
    assert_eq!(client.read_answer().await.status, 200);
    let request = &recorder.take().await.requests[0];
    assert_eq!((request.fields("x-secret"), request.fields("te")), (Vec::new(), vec!["trailers"]));
}

/// A client may name any field in `Connection`. Those that the gateway adds are added after that (RFC 9110 section 7.6.1).
#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_have_removed_what_a_route_or_the_pool_adds() {
    let recorder = Recorder::start().await;
    let edits = HeaderEdits { set: [("x-env".to_owned(), "live".to_owned())].into(), remove: Vec::new() };
    let extras = RouteExtras { request_headers: edits, strip_prefix: Some("/api".into()), ..RouteExtras::default() };
    let shop = ClusterConfig {
        routes: vec![RouteSpec { extras, ..route("gold", None, Some("/api/*")) }],
        ..cluster(&[recorder.address])
    };
    let bed = Bed::start_in(folder(), limits()).await;
    bed.configure_for(vec![shop], ClientPolicy { traceparent: true, ..ClientPolicy::default() }).await.unwrap();
    let named = "close, X-Env, X-Forwarded-Prefix, Traceparent, X-Request-Id, Content-Length, Transfer-Encoding, TE, X-Mine";
    for (framing, body) in [("content-length: 4", "abcd"), ("transfer-encoding: chunked", "4\r\nabcd\r\n0\r\n\r\n")] {
        let mut client = bed.connect().await;
        client
            .send(&format!(
                "POST /api/a HTTP/1.1\r\nhost: x\r\nconnection: {named}\r\nte: trailers\r\nx-mine: 1\r\n{framing}\r\n\r\n{body}"
            ))
            .await;
        assert_eq!(Answer::parse(&client.read_to_end().await).status, 200, "{framing}");
        let got = recorder.take().await.requests.remove(0);
        assert_eq!(got.summary(), "POST /a abcd");
        assert_eq!((got.fields("x-env"), got.fields("x-forwarded-prefix")), (vec!["live"], vec!["/api"]));
        assert_eq!([got.fields("traceparent").len(), got.fields("x-request-id").len(), got.fields("x-mine").len()], [1, 1, 0]);
        assert_eq!((got.fields("te"), got.fields("connection")), (vec!["trailers"], vec!["TE"]));
    }
}

/// Nor can an instance, of what a client is told.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_cannot_have_removed_what_the_gateway_tells_clients() {
    let named = "X-Request-Id, Set-Cookie, Strict-Transport-Security, Content-Length, Date, X-Mine";
    let answer =
        format!("HTTP/1.1 200 OK\r\nconnection: {named}\r\nx-mine: 1\r\nset-cookie: own=1\r\ncontent-length: 2\r\n\r\nok");
    let edits =
        HeaderEdits { set: [("strict-transport-security".to_owned(), "max-age=1".to_owned())].into(), remove: Vec::new() };
    let extras = RouteExtras { response_headers: edits, ..RouteExtras::default() };
    let routes = vec![RouteSpec { extras, ..route("gold", None, None) }];
    let mut shop = ClusterConfig { routes, ..cluster(&[hasty(answer, false).await.0]) };
    shop.http.dispatch.affinity = Some("shop-at".into());
    let bed = Bed::start(vec![shop]).await;
    let got = bed.get("x", "/").await;
    assert_eq!(
        (got.status, got.text().as_str(), got.header("content-length"), got.header("x-mine")),
        (200, "ok", Some("2"), None)
    );
    assert!(got.header("x-request-id").is_some() && got.header("date").is_some());
    assert!(got.header("set-cookie").is_some_and(|cookie| cookie.starts_with("shop-at=")), "{:?}", got.header("set-cookie"));
    assert_eq!(got.header("strict-transport-security"), Some("max-age=1"));
}
