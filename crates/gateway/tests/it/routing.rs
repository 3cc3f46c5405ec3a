//! Where requests go, and what instances and clients get to see.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

use crate::bed::*;

/// Sends back the request's line, headers and body as text.
async fn mirror(request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let mut text = format!("{} {} {:?}\n", parts.method, parts.uri, parts.version);
    for (name, value) in &parts.headers {
        text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
    }
    text.push_str(&format!("\n{}", String::from_utf8_lossy(&body.collect().await.unwrap().to_bytes())));
    let response = Response::builder().header("connection", "x-private").header("x-private", "1").header("x-public", "1");
    response.body(Full::from(text)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn host_path_and_header_choose_the_cluster_and_the_class() {
    let (shop, wiki) = (named("shop").await, named("wiki").await);
    let mut first = cluster(&[shop]);
    first.routes = vec![route("gold", Some("shop.test"), None), route("bronze", Some("shop.test"), Some("/report/*"))];
    first.routes.push(header_route("bronze", "x-batch", "1"));
    first.flows.insert("bronze".into(), flow(1.0, 10));
    let mut second = cluster(&[wiki]);
    second.app = "wiki".into();
    second.routes = vec![route("gold", Some("*.wiki.test"), None)];
    let bed = Bed::start(vec![first, second]).await;
    for (host, path, body) in [("shop.test", "/", "shop"), ("SHOP.test:80", "/report/x?y", "shop"), ("de.wiki.test", "/", "wiki")]
    {
        let answer = bed.get(host, path).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, body), "{host}{path}");
    }
    let answer = bed.get("other.test", "/x").await;
    assert_eq!((answer.status, answer.text().as_str()), (404, "no route for other.test and /x\n"));
    let counters =
        bed.until("all are counted", |counters| counters.flows.iter().map(|flow| flow.completions).sum::<u64>() == 3).await;
    let of = |app: &str, class: &str| {
        counters.flows.iter().find(|flow| flow.id.app.as_str() == app && flow.id.class.as_str() == class).unwrap().completions
    };
    assert_eq!((of("shop", "gold"), of("shop", "bronze"), of("wiki", "gold"), counters.unrouted), (1, 1, 1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_are_rewritten_for_the_other_side() {
    let bed = Bed::start(Vec::new()).await;
    bed.configure_for(vec![cluster(&[instance(mirror).await])], behind_local_proxies()).await.unwrap();
    let mut client = bed.connect().await;
    client
        .send(
            "POST http://shop.test/a?b=c HTTP/1.1\r\nHost: shop.test\r\nConnection: keep-alive, x-mine\r\nX-Mine: 1\r\n\
             Keep-Alive: 5\r\nTE: gzip\r\nProxy-Authorization: Basic x\r\nX-Forwarded-For: 192.0.2.7\r\n\
             X-Forwarded-For: 192.0.2.8\r\nContent-Length: 5\r\n\r\nhello",
        )
        .await;
    let answer = client.read_answer().await;
    let mut lines: Vec<String> = answer.text().lines().map(Into::into).collect();
    let id = answer.header("x-request-id").unwrap();
    assert!(lines.contains(&format!("x-request-id: {id}")), "{lines:?}");
    lines.retain(|line| !line.starts_with("x-request-id"));
    lines[1..].sort();
    assert_eq!(
        lines,
        [
            "POST /a?b=c HTTP/1.1",
            "",
            "content-length: 5",
            "forwarded: for=127.0.0.1;proto=http;host=shop.test",
            "hello",
            "host: shop.test",
            "via: 1.1 weal",
            "x-forwarded-for: 192.0.2.7, 192.0.2.8, 127.0.0.1",
            "x-forwarded-host: shop.test",
            "x-forwarded-proto: http",
        ]
    );
    assert_eq!((answer.header("x-public"), answer.header("x-private")), (Some("1"), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_quotes_no_more_of_a_request_than_a_line() {
    let mut shop = cluster(&[nobody().await]);
    shop.routes[0].host = Some("shop.test".into());
    let bed = Bed::start(vec![shop]).await;
    let answer = bed.get("other.test", &format!("/{}", "x".repeat(8000))).await;
    assert_eq!((answer.status, answer.header("x-weal-reason")), (404, Some("no-route")));
    assert!(
        answer.text().starts_with("no route for other.test and /xxx") && answer.text().len() < 520,
        "{}",
        answer.text().len()
    );
}

/// Servlet containers cut parameters off before they look at the segments of a path.
#[tokio::test(flavor = "multi_thread")]
async fn a_route_is_not_passed_by_with_parameters_in_a_path() {
    let mut all = cluster(&[named("all").await]);
    let mut admin = cluster(&[named("admin").await]);
    admin.app = "admin".into();
    admin.routes = vec![route("gold", None, Some("/admin/*")), route("gold", None, Some("/one;v=1"))];
    all.routes = vec![route("gold", None, None)];
    let bed = Bed::start(vec![all.clone(), admin.clone()]).await;
    for (path, body) in [
        ("/admin", "admin"),
        ("/admin;x", "admin"),
        ("/admin;x=y/z", "admin"),
        ("/;a/admin/b", "admin"),
        ("/x/..;/admin", "admin"),
        ("/x/%2e%2e;a=b/%61dmin", "admin"),
        ("/one;v=1", "admin"),
        ("/one;v=2", "all"),
        ("/one", "all"),
        ("/admin%3Bx", "all"),
        ("/a;/admin", "all"),
    ] {
        assert_eq!(bed.get("x", path).await.text(), body, "{path}");
    }
    admin.http.normalize_paths = false;
    bed.configure(vec![all, admin]).await.unwrap();
    for (path, body) in [("/admin;x", "all"), ("/x/..;/admin", "all"), ("/admin/b;x", "admin")] {
        assert_eq!(bed.get("x", path).await.text(), body, "{path}: as it is written");
    }
}
