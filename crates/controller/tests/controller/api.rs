//! The API: who may do what, and what becomes of bad input.

use serde_json::Value;
use weal_protocol::controller::{ApiError, AuditEntry, Caller, ConfigRefused, TokenMade};

use crate::fake::{CONFIG, Pool};

fn error(body: &str) -> String {
    serde_json::from_str::<ApiError>(body).unwrap_or_else(|error| panic!("{error}: {body}")).error
}

#[tokio::test]
async fn orders_over_tcp_need_the_token_and_reads_on_loopback_do_not() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    let update = serde_json::json!({ "text": CONFIG, "path": "weal.toml" }).to_string();
    let (status, body) = pool.tcp("PUT", "/v1/config", &[], update.clone()).await;
    assert_eq!(status, 401);
    assert!(error(&body).contains("controller/token"), "{body}");
    let wrong = format!("Bearer {}", "0".repeat(64));
    assert_eq!(pool.tcp("PUT", "/v1/config", &[("authorization", &wrong)], update.clone()).await.0, 401);
    let right = format!("Bearer {}", pool.token());
    assert_eq!(pool.tcp("PUT", "/v1/config", &[("authorization", &right)], update).await.0, 200);
    for path in ["/v1/config", "/v1/apps/shop/logs"] {
        assert_eq!(pool.tcp("GET", path, &[], "").await.0, 401, "{path}");
        assert_eq!(pool.tcp("GET", path, &[("authorization", &right)], "").await.0, 200, "{path}");
    }
    for path in
        ["/v1/status", "/v1/apps/shop/why", "/v1/events", "/v1/plan", "/v1/history", "/metrics", "/openapi.json", "/healthz", "/"]
    {
        assert_eq!(pool.tcp("GET", path, &[], "").await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn a_page_from_elsewhere_cannot_read_through_a_rebound_name() {
    let pool = Pool::start().await;
    let (status, body) = pool.tcp("GET", "/v1/status", &[("host", "evil.example:8081")], "").await;
    assert_eq!(status, 421);
    assert!(error(&body).contains("Host"), "{body}");
}

#[tokio::test]
async fn bad_requests_get_json_errors_and_change_nothing() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    let huge = "x".repeat((1 << 20) + 1);
    let cases: [(&str, &str, &str, u16, &str); 9] = [
        ("PUT", "/v1/config", &huge, 413, "larger than 1048576 bytes"),
        ("PUT", "/v1/config", "", 400, "cannot be read"),
        ("PUT", "/v1/config", "\u{0}\u{1}garbage", 400, "cannot be read"),
        ("PUT", "/v1/config", r#"{"text": "", "path": "p", "dryrun": true}"#, 400, "unknown field `dryrun`"),
        ("GET", "/v1/nothing", "", 404, "openapi.json"),
        ("DELETE", "/v1/config", "", 405, "another method"),
        ("GET", "/v1/events?limit=many", "", 400, "query"),
        ("GET", "/v1/apps/nosuch/why", "", 404, "there are db, shop"),
        ("GET", "/v1/apps/nosuch/logs", "", 404, "there is no application `nosuch`"),
    ];
    for (method, path, body, wanted, part) in cases {
        let (status, answer) = pool.local(method, path, body.to_owned()).await;
        assert_eq!(status, wanted, "{method} {path}: {answer}");
        assert!(error(&answer).contains(part), "{method} {path}: {answer}");
    }
    assert_eq!(pool.status().await.config_generation, 1);
}

#[tokio::test]
async fn a_bad_config_is_refused_with_its_places_and_the_old_one_stays() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    let bad = CONFIG.replace("memory = \"100MiB\"", "memry = \"100MiB\"");
    let (status, body) = pool.put(&bad, true).await;
    assert_eq!(status, 422);
    assert_eq!(pool.status().await.config_error, None, "a dry run leaves no trace");
    let refused: ConfigRefused = serde_json::from_str(&body).unwrap();
    assert_eq!(refused.diagnostics.len(), 1);
    assert!(refused.diagnostics[0].rendered.contains("memry"), "{}", refused.diagnostics[0].rendered);
    assert_eq!(pool.put(&bad, false).await.0, 422);
    let after = pool.status().await;
    assert_eq!(after.config_generation, 1);
    assert!(after.config_error.unwrap().contains("memry"));
    let same = pool.apply(CONFIG).await;
    assert_eq!((same.generation, same.changes.len()), (1, 0));
    assert_eq!(pool.status().await.config_error, None);
    let (_, dry) = pool.put(&CONFIG.replace("max = 4", "max = 3"), true).await;
    assert!(dry.contains("shop"), "{dry}");
    assert_eq!(pool.status().await.config_generation, 1);
}

#[tokio::test]
async fn logs_come_as_lines_of_each_instance() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    pool.until_status("shop is ready", |status| status.apps.iter().all(|app| app.state == weal_model::AppState::Ready)).await;
    let (_, all) = pool.local("GET", "/v1/apps/shop/logs", "").await;
    assert!(all.contains("shop-1 | hello from shop-1\n") && all.contains("shop-2 | second line\n"), "{all}");
    let (_, one) = pool.local("GET", "/v1/apps/shop/logs?instance=shop-2&tail=5", "").await;
    assert_eq!(one, "hello from shop-2\nsecond line\n");
    assert_eq!(pool.local("GET", "/v1/apps/shop/logs?instance=db-1", "").await.0, 404);
}

