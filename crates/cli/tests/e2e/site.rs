//! What a public site needs of the gateway, asked of `weal up`: who the client is, what one client may take, the access log, traces, and
//! HTTP/2 with the programs that others use for it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::pool::{PATIENCE, Pool, echo_app, free_ports, text};

/// A pool with `keys` in `[pool]`, and with https if there is a port for it.
pub fn site(keys: &str, https: Option<u16>, apps: &str) -> Pool {
    let pool = Pool::new(apps);
    write(&pool, keys, https, apps);
    pool
}

/// Replaces the config of such a pool.
pub fn write(pool: &Pool, keys: &str, https: Option<u16>, apps: &str) {
    let (listen, api) = (pool.listen, pool.api);
    let (secure, certificate) = match https {
        Some(port) => (format!(", \"https://127.0.0.1:{port}\""), "[tls.test]\nself-signed = true\n\n"),
        None => (String::new(), ""),
    };
    pool.write_text(&format!(
        "[pool]\nlisten = [\"http://127.0.0.1:{listen}\"{secure}]\napi = \"127.0.0.1:{api}\"\nflow-cycle = \"1s\"\n{keys}\n\n{certificate}{apps}"
    ));
}

pub fn echo() -> String {
    echo_app("echo", "")
}

/// What comes back for these bytes over a connection of their own.
pub fn say(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(*PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset after the answer is the end too.
    let _ = stream.read_to_end(&mut answer);
    text(&answer)
}

/// The head of a `GET` with these further fields, as the instance got it.
pub fn head_at_instance(port: u16, fields: &str) -> String {
    let answer = say(port, &format!("GET /head HTTP/1.1\r\nhost: echo.localhost\r\nconnection: close\r\n{fields}\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.split_once("\r\n\r\n").unwrap().1.to_ascii_lowercase()
}

/// The value of the field `name` of a head in lower case.
pub fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn only_a_trusted_proxy_says_who_its_client_is() {
    let claim = "x-forwarded-for: 203.0.113.7\r\nx-forwarded-proto: https\r\nx-forwarded-host: a.example\r\n";
    let mut pool = site("trusted-proxies = [\"127.0.0.1\"]", None, &echo());
    pool.up();
    let head = head_at_instance(pool.listen, claim);
    assert_eq!(field(&head, "x-forwarded-for"), Some("203.0.113.7, 127.0.0.1"), "this machine is trusted: {head}");
    assert_eq!(field(&head, "x-forwarded-proto"), Some("https"));

    write(&pool, "", None, &echo());
    assert!(pool.run(&["apply"]).status.success());
    pool.eventually("the claim is replaced", || {
        let head = head_at_instance(pool.listen, claim);
        (field(&head, "x-forwarded-for") == Some("127.0.0.1")).then(|| {
            assert_eq!(field(&head, "x-forwarded-proto"), Some("http"), "{head}");
            assert_eq!(field(&head, "x-forwarded-host"), Some("echo.localhost"), "{head}");
        })
    });
}

#[test]
fn the_access_log_has_a_line_for_each_request_in_either_format() {
    let mut pool = site("access-log = \"combined\"", None, &echo());
    pool.up();
    let lines = |about: &str| -> Vec<String> {
        let log = std::fs::read_to_string(pool.state().join("gateway/access.log")).unwrap_or_default();
        log.lines().filter(|line| line.contains(about)).map(str::to_owned).collect()
    };
    head_at_instance(pool.listen, "user-agent: a \"browser\"\r\nreferer: http://r.example/\r\n");
    let line = pool.eventually("its line", || lines("GET /head").pop());
    assert!(line.starts_with("127.0.0.1 - - ["), "{line}");
    assert!(line.contains("\"GET /head HTTP/1.1\" 200 "), "{line}");
    assert!(line.ends_with("\"http://r.example/\" \"a \\x22browser\\x22\""), "{line}");

    write(&pool, "access-log = \"json\"", None, &echo());
    assert!(pool.run(&["apply"]).status.success());
    let line = pool.eventually("a line in the other format", || {
        say(pool.listen, "GET /missing?q=1 HTTP/1.1\r\nhost: nobody.localhost\r\nconnection: close\r\n\r\n");
        lines("/missing").into_iter().rfind(|line| line.starts_with('{'))
    });
    let record: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((record["status"].as_u64(), record["method"].as_str()), (Some(404), Some("GET")), "{line}");
    assert!(line.contains("/missing?q=1") && line.contains("nobody.localhost"), "{line}");

    write(&pool, "", None, &echo());
    assert!(pool.run(&["apply"]).status.success());
    pool.eventually("it is switched off", || {
        let before = lines("/late").len();
        say(pool.listen, "GET /late HTTP/1.1\r\nhost: echo.localhost\r\nconnection: close\r\n\r\n");
        std::thread::sleep(Duration::from_millis(1500));
        (lines("/late").len() == before).then_some(())
    });
}

#[test]
fn each_request_carries_a_traceparent_of_its_clients_trace() {
    let mut pool = site("traceparent = true", None, &echo());
    pool.up();
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let head = head_at_instance(pool.listen, &format!("traceparent: 00-{trace}-b7ad6b7169203331-01\r\n"));
    let parent = field(&head, "traceparent").unwrap();
    assert!(parent.starts_with(&format!("00-{trace}-")) && !parent.contains("b7ad6b7169203331"), "{parent}");
    let fresh = head_at_instance(pool.listen, "");
    let parent = field(&fresh, "traceparent").unwrap();
    assert!(parent.len() == 55 && !parent.contains(trace), "{parent}");
}

#[test]
fn one_address_gets_no_more_connections_and_requests_than_it_may_have() {
    let keys = "unlimited-clients = []\nclient-connections = 4\nclient-rate = 5";
    let mut pool = site(keys, None, &echo());
    pool.up();
    let request = "GET / HTTP/1.1\r\nhost: echo.localhost\r\nconnection: close\r\n\r\n";
    let answers: Vec<String> = (0..20).map(|_| say(pool.listen, request)).collect();
    assert!(answers[0].starts_with("HTTP/1.1 200"), "{}", answers[0]);
    let refused: Vec<_> = answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 429")).collect();
    assert!(refused.len() >= 5, "{} of 20 refused", refused.len());
    assert!(refused.iter().all(|answer| answer.to_ascii_lowercase().contains("retry-after: ")), "{}", refused[0]);

    let mut held: Vec<TcpStream> = Vec::new();
    let refused = pool.eventually("a connection too many", || {
        let mut stream = TcpStream::connect(("127.0.0.1", pool.listen)).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let mut answer = [0; 512];
        let count = stream.read(&mut answer).unwrap_or(0);
        held.push(stream);
        (count > 0).then(|| text(&answer[..count]))
    });
    assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("too many connections"), "{refused}");
    assert_eq!(held.len(), 5, "four may be open");
    held.clear();
    pool.eventually("there is room again", || say(pool.listen, request).starts_with("HTTP/1.1 200").then_some(()));
}

/// The application that expects the header `version` on each connection.
fn behind_proxy(version: &str, routes: &str) -> String {
    let app = echo_app("echo", &format!("send-proxy = \"{version}\""));
    app.replace("\"--port\", \"$PORT\"", "\"--port\", \"$PORT\", \"--proxy\"").replace("{ host = \"echo.localhost\" }", routes)
}

#[test]
fn an_instance_is_told_by_a_header_whose_each_connection_is() {
    let [port] = free_ports();
    for version in ["v1", "v2"] {
        let routes = format!("{{ host = \"echo.localhost\" }}, {{ tcp = {port} }}");
        let mut pool = site("", None, &behind_proxy(version, &routes));
        // Health checks say that they are nobody's, or it would never be ready.
        pool.up();
        for port in [pool.listen, port] {
            let request = "GET /head HTTP/1.1\r\nhost: echo.localhost\r\n\r\n";
            let mut clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
            for _ in 0..3 {
                for client in &mut clients {
                    client.set_read_timeout(Some(*PATIENCE)).unwrap();
                    client.write_all(request.as_bytes()).unwrap();
                    let mut answer = [0; 4096];
                    let count = client.read(&mut answer).unwrap();
                    let (answer, own) = (text(&answer[..count]), client.local_addr().unwrap().port());
                    assert!(
                        answer.contains(&format!("\r\n\r\nfrom 127.0.0.1 {own}\n")),
                        "{version} at {port}, not {own}: {answer}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_trusted_proxy_says_by_a_header_whose_a_connection_is_and_nobody_else_does() {
    let [https, port] = free_ports();
    let apps = echo_app("echo", "").replace(
        "{ host = \"echo.localhost\" }",
        &format!("{{ host = \"echo.localhost\" }}, {{ tcp = {port}, accept-proxy = true }}"),
    );
    let mut pool = site("accept-proxy = [\"http\", \"https\"]\ntrusted-proxies = [\"127.0.0.1\"]", Some(https), &apps);
    pool.up();
    let request = "GET /head HTTP/1.1\r\nhost: echo.localhost\r\nconnection: close\r\n\r\n";
    let header = "PROXY TCP4 203.0.113.9 192.0.2.1 4711 80\r\n";
    let answer = say(pool.listen, &format!("{header}{request}")).to_ascii_lowercase();
    assert_eq!(field(&answer, "x-forwarded-for"), Some("203.0.113.9"), "{answer}");
    assert_eq!(say(pool.listen, request), "", "without a header it is closed");
    assert!(say(port, &format!("{header}{request}")).starts_with("HTTP/1.1 200"), "the header is not passed on");
    assert_eq!(say(port, request), "");
    pool.eventually("it is said why", || {
        let why = text(&pool.run(&["why", "echo", "--rejected"]).stdout);
        (why.contains("proxy-header") && why.contains("does not begin with a header")).then_some(())
    });
    if has_curl("HTTP2") {
        let head = curl(&pool, https, "https", &["--haproxy-protocol"], "/head").to_ascii_lowercase();
        assert_eq!(field(&head, "x-forwarded-for"), Some("127.0.0.1"), "{head}");
    }

    // Somebody who is not trusted cannot name another address.
    let keys = "accept-proxy = [\"http\", \"https\"]\ntrusted-proxies = [\"10.0.0.0/8\"]";
    write(&pool, keys, Some(https), &apps);
    assert!(pool.run(&["apply"]).status.success());
    pool.eventually("the header is a malformed request", || {
        say(pool.listen, &format!("{header}{request}")).starts_with("HTTP/1.1 400").then_some(())
    });
    assert!(say(pool.listen, request).starts_with("HTTP/1.1 200"), "a direct client needs none");
}

/// True when curl is there and can do `feature`; says so when not.
pub fn has_curl(feature: &str) -> bool {
    let version = Command::new("curl").arg("--version").output().map(|output| text(&output.stdout)).unwrap_or_default();
    let has = version.contains(feature);
    if !has {
        weal_testing::skip(format_args!("there is no curl with {feature}"));
    }
    has
}

/// What curl prints for `url` of `echo.localhost`.
pub fn curl(pool: &Pool, port: u16, scheme: &str, args: &[&str], path: &str) -> String {
    let mut command = Command::new("curl");
    command.args(["-sS", "-m", "20", "--resolve", &format!("echo.localhost:{port}:127.0.0.1")]);
    command.arg("--cacert").arg(pool.state().join("tls/test.pem"));
    let output = command.args(args).arg(format!("{scheme}://echo.localhost:{port}{path}")).output().unwrap();
    assert!(output.status.success(), "curl {args:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn curl_speaks_http_2_over_https_and_by_prior_knowledge() {
    if !has_curl("HTTP2") {
        return;
    }
    let [https] = free_ports();
    let mut pool = site("", Some(https), &echo());
    pool.up();
    let say_version = ["-w", "\n%{http_version} %{response_code}"];
    for (scheme, port, option, version) in [
        ("https", https, "--http2", "2"),
        ("https", https, "--http1.1", "1.1"),
        ("http", pool.listen, "--http2-prior-knowledge", "2"),
        ("http", pool.listen, "--http1.1", "1.1"),
    ] {
        let printed = curl(&pool, port, scheme, &[&say_version[..], &[option]].concat(), "/head");
        assert!(printed.ends_with(&format!("\n{version} 200")), "{scheme} {option}: {printed}");
        let head = printed.to_ascii_lowercase();
        assert!(head.starts_with("get /head http/1.1\r\n"), "the instance is asked over HTTP/1.1: {printed}");
        assert_eq!(field(&head, "x-forwarded-proto"), Some(scheme), "{printed}");
        assert_eq!(field(&head, "via").map(|via| via.starts_with(version)), Some(true), "{printed}");
    }
    let urls: Vec<String> = (0..50).map(|number| format!("https://echo.localhost:{https}/{number}")).collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let many = [&["-Z", "--http2", "-w", "\nnew connections: %{num_connects}\n"][..], &urls].concat();
    let printed = curl(&pool, https, "https", &many, "/");
    let shared = printed.matches("new connections: 0\n").count();
    assert!(shared >= 40, "51 requests share connections: {printed}");
}

#[test]
fn answers_are_compressed_where_the_config_says_so_and_the_client_takes_it() {
    let routes = "{ host = \"echo.localhost\" }, { host = \"echo.localhost\", path = \"/head/plain\", compression = false }";
    let apps = echo().replace("{ host = \"echo.localhost\" }", routes);
    let mut pool = site("compression = true", None, &apps);
    pool.up();
    // The application gives it back.
    let long = format!("x-long: {}\r\n", "0123456789 ".repeat(400));
    let ask = |path: &str, coding: &str| {
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: echo.localhost\r\nconnection: close\r\naccept-encoding: {coding}\r\n{long}\r\n"
        );
        say(pool.listen, &request).to_ascii_lowercase()
    };
    for (accepted, coding) in [("gzip, br, zstd", "zstd"), ("br", "br"), ("gzip;q=0.5, br;q=0.1", "gzip")] {
        let answer = ask("/head", accepted);
        assert_eq!(field(&answer, "content-encoding"), Some(coding), "{accepted}");
        assert_eq!(field(&answer, "vary"), Some("accept-encoding"), "{accepted}");
        assert!(answer.len() < 2000, "{accepted}: {} bytes", answer.len());
    }
    for (path, accepted) in [("/head", "identity"), ("/head/plain", "gzip"), ("/", "gzip")] {
        assert_eq!(field(&ask(path, accepted), "content-encoding"), None, "{path} {accepted}");
    }
    if has_curl("brotli") {
        let (field, port) = (long.trim_end(), pool.listen);
        let printed = curl(&pool, port, "http", &["--compressed", "-H", field], "/head").to_ascii_lowercase();
        assert!(printed.contains(field), "curl reads what was compressed: {printed}");
    }
    write(&pool, "", None, &echo());
    assert!(pool.run(&["apply"]).status.success());
    pool.eventually("it is switched off", || field(&ask("/head", "gzip"), "content-encoding").is_none().then_some(()));
}
