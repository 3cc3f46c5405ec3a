//! What an application writes is for those who may read its log. It may hold secrets, and bytes that would command a terminal.

use crate::load::get;
use crate::pool::{PATIENCE, Pool, text};

/// Writes a secret beside a sequence that sets the terminal's title, and fails.
const TALKER: &str = r#"[app.talker]
run = ["sh", "-c", "printf 'password=hunter2 \\033]0;gotcha\\007\\033[2J\\n'; exit 3"]
routes = [{ host = "talker.localhost" }]
memory = "64MiB"

[app.sick]
run = ["sleep", "1000"]
health = { command = ["sh", "-c", "echo token=hunter2 >&2; exit 4", "hunter2"], start-timeout = "2s" }
routes = [{ host = "sick.localhost" }]
memory = "64MiB"

[app.odd]
run = ["/no/such/\u001b]0;title\u0007program"]
routes = [{ host = "odd.localhost" }]
memory = "64MiB"
"#;

#[test]
fn what_an_application_wrote_is_told_only_to_who_may_read_its_log() {
    let mut pool = Pool::new(TALKER);
    pool.start();
    pool.eventually("all have failed", || {
        let status = pool.status()?;
        let failed = status["apps"].as_array()?.iter().filter(|app| app["state"] == "failed").count();
        (failed == 3).then_some(())
    });
    let printed = pool.eventually("what it wrote is shown to who started the pool", || {
        let printed = pool.printed();
        printed.contains("talker-1 last wrote: password=hunter2").then_some(printed)
    });
    assert!(printed.contains("\\x1b]0;gotcha\\x07\\x1b[2J"), "{printed}");
    assert!(!printed.contains('\x1b') && !printed.contains('\x07'), "{printed:?}");

    let (status, refused) = get(pool.listen, "talker.localhost", "/").unwrap();
    assert_eq!(status, 503, "{refused}");
    let id = refused.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap();
    let paths = [
        "/v1/status",
        "/v1/events?limit=1000",
        "/v1/apps/talker/why",
        "/v1/apps/sick/why",
        "/v1/plan",
        "/v1/history",
        "/metrics",
        &format!("/v1/requests/{id}/why"),
    ];
    for path in paths {
        let (status, body) = get(pool.api, "127.0.0.1", path).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        assert!(body.contains("talker") || body.contains("sick"), "{path} tells of them: {body}");
        assert!(!body.contains("hunter2") && !body.contains("gotcha"), "{path}: {body}");
    }
    let streamed = until_streamed(&pool, &["talker", "sick", "event: event"]);
    assert!(!streamed.contains("hunter2") && !streamed.contains("gotcha"), "{streamed}");
    assert_eq!(get(pool.api, "127.0.0.1", "/v1/apps/talker/logs").unwrap().0, 401, "logs need the token");
    for words in [&["events", "-n", "1000"][..], &["why", "odd"], &["status"]] {
        let shown = text(&pool.run(words).stdout);
        assert!(shown.contains("/no/such/\\x1b]0;title\\x07program"), "{words:?}: {shown}");
        assert!(!shown.contains('\x1b') && !shown.contains('\x07'), "{words:?}: {shown:?}");
    }

    let shown = text(&pool.run(&["status"]).stdout);
    assert!(shown.contains("talker-1 last wrote: password=hunter2 \\x1b]0;gotcha"), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
    let raw = pool.run(&["logs", "talker"]).stdout;
    assert!(raw.windows(7).any(|window| window == b"\x1b]0;got"), "a file gets the log as it is");
    let line = text(&pool.run(&["logs", "talker", "-o", "json"]).stdout);
    assert!(line.contains("\\u001b]0;gotcha") && !line.contains('\x1b'), "{line}");
}

/// An application with a secret in its arguments.
fn keeper(secret: &str) -> String {
    format!("[app.keeper]\nrun = [\"sh\", \"-c\", \"exec sleep 1000\", \"--password={secret}\"]\nmemory = \"64MiB\"\n")
}

#[test]
fn the_secrets_of_jobs_and_configs_are_told_only_to_who_may_read_these() {
    let mut pool = Pool::new(&keeper("hunter1"));
    pool.start();
    pool.eventually("the controller answers", || pool.status());
    let submitted = pool.run(&["submit", "--done-by", "1h", "--", "sleep", "1000", "--password=hunter2"]);
    assert!(submitted.status.success(), "{}", text(&submitted.stderr));
    let shown = text(&pool.run(&["job", "show", "sleep-1"]).stdout);
    assert!(shown.contains("sleep 1000 --password=hunter2"), "whoever runs weal sees it: {shown}");
    pool.write(&keeper("hunter3"));
    pool.eventually("the change", || text(&pool.run(&["events"]).stdout).contains("config 2 is in force").then_some(()));
    for wrong in
        ["env = { PASSWORD = hunter4 }", "run = \"./web --password=hunter5\"", "restart = \"hunter6\"\nrun = [\"./web\"]"]
    {
        pool.write(&format!("[app.other]\n{wrong}\n"));
        pool.eventually(wrong, || {
            let error = pool.status()?["config_error"].as_str()?.to_owned();
            // The line after those of Pool::write.
            error.contains("weal.toml:8:").then_some(())
        });
        pool.write(&keeper("hunter3"));
        pool.eventually("no mistake", || pool.status()?["config_error"].is_null().then_some(()));
    }
    pool.write("[app.other]\nrun = [\"./web\"]\nenv = { PASSWORD = hunter7 }\n");
    pool.eventually("the last mistake", || pool.status()?["config_error"].is_string().then_some(()));
    for path in ["/v1/status", "/v1/events?limit=1000", "/v1/apps/keeper/why", "/v1/plan", "/v1/history", "/metrics"] {
        let (status, body) = get(pool.api, "127.0.0.1", path).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        assert!(!body.contains("hunter"), "{path}: {body}");
    }
    let streamed = until_streamed(&pool, &["sleep-1", "config_error", "weal.toml:9:"]);
    assert!(!streamed.contains("hunter"), "{streamed}");
    let events = text(&pool.run(&["events", "-n", "1000"]).stdout);
    assert!(events.contains("app keeper changes (run) and restarts instance by instance"), "{events}");
}

/// What the stream of the API sends until it has said all of `words`.
fn until_streamed(pool: &Pool, words: &[&str]) -> String {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", pool.api)).unwrap();
    stream.set_read_timeout(Some(*PATIENCE)).unwrap();
    stream.write_all(b"GET /v1/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").unwrap();
    let mut said = Vec::new();
    while !words.iter().all(|word| text(&said).contains(word)) {
        let mut piece = [0; 65536];
        let length = stream.read(&mut piece).unwrap_or_else(|error| panic!("{error}: {}", text(&said)));
        said.extend_from_slice(&piece[..length]);
    }
    text(&said)
}

#[test]
fn a_read_only_token_reads_ends_and_is_seen_in_the_audit_log() {
    let mut pool = Pool::new(TALKER);
    pool.start();
    let run = |arguments: &[&str]| {
        let output = pool.run(arguments);
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    pool.eventually("the controller answers", || pool.status());
    let (code, secret, remark) = run(&["token", "create", "prometheus", "--read-only", "--lasts", "30d"]);
    assert_eq!(code, Some(0), "{remark}");
    assert_eq!(secret.trim().len(), 64, "the output is the secret and nothing else: {secret}");
    assert!(remark.contains("shown this once"), "{remark}");
    let ask = |path: &str| {
        let header = format!("Bearer {}", secret.trim());
        crate::load::get_with(pool.api, "127.0.0.1", path, &[("authorization", &header)]).unwrap()
    };
    assert_eq!(ask("/metrics").0, 200);
    let (status, body) = ask("/v1/apps/talker/logs");
    assert_eq!(status, 403, "{body}");

    let (_, list, _) = run(&["token", "list"]);
    let row = list.lines().find(|line| line.starts_with("prometheus")).unwrap_or_else(|| panic!("{list}"));
    assert!(row.contains("29d 23h"), "{row}");
    let (code, _, complaint) = run(&["token", "create", "prometheus"]);
    assert!(code == Some(1) && complaint.contains("revoke it first, or rotate it"), "{complaint}");
    let (code, _, complaint) = run(&["token", "create", "No Good"]);
    assert!(code == Some(1) && complaint.contains("lower-case letters"), "{complaint}");
    assert_eq!(run(&["token", "revoke", "prometheus"]).0, Some(0));
    assert_eq!(ask("/v1/apps/talker/logs").0, 401);

    let audit = pool.eventually("the audit log has it all", || {
        let (_, audit, _) = run(&["audit"]);
        audit.contains("DELETE /v1/tokens/prometheus").then_some(audit)
    });
    assert!(audit.contains("token prometheus at 127.0.0.1:"), "{audit}");
    assert!(!audit.contains(secret.trim()), "no secret is written down");
    let dated = audit.lines().find(|line| line.contains("DELETE")).unwrap();
    assert!(dated.starts_with("20") && dated.as_bytes()[10] == b' ', "a date and a time: {dated}");
    assert!(!run(&["audit", "--since", "2100-01-01"]).1.contains("DELETE"));

    let events = pool.eventually("it has ended once", || {
        let (_, events, _) = run(&["events", "talker", "--since", "1h", "--severity", "warning"]);
        (events.lines().count() > 0).then_some(events)
    });
    assert!(events.lines().all(|line| line.starts_with("20") && line.contains("talker")), "{events}");
    let (_, shown, _) = run(&["events", "talker", "-n", "1", "-o", "json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert!(shown.as_array().unwrap().len() == 1 && shown[0]["app"] == "talker", "{shown}");
    assert_eq!(run(&["events", "--since", "soon"]).0, Some(2));
}