#[tokio::test]
async fn the_stream_begins_with_the_status_and_goes_on_with_events() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let pool = Pool::start().await;
    let mut stream = tokio::net::TcpStream::connect(pool.api).await.unwrap();
    stream.write_all(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut seen = String::new();
    let mut applied = false;
    let read = async {
        while !(seen.contains("event: status") && seen.contains("event: event") && seen.contains("\"pool\":\"test\"")) {
            let mut buffer = [0; 4096];
            let count = stream.read(&mut buffer).await.unwrap();
            assert_ne!(count, 0, "the stream ended: {seen}");
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
            if !applied && seen.contains("event: status") {
                applied = true;
                pool.apply(CONFIG).await;
            }
        }
    };
    tokio::time::timeout(crate::fake::DEADLINE, read).await.expect("a status and an event");
    assert!(seen.contains("text/event-stream"), "{seen}");
}

#[tokio::test]
async fn readers_of_the_stream_leave_room_for_orders() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let pool = Pool::start().await;
    let mut open = Vec::new();
    let refused = loop {
        let mut stream = tokio::net::TcpStream::connect(pool.api).await.unwrap();
        stream.write_all(b"GET /v1/stream HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        let mut head = [0; 12];
        tokio::time::timeout(crate::fake::DEADLINE, stream.read_exact(&mut head)).await.expect("an answer").unwrap();
        if head != *b"HTTP/1.1 200" {
            break String::from_utf8(head.to_vec()).unwrap();
        }
        open.push(stream);
    };
    assert_eq!((refused.as_str(), open.len()), ("HTTP/1.1 503", 256));
    pool.apply(CONFIG).await;
    assert_eq!(pool.status().await.config_generation, 1);
}

#[tokio::test]
async fn silent_connections_leave_room_for_whoever_shows_a_token() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    let token = format!("Bearer {}", pool.token());
    let ask = async |stream: &mut tokio::net::TcpStream, path: &str| {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut buffer = [0; 12];
        tokio::time::timeout(crate::fake::DEADLINE, stream.read_exact(&mut buffer)).await.expect("an answer").unwrap();
        String::from_utf8(buffer.to_vec()).unwrap()
    };
    let mut watching = tokio::net::TcpStream::connect(pool.api).await.unwrap();
    assert_eq!(ask(&mut watching, "/v1/stream").await, "HTTP/1.1 200");
    let mut silent = Vec::new();
    for _ in 0..600 {
        silent.push(tokio::net::TcpStream::connect(pool.api).await.unwrap());
    }
    assert_eq!(pool.tcp("GET", "/v1/config", &[("authorization", &token)], "").await.0, 200);
    let is_closed = |stream: &tokio::net::TcpStream| matches!(stream.try_read(&mut [0; 64]), Ok(0));
    tokio::time::timeout(crate::fake::DEADLINE, silent[0].read(&mut [0; 64])).await.expect("the oldest is closed").ok();
    let closed = silent.iter().filter(|stream| is_closed(stream)).count();
    assert!(closed < 512, "{closed} were closed for 90 that came after them");
    assert_eq!(ask(&mut silent[599], "/healthz").await, "HTTP/1.1 200");
    assert!(!is_closed(&watching), "a stream stays");
}

