//! `weal doctor`: what this machine offers; for each thing that is missing, what is lost and what to do.

use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use weal_host::Proc;
use weal_host::cgroup::{Group, Mount};
use weal_node::ladder::Ladder;

use crate::args::Target;
use crate::config_file;
use crate::failure::{Exit, Failure};
use crate::output::{self, Stream, Tone, paint};
use crate::process::holder_of;
use crate::state::{DEFAULT_FILE, StateDir};
use crate::users;

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// As it should be.
    Ok,
    /// weal runs, with something lost.
    Lost,
    /// weal does not run.
    Broken,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    /// What was looked at.
    name: &'static str,
    /// How it came out.
    verdict: Verdict,
    /// What was found.
    found: String,
    /// What does not work because of it; empty when it is as it should be.
    lost: String,
    /// What to do about it; empty when it is as it should be.
    remedy: String,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, found: found.into(), lost: String::new(), remedy: String::new() }
    }

    fn lost(name: &'static str, found: impl Into<String>, lost: &str, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Lost, found: found.into(), lost: lost.to_owned(), remedy: remedy.into() }
    }

    fn broken(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let lost = "weal up does not start".to_owned();
        Self { name, verdict: Verdict::Broken, found: found.into(), lost, remedy: remedy.into() }
    }
}

/// Runs it.
///
/// # Errors
/// Something keeps weal from starting (exit code 1).
pub fn run(target: &Target, json: bool) -> anyhow::Result<()> {
    let proc = Proc::system();
    let mut checks =
        vec![privileges(), cgroups(&proc), sleep(&weal_node::ladder::of_this_machine()), pressure(&proc), descriptors()];
    checks.extend(pool(target));
    if json {
        output::json(&checks, false)?;
    } else {
        checks.iter().for_each(|check| output::print(&render(check)));
    }
    match checks.iter().filter(|check| check.verdict == Verdict::Broken).count() {
        0 => Ok(()),
        count => Err(Failure::new(Exit::Failed, format!("{count} of {} checks keep weal from starting", checks.len())).into()),
    }
}

fn render(check: &Check) -> String {
    let (mark, tone) = match check.verdict {
        Verdict::Ok => ("ok  ", Tone::Good),
        Verdict::Lost => ("lost", Tone::Warn),
        Verdict::Broken => ("bad ", Tone::Bad),
    };
    let mut text = format!("{}  {:<12} {}\n", paint(mark, tone, Stream::Out), check.name, check.found);
    for (word, said) in [("lost:", &check.lost), ("do:", &check.remedy)] {
        if !said.is_empty() {
            text.push_str(&format!("      {:<12} {} {said}\n", "", paint(word, Tone::Dim, Stream::Out)));
        }
    }
    text
}

fn privileges() -> Check {
    if users::is_root() {
        return Check::ok("privileges", "root");
    }
    let found = format!("user {}", rustix::process::geteuid().as_raw());
    let lost =
        "CPU and memory limits need delegated cgroups; applications cannot run as other users; ports below 1024 are closed";
    Check::lost("privileges", found, lost, "run as root, or under systemd with Delegate=yes")
}

/// Which control groups there are.
fn cgroups(proc: &Proc) -> Check {
    let (v1, v2) = controllers(&proc.cgroup_mounts(proc.own_pid()));
    let need = ["cpu", "memory"];
    let writable = users::is_root();
    match (&v1[..], &v2) {
        (_, Some(v2)) if need.iter().all(|name| v2.iter().any(|one| one == name)) && writable => {
            Check::ok("cgroups", format!("v2 with {}", v2.join(" ")))
        }
        (v1, v2) if need.iter().all(|name| v1.iter().any(|one| one == name)) && writable => {
            let freezer = if v2.is_some() { "freeze and kill by v2" } else { "without v2" };
            let lost = "memory cannot be reclaimed from a sleeping instance by group, and pressure is known for the machine only";
            Check::lost(
                "cgroups",
                format!("hybrid: v1 with {}, {freezer}", v1.join(" ")),
                lost,
                "boot with systemd.unified_cgroup_hierarchy=1",
            )
        }
        _ => {
            let found = if writable { "none that can be used" } else { "none that this user may write" };
            let lost = "no CPU limits and shares between applications; memory limits are checked once a second only";
            Check::lost("cgroups", found, lost, "run as root on a kernel with cgroup v2, or under systemd with Delegate=yes")
        }
    }
}

/// v1 controllers that are mounted, and v2's where it is mounted.
fn controllers(mounts: &[Mount]) -> (Vec<String>, Option<Vec<String>>) {
    let known = ["cpu", "cpuacct", "memory", "freezer", "blkio"];
    let v1 = known.into_iter().filter(|controller| mounts.iter().any(|mount| mount.has(controller)));
    let v2 = mounts.iter().find(|mount| mount.is_v2).map(|mount| Group::new(&mount.at).controllers());
    (v1.map(str::to_owned).collect(), v2)
}

/// Which rungs instances can sleep on.
fn sleep(ladder: &Ladder) -> Check {
    let works = ladder.rungs.iter().filter(|(_, missing)| missing.is_none()).map(|(rung, _)| rung.as_str());
    let found = format!("instances can be {}; {} of swap", works.collect::<Vec<_>>().join(", "), ladder.swap);
    let advice = ladder.advice.join("; ");
    match ladder.rungs.iter().find_map(|(_, missing)| missing.as_ref()) {
        Some(missing) => {
            let lost = format!("sleeping instances keep their memory: {missing}");
            Check::lost("sleep", found, &lost, if advice.is_empty() { "see docs/sleep.md".to_owned() } else { advice })
        }
        None if advice.is_empty() => Check::ok("sleep", found),
        None => Check::lost("sleep", found, "some speed or room", advice),
    }
}

