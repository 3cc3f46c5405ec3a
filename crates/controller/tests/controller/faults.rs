//! A full disk. The limit on file sizes stands in for it: writes fail as they do when no space is left, without root.
//!
//! It is a limit of a whole process, so the test runs itself again as a process of its own.

use std::process::Command;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use weal_protocol::controller::ConfigTaken;

use crate::fake::{CONFIG, Pool};

const INSIDE: &str = "WEAL_TEST_FULL_DISK";

#[test]
fn a_full_disk_is_said_once_and_everything_goes_on() {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        return runtime.block_on(inside());
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "faults::a_full_disk_is_said_once_and_everything_goes_on", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

async fn inside() {
    // Without this, the signal that comes with a write beyond the limit would end the process.
    let mut too_large = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::from_raw(25)).unwrap();
    let pool = Pool::start().await;
    pool.apply(CONFIG).await;
    pool.until_status("all is ready", |status| status.apps.iter().all(|app| app.state == weal_model::AppState::Ready)).await;
    let roomy = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(0), maximum: roomy.maximum }).unwrap();
    let status = pool.until_status("the store is in trouble", |status| !status.problems.is_empty()).await;
    assert!(status.problems.iter().any(|problem| problem.contains("the store cannot write")), "{:?}", status.problems);

    let text = CONFIG.replace("max = 4", "max = 3");
    let (code, body) = pool.put(&text, false).await;
    assert_eq!(code, 200, "{body}");
    let taken: ConfigTaken = serde_json::from_str(&body).unwrap();
    assert_eq!(taken.generation, 2);
    assert!(taken.warnings.iter().any(|warning| warning.contains("not stored")), "{:?}", taken.warnings);

    setrlimit(Resource::Fsize, roomy).unwrap();
    pool.until_status("the store is well again", |status| status.problems.is_empty()).await;
    let events: Vec<weal_model::Event> = pool.get("/v1/events").await;
    let said = events.iter().filter(|event| event.text.contains("the store cannot write")).count();
    assert_eq!(said, 1, "{events:#?}");
    tokio::time::timeout(crate::fake::DEADLINE, too_large.recv()).await.expect("the limit was met");

    let mut pool = pool;
    pool.stop_controller().await;
    pool.start_controller();
    let status = pool.until_status("it is back", |status| !status.apps.is_empty()).await;
    assert_eq!(status.config_generation, 2, "what could not be stored was stored later");
}
