//! `weal down` says "stopped" when nothing runs any more, and never before.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output};

use rustix::process::Signal;

use crate::pool::{Pool, echo_app, is_alive, kill, send, text};

/// `nobody`, whom no config here names.
const NOBODY: u32 = 65_534;

/// A program that says of itself that it belongs to an instance of the pool.
struct Marked(Child);

impl Marked {
    fn start(pool: &Pool, uid: Option<u32>) -> Self {
        let mut command = Command::new("sleep");
        command.arg("600").env("WEAL_INSTANCE_DIR", pool.state().join("node/instances/echo-9"));
        if let Some(uid) = uid {
            command.uid(uid).gid(uid).current_dir("/");
        }
        Self(command.spawn().unwrap())
    }

    fn is_alive(&self) -> bool {
        is_alive(self.0.id().into())
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(output: &Output) -> String {
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn down_names_what_it_cannot_end_and_fails_until_that_is_gone() {
    let mut pool = Pool::echo();
    pool.up();
    // A user of the pool's own: only the mark tells, and anything of that user's could have been started with it.
    let marked = Marked::start(&pool, None);
    let down = pool.run(&["down"]);
    let named = format!("sleep (pid {}) of an application runs on", marked.0.id());
    assert_eq!(down.status.code(), Some(1), "{}", said(&down));
    assert!(said(&down).contains(&named) && !said(&down).contains("stopped\n"), "{}", said(&down));
    assert_eq!(pool.wait_end(), Some(1), "{}", pool.printed());
    assert!(marked.is_alive());
    let again = pool.run(&["down"]);
    assert!(again.status.code() == Some(1) && said(&again).contains(&named), "{}", said(&again));
    drop(marked);
    let last = pool.run(&["down"]);
    assert!(last.status.success() && said(&last).contains("stopped\n"), "{}", said(&last));
    assert_eq!(pool.run(&["down"]).status.code(), Some(4), "no pool runs any more");
    pool.assert_gone();
}

#[test]
fn a_mark_of_a_user_whom_the_pool_does_not_know_keeps_nothing_from_ending() {
    if !rustix::process::geteuid().is_root() {
        return weal_testing::skip("only root starts a program as somebody else");
    }
    let mut pool = Pool::echo();
    pool.up();
    let stranger = Marked::start(&pool, Some(NOBODY));
    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", said(&down));
    assert_eq!(pool.wait_end(), Some(0), "{}", pool.printed());
    assert_eq!(pool.run(&["down"]).status.code(), Some(4));
    assert!(stranger.is_alive(), "it is none of the pool's");
}

#[test]
fn a_pool_is_found_by_its_processes_while_its_state_folder_is_away() {
    let mut pool = Pool::echo();
    pool.up();
    let supervisor = pool.pid("supervisor");
    // It would make the folder anew.
    send(supervisor, Signal::STOP);
    pool.remove_state();
    let status = pool.run(&["status"]);
    let found = format!("the pool runs as pid {supervisor}, and ");
    assert!(status.status.code() == Some(1) && said(&status).contains(&found), "{}", said(&status));
    let down = pool.run(&["down"]);
    assert!(down.status.success() && said(&down).contains("stopped\n"), "{}", said(&down));
    pool.assert_gone();
    assert_eq!(pool.run(&["status"]).status.code(), Some(4), "no pool runs any more");
}

#[test]
fn instances_that_no_record_no_role_and_no_folder_tells_of_are_ended() {
    let more = if rustix::process::geteuid().is_root() { "user = \"root\"" } else { "" };
    let mut pool = Pool::new(&(echo_app("echo", "") + &echo_app("other", more)));
    let roles = ["node", "controller", "gateway"];
    for (killed, is_folder_left) in [(&roles[..], true), (&roles[..], false), (&[][..], false)] {
        pool.up();
        let instances = pool.instance_pids();
        assert_eq!(instances.len(), 2);
        pool.kill_started();
        for role in killed {
            pool.role_pids(role).into_iter().for_each(kill);
        }
        if is_folder_left {
            std::fs::remove_file(pool.state().join("supervisor.json")).unwrap();
        } else {
            pool.remove_state();
        }
        assert!(instances.iter().all(|pid| is_alive(*pid)), "they hang on shims of their own");
        let down = pool.run(&["down"]);
        assert!(down.status.success() && said(&down).contains("stopped\n"), "{killed:?}: {}", said(&down));
        pool.assert_gone();
    }
}
