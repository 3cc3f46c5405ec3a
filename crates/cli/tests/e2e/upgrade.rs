//! A new version takes a running pool over: the supervisor becomes it, and no request is lost.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::load::{Load, get};
use crate::pool::{Pool, copy_program, copy_program_with, echo_app, text};

/// A weal of its own in `folder`, as a package would have installed it.
pub fn installed(folder: &Path) -> PathBuf {
    let program = folder.join("weal");
    copy_program(Path::new(env!("CARGO_BIN_EXE_weal")), &program);
    program
}

/// Puts the same code in its place as another file, as a package does: whole, by its name.
pub fn install_next(program: &Path) {
    let next = program.with_extension("next");
    copy_program_with(Path::new(env!("CARGO_BIN_EXE_weal")), "the next version", &next);
    std::fs::rename(next, program).unwrap();
}

fn install_text(program: &Path, text: &str) {
    let (written, next) = (program.with_extension("text"), program.with_extension("next"));
    std::fs::write(&written, text).unwrap();
    std::fs::set_permissions(&written, std::fs::Permissions::from_mode(0o755)).unwrap();
    copy_program(&written, &next);
    std::fs::rename(next, program).unwrap();
}

/// Ended children of `parent` that nobody has waited for.
fn zombies_of(parent: i32) -> Vec<String> {
    let stats =
        std::fs::read_dir("/proc").unwrap().filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    stats.filter(|stat| stat.contains(&format!(") Z {parent} "))).collect()
}

#[test]
fn a_pool_goes_on_with_the_program_that_was_installed_meanwhile_without_losing_a_request() {
    let folder = tempfile::tempdir().unwrap();
    let program = installed(folder.path());
    let mut pool = Pool::new(&echo_app("echo", "")).run_by(program.clone());
    pool.up();
    let roles = || ["supervisor", "gateway", "controller", "node"].map(|role| pool.pid(role));
    let (before, instances) = (roles(), pool.instance_pids());
    let load = Load::start(pool.listen, "echo.localhost", "/", 8);
    let anew = Load::start_anew(pool.listen, "echo.localhost", "/", 2);
    load.wait_for(200);

    install_next(&program);
    let upgraded = pool.run(&["upgrade"]);
    assert!(upgraded.status.success(), "{}\n{}", text(&upgraded.stderr), pool.printed());
    let after = roles();
    assert_eq!(before[0], after[0], "systemd and the shell wait for this process");
    assert!((1..4).all(|role| before[role] != after[role]), "{before:?} {after:?}");
    // The next controller's first look may still be to come.
    pool.eventually("instances go on", || (pool.instance_pids() == instances).then_some(()));

    load.wait_for(200);
    let tally = [load.finish(), anew.finish()];
    assert!(tally.iter().all(|one| one.lost.is_empty()), "{tally:?}\n{}", pool.printed());
    pool.eventually("the former roles are gone for good", || zombies_of(after[0]).is_empty().then_some(()));
    // What the new supervisor started is looked after, and the end is the usual one.
    pool.kill_role("gateway");
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
    assert!(pool.run(&["upgrade"]).status.success(), "there is nothing to do");
    pool.signal_supervisor(Signal::TERM);
    assert_eq!(pool.wait_end(), Some(0), "{}", pool.printed());
    pool.assert_gone();
}

#[test]
fn a_program_that_cannot_hold_the_pool_does_not_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = installed(folder.path());
    let mut pool = Pool::new(&echo_app("echo", "")).run_by(program.clone());
    pool.up();
    // Another weal cannot be meant: it is not what the supervisor would become.
    let other =
        std::process::Command::new(env!("CARGO_BIN_EXE_weal")).args(["upgrade", "--state"]).arg(pool.state()).output().unwrap();
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stderr).contains("the pool was started from"), "{}", text(&other.stderr));

    install_text(&program, "#!/bin/sh\necho 'I know no such key' >&2\nexit 3\n");
    pool.signal_supervisor(Signal::HUP);
    pool.eventually("the refusal is said", || pool.printed().contains("I know no such key").then_some(()));
    assert!(pool.printed().contains("but this one goes on"), "{}", pool.printed());
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);

    install_next(&program);
    assert!(pool.run(&["upgrade"]).status.success(), "{}", pool.printed());
    assert_eq!(get(pool.listen, "echo.localhost", "/").unwrap().0, 200);
}

#[test]
fn upgrade_without_a_pool_says_so() {
    let pool = Pool::echo();
    let none = pool.run(&["upgrade"]);
    assert_eq!(none.status.code(), Some(4), "{}", text(&none.stderr));
}
