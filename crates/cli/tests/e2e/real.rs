//! Real software: Tomcat, PostgreSQL and DokuWiki as `examples/real` configures them, under load from wrk and h2load, while they are
//! reloaded and killed.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::examples::assert_confined;
use crate::pool::{Pool, is_open_to_all, kill, text};

const NEEDED: [&str; 7] = ["mvn", "javac", "php", "wrk", "h2load", "curl", "tar"];

/// What is missing to run these tests; `scripts/bootstrap test` installs it.
fn missing() -> Option<String> {
    let on_path = |program: &str| {
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).exists()))
    };
    let programs = NEEDED.into_iter().filter(|program| !on_path(program)).map(str::to_owned);
    let folders = ["/usr/share/dokuwiki", "/usr/lib/postgresql"].into_iter().filter(|folder| !Path::new(folder).exists());
    let missing: Vec<String> = programs.chain(folders.map(str::to_owned)).collect();
    (!missing.is_empty()).then(|| missing.join(", "))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

/// The example's config with absolute paths, and without users where they cannot be.
fn config(target: &Path) -> String {
    let text = std::fs::read_to_string(root().join("examples/real/weal.toml")).unwrap();
    let is_root = rustix::process::getuid().is_root();
    let lines: Vec<&str> = text.lines().filter(|line| is_root || !line.starts_with("user = ")).collect();
    lines.join("\n").replace("../../target", target.to_str().unwrap())
}

/// Where the example's programs are: as they were prepared, or a copy in `folder` if the users of applications do not get there.
fn open_target(folder: &Path) -> PathBuf {
    let target = root().join("target");
    if is_open_to_all(&target) {
        return target;
    }
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    let copied = Command::new("cp").arg("-a").arg(target.join("real")).arg(folder).status().unwrap();
    assert!(copied.success(), "cannot copy target/real");
    folder.to_owned()
}

fn get(pool: &Pool, host: &str, path: &str) -> String {
    let output =
        Command::new("curl").args(["-sS", "-m", "20", "-H", &format!("host: {host}"), &pool.url(path)]).output().unwrap();
    text(&output.stdout) + &text(&output.stderr)
}

fn spawn(program: &str, args: &[&str]) -> Child {
    Command::new(program).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn pid_of(pool: &Pool, app: &str) -> Option<i64> {
    let status = pool.status()?;
    let apps = status["apps"].as_array()?.clone();
    let app = apps.into_iter().find(|one| one["name"] == app)?;
    app["instances"].as_array()?.iter().find(|instance| instance["state"] == "ready")?["pid"].as_i64()
}

/// How many requests wrk says it made.
fn requests(output: &str) -> u64 {
    let line = output.lines().find(|line| line.contains("requests in")).unwrap_or_default();
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[test]
fn tomcat_postgresql_and_dokuwiki_are_hosted_under_load_and_faults() {
    if let Some(missing) = missing() {
        weal_testing::skip(format_args!("missing {missing}; scripts/bootstrap test installs it"));
        return;
    }
    let prepared = Command::new(root().join("examples/real/prepare")).output().unwrap();
    assert!(prepared.status.success(), "examples/real/prepare: {}", text(&prepared.stderr));

    let folder = tempfile::tempdir().unwrap();
    let config = config(&open_target(folder.path()));
    let mut pool = Pool::new(&config);
    pool.up();
    assert_confined(&pool, 3);
    assert_eq!(get(&pool, "trade.localhost", "/query").trim(), "50005000", "Tomcat reaches PostgreSQL by DB_ADDR");
    assert!(get(&pool, "wiki.localhost", "/doku.php?id=start").contains("Debian DokuWiki"));

    let trade_url = pool.url("/burn?cpu_ms=2&sleep_ms=5");
    let wiki_url = format!("http://wiki.localhost:{}/doku.php?id=start", pool.listen);
    let wiki_at = format!("--connect-to=127.0.0.1:{}", pool.listen);
    let wrk = spawn("wrk", &["-t1", "-c16", "-d15s", "--timeout", "20s", "-H", "Host: trade.localhost", &trade_url]);
    let h2load = spawn("h2load", &["--h1", "-c4", "-n200", &wiki_at, &wiki_url]);

    // Under this load: a reload, the death of weal's controller and agent, and the death of an instance.
    pool.eventually("the load shows in the flows", || {
        let status = pool.status()?;
        let flows = status["flows"].as_array()?.clone();
        flows.iter().any(|flow| flow["app"] == "trade" && flow["throughput_per_s"].as_f64() > Some(10.0)).then_some(())
    });
    pool.write(&config.replace("p95 < 400ms", "p95 < 500ms"));
    pool.signal_supervisor(rustix::process::Signal::HUP);
    pool.eventually("the reload is in force", || {
        let status = pool.status()?;
        let flows = status["flows"].as_array()?.clone();
        flows.iter().any(|flow| flow["goal_text"] == "p95 < 500ms").then_some(())
    });
    pool.kill_role("controller");
    pool.kill_role("node");
    pool.eventually("the flows are measured again", || {
        let status = pool.status()?;
        status["flows"].as_array()?.iter().any(|flow| flow["throughput_per_s"].as_f64() > Some(10.0)).then_some(())
    });

    let wrk = text(&wrk.wait_with_output().unwrap().stdout);
    assert!(requests(&wrk) > 100, "{wrk}");
    // wrk prints these lines only when there is something to say: neither a reload nor the death of controller or agent fails a request.
    assert!(!wrk.contains("Non-2xx") && !wrk.contains("Socket errors"), "{wrk}");
    let h2load = text(&h2load.wait_with_output().unwrap().stdout);
    assert!(h2load.contains("200 succeeded, 0 failed"), "{h2load}");

    // An instance that is killed comes back, a needed one too.
    for (app, host, path, answer) in [
        ("trade", "trade.localhost", "/healthz", "ok"),
        ("db", "trade.localhost", "/query", "50005000"),
        ("wiki", "wiki.localhost", "/doku.php?id=start", "Debian DokuWiki"),
    ] {
        let old = pool.eventually("a ready instance", || pid_of(&pool, app));
        kill(i32::try_from(old).unwrap());
        pool.eventually(&format!("another {app}"), || pid_of(&pool, app).filter(|new| *new != old));
        pool.eventually(&format!("{app} answers again"), || get(&pool, host, path).contains(answer).then_some(()));
    }

    assert!(pool.run(&["down"]).status.success());
    assert_eq!(pool.wait_end(), Some(0));
    pool.assert_gone();
}
