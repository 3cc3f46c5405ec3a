//! What keeps the processes of a pool from the machine and from each other, as the kernel tells it of processes that run.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use crate::identity::{NOBODY, attacker_app, is_root, values};
use crate::load::get;
use crate::pool::{Pool, example_program};

#[test]
fn the_processes_of_gateway_and_controller_are_confined() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", ""));
    pool.up();
    for role in ["gateway", "controller"] {
        let process = PathBuf::from(format!("/proc/{}", pool.pid(role)));
        let status = std::fs::read_to_string(process.join("status")).unwrap();
        assert_eq!((values(&status, "NoNewPrivs:"), values(&status, "Seccomp:")), (vec!["1".into()], vec!["2".into()]), "{role}");
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(values(&status, set), ["0000000000000000"], "{role} {set}");
        }
        let mounts = std::fs::read_to_string(process.join("mountinfo")).unwrap();
        // Where a file system is mounted, and how: the last mount at a place counts.
        let mount_at = |place: &Path| {
            let words: Vec<Vec<&str>> = mounts.lines().map(|line| line.split(' ').collect()).collect();
            let last = words.iter().rfind(|words| Path::new(words[4]) == place);
            last.map(|words| (words[5].starts_with("ro"), words.contains(&"tmpfs")))
        };
        assert!(mount_at(Path::new("/")).is_some_and(|(is_read_only, _)| is_read_only), "{role}: {mounts}");
        assert_eq!(mount_at(&pool.state()).map(|(is_read_only, _)| is_read_only), Some(false), "{role}: {mounts}");
        for empty in ["/root", "/home"].map(Path::new).into_iter().filter(|path| path.is_dir()) {
            assert_eq!(mount_at(empty), Some((true, true)), "{role} finds {} as it is: {mounts}", empty.display());
        }
    }
    let agent = std::fs::read_to_string(format!("/proc/{}/status", pool.pid("node"))).unwrap();
    assert_eq!(values(&agent, "NoNewPrivs:"), ["1"]);
}

#[test]
fn a_health_command_gets_no_more_than_its_instance() {
    if !is_root() {
        return;
    }
    let look = format!("health = {{ command = [\"{}\", \"look\", \"$DATA/seen\"] }}", example_program("attacker").display());
    let mut pool = Pool::new(&attacker_app("one", "").replace("health = \"/healthz\"", &look));
    pool.start_by(&[("SECRET", "of the operator")], true);
    pool.wait_ready();
    let (seen, own) = (pool.state().join("data/one/seen"), get(pool.listen, "one.localhost", "/self").unwrap().1);
    let seen = pool.eventually("what the command has seen", || {
        std::fs::read_to_string(&seen).ok().filter(|seen| seen.lines().any(|line| line.starts_with("Env:\tUSER")))
    });
    for line in ["Uid:", "Gid:", "Groups:", "CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:"] {
        assert_eq!(values(&seen, line), values(&own, line), "{line}");
    }
    assert_eq!((values(&seen, "CapBnd:"), values(&seen, "Seccomp:")), (vec!["0000000000000000".into()], vec!["2".into()]));
    let lines = |of: &str, kind: &str| -> Vec<String> {
        let mut lines: Vec<String> = of.lines().filter_map(|line| Some(line.strip_prefix(kind)?.to_owned())).collect();
        lines.sort();
        lines
    };
    let numbers: Vec<String> = lines(&seen, "Fd:\t").iter().map(|line| line.split('\t').next().unwrap().to_owned()).collect();
    assert_eq!(numbers, ["0", "1", "2"]);
    assert_eq!(lines(&seen, "Env:\t"), lines(&own, "Env:\t"));
    assert!(!seen.contains("of the operator"), "{seen}");
}

#[test]
fn without_control_groups_up_says_that_nothing_keeps_applications_apart() {
    if !is_root() {
        return;
    }
    let pool = Pool::new(&attacker_app("one", ""));
    let state = pool.config().with_file_name("of-nobody");
    std::fs::create_dir(&state).unwrap();
    chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    // Nobody may not make control groups.
    let mut command = pool.command(&["up"]);
    command.uid(NOBODY).gid(NOBODY).env("WEAL_STATE", &state).env("HOME", &state).current_dir("/");
    let mut up = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(up.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_said = said.into_iter().any(|line| line.contains("no isolation between applications:"));
    crate::pool::send(i32::try_from(up.id()).unwrap(), rustix::process::Signal::TERM);
    assert!(up.wait().unwrap().success() && is_said);
}
