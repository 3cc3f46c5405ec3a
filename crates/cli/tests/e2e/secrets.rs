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
