//! `weal run` and `weal init`: from nothing to a served program.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::load::get;
use crate::pool::{PATIENCE, Pool, echo_app, echo_program, free_ports, send, text};

/// `weal ARGS` in `folder`, without what points at another pool.
fn weal(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weal"));
    command.args(args).current_dir(folder).env_remove("WEAL_FILE").env_remove("WEAL_STATE").env("NO_COLOR", "1");
    command.stdin(Stdio::null());
    command
}

/// A folder through which every user may pass.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("weal-e2e-").tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A program that is ended with the test.
struct Running(Child);

impl Running {
    fn interrupt(&mut self) -> Option<i32> {
        send(i32::try_from(self.0.id()).unwrap(), Signal::INT);
        self.end()
    }

    fn end(&mut self) -> Option<i32> {
        let deadline = Instant::now() + *PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            send(i32::try_from(self.0.id()).unwrap(), Signal::TERM);
            let _ = self.0.wait();
        }
    }
}

fn eventually<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + *PATIENCE;
    loop {
        if let Some(value) = check() {
            return value;
        }
        assert!(Instant::now() < deadline, "not seen: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_program_is_hosted_at_once_and_ends_with_ctrl_c() {
    let folder = open_folder();
    let [port] = free_ports();
    let (program, printed, state) = (echo_program(), folder.path().join("out"), folder.path().join("state"));
    let out = std::fs::File::create(&printed).unwrap();
    let mut command = weal(folder.path(), &["run", "--port", &port.to_string(), "--name", "shop", "--goal", "p95 < 250ms"]);
    command.arg("--state").arg(&state).arg("--").arg(program).args(["--port", "$PORT"]);
    let mut running = Running(command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap());
    eventually("an answer", || get(port, "whatever.example", "/").ok().filter(|answer| answer.0 == 200));
    let said = || std::fs::read_to_string(&printed).unwrap();
    eventually("what it writes", || said().contains("echo: listening on").then_some(()));
    assert!(said().contains(&format!("http://localhost:{port}/")), "{}", said());
    let status = weal(folder.path(), &["status", "-o", "json"]).arg("--state").arg(&state).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["flows"][0]["goal_text"], "p95 < 250ms", "{status}");
    assert_eq!(running.interrupt(), Some(0), "{}", said());
    assert!(get(port, "whatever.example", "/").is_err(), "nobody listens any more");
}

#[test]
fn a_program_that_does_not_come_up_ends_the_run_with_its_last_lines() {
    let folder = open_folder();
    let [port] = free_ports();
    let state = folder.path().join("state");
    let script = "echo first; echo 'no such table: orders' >&2; exit 3";
    let mut command = weal(folder.path(), &["run", "--port", &port.to_string()]);
    command.arg("--state").arg(&state).args(["sh", "-c", script]);
    let output = command.output().unwrap();
    let (said, failed) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{said}{failed}");
    assert!(said.contains("no such table: orders") && said.contains("first"), "{said}{failed}");
    assert!(failed.contains("ended by itself with status 3"), "{failed}");
    let wrong = weal(folder.path(), &["run", "--goal", "soon", "--", "true"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    let wrong = weal(folder.path(), &["run", "--name", "My Shop", "--", "true"]).output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("did you mean `my-shop`?"), "{}", text(&wrong.stderr));
}

#[test]
fn what_init_writes_is_valid_and_runs() {
    let pool = Pool::echo();
    let folder = open_folder();
    std::fs::write(folder.path().join("index.html"), "<p>made by init</p>").unwrap();
    let made = weal(folder.path(), &["init"]).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    let file = folder.path().join("weal.toml");
    let written = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text(&made.stdout), written);
    assert!(weal(folder.path(), &["validate"]).output().unwrap().status.success());
    let again = weal(folder.path(), &["init"]).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("is there already"), "{}", text(&again.stderr));

    // The same on ports of this test, and with the program's folder.
    let app = written.lines().find_map(|line| line.strip_prefix("[app.")).unwrap().trim_end_matches(']').to_owned();
    let cwd = format!("cwd = \"{}\"\n", folder.path().display());
    pool.write(&(written.clone() + &cwd));
    // Where the system's own programs are: some other one may lie where the application's user may not look.
    let up = pool.command(&["up", "-d"]).env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(up.status.success(), "{}{}", text(&up.stdout), text(&up.stderr));
    let host = format!("{app}.localhost");
    assert!(text(&up.stdout).contains(&format!("http://{host}:{}/", pool.listen)), "{}", text(&up.stdout));
    let (status, body) = get(pool.listen, &host, "/").unwrap();
    assert_eq!(status, 200);
    assert!(body.contains("made by init"), "{body}");
    assert!(pool.run(&["down"]).status.success());
}

#[test]
fn init_says_what_it_looked_for_and_takes_a_command() {
    let folder = open_folder();
    let nothing = weal(folder.path(), &["init"]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(1));
    assert!(text(&nothing.stderr).contains("Procfile"), "{}", text(&nothing.stderr));
    let printed = weal(folder.path(), &["init", "--print", "-o", "json", "--", "./serve", "$PORT"]).output().unwrap();
    let printed: serde_json::Value = serde_json::from_slice(&printed.stdout).unwrap();
    assert!(printed["text"].as_str().unwrap().contains("run = [\"./serve\", \"$PORT\"]"), "{printed}");
    assert!(printed["written"].is_null() && !folder.path().join("weal.toml").exists());
}

#[test]
fn load_takes_an_application_and_tells_how_requests_ended() {
    let sick = "health = { command = [\"true\"] }\nenv = { ECHO_MODE = \"sick\" }\n";
    let sick = echo_app("sick", "").replace("health = \"/healthz\"\n", sick);
    let mut pool = Pool::new(&(echo_app("fine", "") + &sick));
    pool.up();
    let load = |app: &str| pool.run(&["load", app, "--rate", "20/s", "--duration", "1s"]);
    let fine = load("fine");
    assert_eq!(fine.status.code(), Some(0), "{}", text(&fine.stderr));
    let none = load("none");
    assert_eq!(none.status.code(), Some(1));
    assert!(text(&none.stderr).contains("no application `none`, but fine, sick"), "{}", text(&none.stderr));
    let refused = load("sick");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stdout).contains("with 503"), "{}", text(&refused.stdout));
}

#[test]
fn a_service_is_a_unit_that_systemd_takes_and_uninstall_leaves_nothing() {
    let pool = Pool::echo();
    let root = open_folder();
    let place = root.path().to_str().unwrap();
    let installed = pool.run(&["service", "install", "--root", place]);
    assert!(installed.status.success(), "{}", text(&installed.stderr));
    let folder = root.path().join("etc/systemd/system");
    let unit = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let written = std::fs::read_to_string(&unit).unwrap();
    assert!(written.contains(&format!("up --file {}", pool.config().display())), "{written}");
    match Command::new("systemd-analyze").arg("verify").arg(&unit).output() {
        Ok(verified) => assert!(verified.status.success(), "{}", text(&verified.stderr)),
        Err(error) => weal_testing::skip(format_args!("systemd-analyze cannot be run: {error}")),
    }
    assert!(pool.run(&["service", "uninstall", "--root", place]).status.success());
    assert!(!unit.exists());
    let again = pool.run(&["service", "uninstall", "--root", place]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("there is no service of this pool"), "{}", text(&again.stderr));
}
