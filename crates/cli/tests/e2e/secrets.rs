//! What an application writes is for those who may read its log. It may hold secrets, and bytes that would command a terminal.

use crate::load::get;
use crate::pool::Pool;

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
"#;

#[test]
fn what_an_application_wrote_is_told_only_to_who_may_read_its_log() {
    let mut pool = Pool::new(TALKER);
    pool.start();
    pool.eventually("both have failed", || {
        let status = pool.status()?;
        let failed = status["apps"].as_array()?.iter().filter(|app| app["state"] == "failed").count();
        (failed == 2).then_some(())
    });
    let printed = pool.eventually("what it wrote is shown to who started the pool", || {
        let printed = pool.printed();
        printed.contains("talker-1 last wrote: password=hunter2").then_some(printed)
    });
    assert!(printed.contains("\\x1b]0;gotcha\\x07\\x1b[2J"), "{printed}");
    assert!(!printed.contains('\x1b') && !printed.contains('\x07'), "{printed:?}");

    for path in
        ["/v1/status", "/v1/events?limit=1000", "/v1/apps/talker/why", "/v1/apps/sick/why", "/v1/plan", "/v1/history", "/metrics"]
    {
        let (status, body) = get(pool.api, "127.0.0.1", path).unwrap();
        assert_eq!(status, 200, "{path}");
        assert!(body.contains("talker") || body.contains("sick"), "{path} tells of them: {body}");
        assert!(!body.contains("hunter2") && !body.contains("gotcha"), "{path}: {body}");
    }
    assert_eq!(get(pool.api, "127.0.0.1", "/v1/apps/talker/logs").unwrap().0, 401, "logs need the token");

    let shown = crate::pool::text(&pool.run(&["status"]).stdout);
    assert!(shown.contains("talker-1 last wrote: password=hunter2 \\x1b]0;gotcha"), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
    let raw = pool.run(&["logs", "talker"]).stdout;
    assert!(raw.windows(7).any(|window| window == b"\x1b]0;got"), "a file gets the log as it is");
    let line = crate::pool::text(&pool.run(&["logs", "talker", "-o", "json"]).stdout);
    assert!(line.contains("\\u001b]0;gotcha") && !line.contains('\x1b'), "{line}");
}

#[test]
fn a_read_only_token_reads_ends_and_is_seen_in_the_audit_log() {
    let mut pool = Pool::new(TALKER);
    pool.start();
    let run = |arguments: &[&str]| {
        let output = pool.run(arguments);
        (output.status.code(), crate::pool::text(&output.stdout), crate::pool::text(&output.stderr))
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