#[tokio::test]
async fn a_token_is_shown_on_so_many_connections_at_once_and_on_no_more() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    let head = format!("GET /v1/config HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n", pool.token());
    let open = async || {
        let mut stream = tokio::net::TcpStream::connect(pool.api).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        tokio::time::timeout(crate::fake::DEADLINE, stream.read_exact(&mut status)).await.expect("an answer").unwrap();
        (stream, String::from_utf8(status.to_vec()).unwrap())
    };
    let mut held = Vec::new();
    let (mut refused, status) = loop {
        match open().await {
            (stream, status) if status == "HTTP/1.1 200" => held.push(stream),
            other => break other,
        }
    };
    let mut rest = String::new();
    tokio::time::timeout(crate::fake::DEADLINE, refused.read_to_string(&mut rest)).await.expect("it is closed").unwrap();
    assert_eq!((status.as_str(), held.len()), ("HTTP/1.1 429", 64), "{rest}");
    assert!(rest.contains("64 connections are open with this token"), "{rest}");
    assert_eq!(pool.tcp("GET", "/v1/status", &[], "").await.0, 200, "whoever shows none is served");
    drop(held.pop());
    let begun = std::time::Instant::now();
    while open().await.1 != "HTTP/1.1 200" {
        assert!(begun.elapsed() < crate::fake::DEADLINE, "one that was closed makes room for another");
    }
}

#[tokio::test]
async fn the_dashboard_may_load_nothing_from_elsewhere() {
    let pool = Pool::start().await;
    let stream = tokio::net::TcpStream::connect(pool.api).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = hyper::Request::get("/").header("host", "localhost").body(String::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let policy = response.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-") && policy.contains("connect-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "no script or style but the page's own: {policy}");
    connection.abort();
}

/// `WEAL_BLESS=1 cargo test -p weal-controller` writes the document anew.
#[test]
fn the_openapi_document_in_the_repository_is_that_of_the_routes() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/weal.json");
    let document = weal_controller::openapi();
    let text = format!("{document:#}\n");
    if std::env::var_os("WEAL_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).expect("openapi/weal.json is there");
    assert_eq!(kept, text, "write it anew with WEAL_BLESS=1 cargo test -p weal-controller");
    every_reference_leads_somewhere(&document, &document);
    let operations = document["paths"].as_object().unwrap().values().flat_map(|path| path.as_object().unwrap().values());
    let mut ids: Vec<&str> = operations.map(|operation| operation["operationId"].as_str().unwrap()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "two operations have one id, which generators of clients take for a name");
}

fn every_reference_leads_somewhere(document: &Value, part: &Value) {
    match part {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                let pointer = reference.strip_prefix('#').expect("references stay in the document");
                assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            map.values().for_each(|part| every_reference_leads_somewhere(document, part));
        }
        Value::Array(list) => list.iter().for_each(|part| every_reference_leads_somewhere(document, part)),
        _ => {}
    }
}

