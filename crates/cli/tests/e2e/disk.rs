//! A state folder on a disk that is full.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::load::{Load, get};
use crate::pool::{Pool, echo_app, kill, text};

/// A disk of its own below a pool's state folder.
struct Disk {
    at: PathBuf,
}

impl Disk {
    /// `None` where this user may not mount one.
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let mounted = mount("none", at, "tmpfs", MountFlags::empty(), Some(c"size=16m,mode=0711"));
        mounted.ok().map(|()| Self { at: at.to_owned() })
    }

    fn fill(&self) {
        let mut ballast = File::create(self.ballast()).unwrap();
        for piece in [1 << 20, 4096, 1] {
            while ballast.write_all(&vec![b'x'; piece]).is_ok() {}
        }
        assert!(std::fs::write(self.at.join("probe"), "more").is_err(), "the disk is full");
        let _ = std::fs::remove_file(self.at.join("probe"));
    }

    fn free(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.at, UnmountFlags::DETACH);
    }
}

/// Two applications in a pool whose state folder is a small disk; the disk is unmounted last.
fn pool_on_a_disk() -> Option<(Pool, Disk)> {
    let pool = Pool::new(&(echo_app("echo", "") + &echo_app("other", "")));
    let Some(disk) = Disk::mount(&pool.state()) else {
        weal_testing::skip("only root can mount a small disk");
        return None;
    };
    Some((pool, disk))
}

#[test]
fn a_full_disk_stops_nothing_and_is_forgotten_when_there_is_space_again() {
    let Some((mut pool, disk)) = pool_on_a_disk() else { return };
    pool.up();
    let supervisor = pool.pid("supervisor");
    disk.fill();
    let load = Load::start(pool.listen, "echo.localhost", "/", 4);
    load.wait_for(200);
    let other = pool.eventually("the other instance", || pool.instance_of("other"));
    kill(i32::try_from(other).unwrap());
    for role in ["controller", "node"] {
        let before = pool.role_pids(role);
        before.iter().for_each(|pid| kill(*pid));
        pool.eventually(&format!("another {role}"), || {
            pool.role_pids(role).iter().any(|pid| !before.contains(pid)).then_some(())
        });
        pool.eventually("a status while the disk is full", || pool.status().map(drop));
        load.wait_for(200);
    }
    let tally = load.finish();
    assert!(tally.lost.is_empty(), "lost {} of {}: {:?}", tally.lost.len(), tally.answered, tally.lost);
    pool.role_pids("gateway").into_iter().for_each(kill);
    pool.eventually("the next gateway serves", || (get(pool.listen, "echo.localhost", "/").ok()?.0 == 200).then_some(()));
    for role in ["gateway", "controller", "node"] {
        let log = std::fs::read_to_string(pool.state().join(format!("logs/{role}.log"))).unwrap_or_default();
        assert!(!log.contains("panicked"), "{log}");
    }
    // A role that panics has no disk to say so on, but the supervisor sees its exit code.
    assert!(!pool.printed().contains("101"), "{}", pool.printed());
    disk.free();
    pool.wait_ready();
    pool.eventually("no problem is shown", || (pool.status()?["problems"] == serde_json::json!([])).then_some(()));
    pool.eventually("the record is right again", || (vec![pool.pid("gateway")] == pool.role_pids("gateway")).then_some(()));
    assert_eq!(pool.pid("supervisor"), supervisor, "{}", pool.printed());
    assert!(pool.run(&["down"]).status.success());
    pool.assert_gone();
}

#[test]
fn down_ends_every_process_also_on_a_full_disk() {
    let Some((mut pool, disk)) = pool_on_a_disk() else { return };
    pool.up();
    disk.fill();
    pool.role_pids("controller").into_iter().for_each(kill);
    pool.kill_started();
    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    pool.assert_gone();
}