fn pressure(proc: &Proc) -> Check {
    if proc.tells_pressure() {
        return Check::ok("pressure", "the kernel tells how long processes wait for CPU");
    }
    let lost = "waiting for CPU inside a node is estimated, not measured";
    Check::lost("pressure", "the kernel does not tell", lost, "boot with psi=1")
}

/// Two descriptors a request and one an idle connection: 10,000 connections need about so many.
const ENOUGH_DESCRIPTORS: u64 = 16_384;

fn descriptors() -> Check {
    match getrlimit(Resource::Nofile).maximum {
        Some(limit) if limit < ENOUGH_DESCRIPTORS => {
            let lost = "the gateway refuses clients beyond about a third of that";
            Check::lost(
                "open files",
                format!("at most {limit}"),
                lost,
                format!("ulimit -Hn {ENOUGH_DESCRIPTORS} or LimitNOFILE="),
            )
        }
        Some(limit) => Check::ok("open files", format!("at most {limit}")),
        None => Check::ok("open files", "no limit"),
    }
}

/// What depends on a config file; nothing without one.
fn pool(target: &Target) -> Vec<Check> {
    let file = target.file.clone().unwrap_or_else(|| DEFAULT_FILE.into());
    if target.file.is_none() && !file.exists() {
        return vec![Check::ok("config", "no weal.toml here: ports and users were not checked")];
    }
    let loaded = match config_file::load(&file) {
        Ok(loaded) => loaded,
        Err(error) => return vec![Check::broken("config", error.to_string(), "see weal validate")],
    };
    let mut checks = vec![Check::ok("config", format!("{} is valid", loaded.path.display()))];
    let state = StateDir::of(target.state.as_deref(), &loaded.path);
    let runs = state.as_ref().ok().and_then(StateDir::record).is_some_and(|record| record.supervisor.is_alive());
    if runs {
        checks.push(Check::ok("ports", "this pool runs and holds them"));
    } else {
        checks.extend([("listen", loaded.spec.listen), ("api", loaded.spec.api)].map(|(key, address)| port(key, address)));
    }
    checks.push(pool_user(&loaded.spec.user));
    checks.extend(loaded.spec.apps.values().filter_map(|app| Some((app.name.as_str(), app.user.as_deref()?))).map(app_user));
    checks
}

fn port(key: &'static str, address: std::net::SocketAddr) -> Check {
    match std::net::TcpListener::bind(address) {
        Ok(_) => Check::ok(key, format!("{address} is free")),
        Err(error) => {
            let holder = holder_of(address).map_or_else(|| error.to_string(), |holder| format!("{holder} listens there"));
            Check::broken(key, format!("{address} cannot be had: {holder}"), format!("stop it, or change {key} in [pool]"))
        }
    }
}

fn pool_user(name: &str) -> Check {
    match users::unprivileged(name) {
        Err(error) => Check::broken("user", format!("{error:#}"), format!("useradd --system {name}")),
        Ok(Some(user)) if user.name == "nobody" => {
            let lost = "other software that runs as nobody could call weal's gateway and node agent";
            Check::lost(
                "user",
                "gateway and controller run as nobody",
                lost,
                "useradd --system weal, and user = \"weal\" in [pool]",
            )
        }
        Ok(Some(user)) => Check::ok("user", format!("gateway and controller run as {}", user.name)),
        Ok(None) => Check::ok("user", "gateway and controller run as whoever starts weal"),
    }
}

fn app_user((app, name): (&str, &str)) -> Check {
    match users::find(name) {
        Err(error) => Check::broken("user", format!("{app}: {error:#}"), format!("useradd --system {name}")),
        Ok(_) if users::is_root() => Check::ok("user", format!("{app} runs as {name}")),
        Ok(user) if user.uid == rustix::process::geteuid().as_raw() => Check::ok("user", format!("{app} runs as {name}")),
        Ok(_) => Check::broken("user", format!("{app} is to run as {name}, which only root can do"), "run as root"),
    }
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, Rung};

    use super::*;

    #[test]
    fn both_generations_of_cgroups_are_found() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("cgroup.controllers"), "cpu memory\n").unwrap();
        let mount = |at: &str, is_v2: bool, options: &[&str]| Mount {
            at: at.into(),
            root: "/".into(),
            is_v2,
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        let v1 = mount("/sys/fs/cgroup/cpu,cpuacct", false, &["rw", "cpu", "cpuacct"]);
        let (v1, v2) = controllers(&[v1, mount(&root.path().to_string_lossy(), true, &["rw"])]);
        assert_eq!(v1, ["cpu", "cpuacct"]);
        assert_eq!(v2, Some(vec!["cpu".to_owned(), "memory".to_owned()]));
    }

    #[test]
    fn a_machine_without_swap_is_told_what_is_lost() {
        let missing = |rung| (rung, Some("there is no swap".to_owned()).filter(|_| rung != Rung::Suspended));
        let advice = vec!["add zram".to_owned()];
        let ladder = Ladder { rungs: Rung::ALL.map(missing).to_vec(), swap: Bytes(0), advice };
        let check = sleep(&ladder);
        assert_eq!((check.verdict, check.remedy.as_str()), (Verdict::Lost, "add zram"));
        assert!(check.found.starts_with("instances can be suspended;") && check.lost.contains("there is no swap"), "{check:?}");
    }
}