#[tokio::test]
async fn tokens_are_made_limited_rotated_and_revoked_and_the_audit_log_says_who_did_what() {
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    let make = async |name: &str, scope: &str| {
        let order = serde_json::json!({ "name": name, "scope": scope }).to_string();
        let (status, body) = pool.local("POST", "/v1/tokens", order).await;
        assert_eq!(status, 200, "{body}");
        format!("Bearer {}", serde_json::from_str::<TokenMade>(&body).unwrap().secret)
    };
    let (reader, deployer) = (make("prometheus", "read").await, make("ci", "all").await);
    let call = async |method: &str, path: &str, token: &str| pool.tcp(method, path, &[("authorization", token)], "{}").await;
    let wake = "/v1/apps/shop/wake";
    let (status, body) = call("POST", wake, &reader).await;
    assert_eq!(status, 403);
    assert!(error(&body).contains("`prometheus` lets its holder read"), "{body}");
    assert_eq!(call("GET", "/v1/config", &reader).await.0, 403, "a config may hold passwords");
    assert_eq!(call("POST", wake, &deployer).await.0, 200);
    for (method, path) in [("GET", "/v1/tokens"), ("POST", "/v1/tokens"), ("DELETE", "/v1/tokens/ci"), ("GET", "/v1/audit")] {
        let (status, body) = call(method, path, &deployer).await;
        assert_eq!(status, 403, "{method} {path}: who may order cannot give rights: {body}");
    }

    let (status, body) = pool.local("POST", "/v1/tokens/ci/rotate", "").await;
    assert_eq!(status, 200, "{body}");
    let rotated = format!("Bearer {}", serde_json::from_str::<TokenMade>(&body).unwrap().secret);
    assert_eq!(call("POST", wake, &deployer).await.0, 401);
    assert_eq!(call("POST", wake, &rotated).await.0, 200);
    assert_eq!(pool.local("DELETE", "/v1/tokens/ci", "").await.0, 200);
    assert_eq!(call("POST", wake, &rotated).await.0, 401);
    assert_eq!(pool.local("DELETE", "/v1/tokens/ci", "").await.0, 404);

    let operator = format!("Bearer {}", pool.token());
    assert_eq!(call("GET", "/v1/tokens", &operator).await.0, 200);
    let (status, body) = call("POST", "/v1/tokens/operator/rotate", &operator).await;
    assert_eq!(status, 200, "{body}");
    assert_eq!(call("GET", "/v1/tokens", &operator).await.0, 401, "the former secret is worth nothing at once");
    assert_eq!(call("GET", "/v1/tokens", &format!("Bearer {}", pool.token())).await.0, 200, "the file has the new one");

    let uid = rustix::process::getuid().as_raw();
    let line = |entry: &AuditEntry| {
        let who = match &entry.who {
            Caller::User { uid: who } => if *who == uid { "user" } else { "another user" }.to_owned(),
            Caller::Token { name, address } if address.starts_with("127.0.0.1:") => format!("token {name}"),
            Caller::Unknown { address } if address.starts_with("127.0.0.1:") => "unknown".to_owned(),
            other => format!("{other:?}"),
        };
        format!("{who} {} {} {}", entry.method, entry.path, entry.status)
    };
    let begun = std::time::Instant::now();
    let lines: Vec<String> = loop {
        let entries: Vec<AuditEntry> = pool.get("/v1/audit").await;
        if entries.len() >= 18 {
            break entries.iter().map(line).collect();
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{entries:?}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let wanted = [
        "user PUT /v1/config 200",
        "user POST /v1/tokens 200",
        "user POST /v1/tokens 200",
        "token prometheus POST /v1/apps/shop/wake 403",
        "token prometheus GET /v1/config 403",
        "token ci POST /v1/apps/shop/wake 200",
        "token ci GET /v1/tokens 403",
        "token ci POST /v1/tokens 403",
        "token ci DELETE /v1/tokens/ci 403",
        "token ci GET /v1/audit 403",
        "user POST /v1/tokens/ci/rotate 200",
        "unknown POST /v1/apps/shop/wake 401",
        "token ci POST /v1/apps/shop/wake 200",
        "user DELETE /v1/tokens/ci 200",
        "unknown POST /v1/apps/shop/wake 401",
        "user DELETE /v1/tokens/ci 404",
        "token operator POST /v1/tokens/operator/rotate 200",
        "unknown GET /v1/tokens 401",
    ];
    assert_eq!(lines, wanted);
}
