//! `weal doctor`: what this machine offers; for each thing that is missing, what is lost and what to do.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use weal_host::Proc;
use weal_model::{AppSpec, CertificateSource, PoolSpec, Rung, SandboxMode};
use weal_node::Numbers;
use weal_node::ladder::Ladder;
use weal_protocol::Capabilities;
use weal_protocol::node::OBSERVE;
use weal_sandbox::{ConfinedAs, ConfinementSupport, Exposure, OtherRoot, Paths, SandboxPlan};

use crate::args::PoolArgs;
use crate::certificate;
use crate::client::block_on;
use crate::config_file;
use crate::failure::{Exit, Failure};
use crate::output::{self, Stream, Tone, paint};
use crate::process::holder_of;
use crate::role_name::RoleName;
use crate::state::{DEFAULT_FILE, StateDir, absolute_config};
use crate::trust;
use crate::users::{self, RoleUsers};

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
pub fn run(target: &PoolArgs, json: bool) -> anyhow::Result<()> {
    let (foreseen, ladder) = weal_node::capabilities::of_this_machine();
    let capabilities = of_the_agent(target).unwrap_or(foreseen);
    let mut checks =
        vec![privileges(), isolation(&capabilities), sleep(&capabilities, &ladder), pressure(&Proc::system()), descriptors()];
    checks.extend(pool(target));
    if json {
        output::json(&checks, false)?;
    } else {
        checks.iter().for_each(|check| output::print(&render(check)));
    }
    match checks.iter().filter(|check| check.verdict == Verdict::Broken).count() {
        0 => Ok(()),
        count => {
            let verb = if count == 1 { "keeps" } else { "keep" };
            Err(Failure::new(Exit::Failed, format!("{count} of {} checks {verb} weal from starting", checks.len())).into())
        }
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

/// How long a node agent may take to say what it can do.
const AGENT_PATIENCE: Duration = Duration::from_secs(2);

/// What the running pool's node agent can do; `None` when none runs or this user may not ask it.
fn of_the_agent(target: &PoolArgs) -> Option<Capabilities> {
    let file = absolute_config(target.file.as_deref().unwrap_or(Path::new(DEFAULT_FILE))).ok()?;
    let state = StateDir::of(target.state.as_deref(), &file).ok()?;
    state.record().filter(|record| record.supervisor.is_alive())?;
    let agent = weal_rpc::Client::new(state.socket(RoleName::Node), AGENT_PATIENCE);
    block_on(async { Ok(agent.call(OBSERVE, &()).await?) }).ok().map(|observation| observation.capabilities)
}

/// How instances are kept apart and held to their limits.
fn isolation(capabilities: &Capabilities) -> Check {
    let found = format!("isolation by {}", capabilities.isolation);
    let divides_cpu = capabilities.cpu_shares && capabilities.cpu_limits;
    let of_v1 = capabilities.isolation == weal_node::Kind::CgroupHybrid.as_str();
    let lost: Vec<&str> = [
        (!divides_cpu, "no CPU limits and shares between applications"),
        (!divides_cpu && capabilities.memory_limits, "memory limits are checked once a second only"),
        (!capabilities.memory_limits, "no memory limits"),
        (of_v1, "memory of a sleeping instance is reclaimed less precisely, and pressure is known for the machine only"),
    ]
    .into_iter()
    .filter_map(|(is_lost, what)| is_lost.then_some(what))
    .collect();
    let remedy = match (lost.is_empty(), of_v1) {
        (true, _) => return Check::ok("cgroups", found),
        (false, true) => "boot with systemd.unified_cgroup_hierarchy=1",
        (false, false) => "run as root on a kernel with cgroup v2, or under systemd with Delegate=yes",
    };
    Check::lost("cgroups", found, &lost.join("; "), remedy)
}

/// Which rungs instances can sleep on, and what would make it better.
fn sleep(capabilities: &Capabilities, ladder: &Ladder) -> Check {
    let works: Vec<&str> = capabilities.rungs.iter().map(|rung| rung.as_str()).collect();
    let found = format!("instances can be {}; {} of swap", works.join(", "), ladder.swap);
    let advice = ladder.advice.join("; ");
    if Rung::ALL.iter().all(|rung| capabilities.rungs.contains(rung)) {
        return if advice.is_empty() {
            Check::ok("sleep", found)
        } else {
            Check::lost("sleep", found, "some speed or room", advice)
        };
    }
    let missing = ladder.missing.map_or_else(|| "the node agent cannot page them out".to_owned(), |missing| missing.to_string());
    let lost = format!("sleeping instances keep their memory: {missing}");
    Check::lost("sleep", found, &lost, if advice.is_empty() { "see docs/sleep.md".to_owned() } else { advice })
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
fn pool(target: &PoolArgs) -> Vec<Check> {
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
        checks.extend(loaded.spec.tls.as_ref().map(|tls| port("listen", tls.listen)));
    }
    checks.extend(certificates(&loaded.spec, state.as_ref().ok()));
    checks.push(role_users());
    // Before the first start there are none.
    let numbers = state.as_ref().ok().and_then(|state| Numbers::given(&state.root).ok()).unwrap_or_default();
    checks.extend(loaded.spec.apps.values().map(|app| app_user(app, numbers.get(&app.name).copied())));
    let machine = ConfinementSupport::probe();
    if users::is_root() {
        checks.extend([role_sandbox(machine, state.as_ref().ok()), agent_sandbox()]);
    }
    checks.extend(loaded.spec.apps.values().map(|app| sandbox(app, machine)));
    checks.extend(users::is_root().then(|| trusted(&loaded.path)));
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

/// The certificates that are files; those that weal makes are made anew in time.
fn certificates(spec: &PoolSpec, state: Option<&StateDir>) -> Vec<Check> {
    let folder = state.map(StateDir::tls).unwrap_or_default();
    let all = spec.tls.iter().flat_map(|tls| &tls.certificates);
    let of_files = all.filter(|(_, source)| matches!(source, CertificateSource::Files { .. }));
    let check = |(name, source): (&String, &CertificateSource)| match certificate::read(
        name,
        certificate::files(name, source, &folder),
    ) {
        Err(error) => Check::broken("https", error.to_string(), "see `certificate` and `key` in the config"),
        Ok(read) => match read.warning() {
            Some(warning) => {
                Check::lost("https", warning, "clients refuse a certificate that has ended", "renew the certificate")
            }
            None => Check::ok("https", format!("the certificate `{name}` is good for {} days", read.days_left())),
        },
    };
    of_files.map(check).collect()
}

/// Whom gateway and controller run as.
fn role_users() -> Check {
    match RoleUsers::of_this_machine() {
        Err(error) => {
            Check::broken("users", format!("{error:#}"), "useradd --system weal-gateway; useradd --system weal-controller")
        }
        Ok(Some(RoleUsers { gateway, controller })) => {
            let [gateway, controller] = [gateway, controller].map(|user| format!("{} ({})", user.name, user.uid));
            Check::ok("users", format!("the gateway runs as {gateway}, the controller as {controller}"))
        }
        Ok(None) => {
            let lost = "weal and every application run as one user, and can read and stop each other";
            Check::lost("users", "weal is not started by root", lost, "start weal as root")
        }
    }
}

/// Whom an application runs as; `number` is that of its own user, once it has one.
fn app_user(spec: &AppSpec, number: Option<u32>) -> Check {
    let app = &spec.name;
    let Some(name) = &spec.user else {
        let whom = match (users::is_root(), number) {
            (true, Some(number)) => format!("a user of its own ({number})"),
            (true, None) => "a user of its own, whose number it gets at its first start".to_owned(),
            (false, _) => "whoever starts weal".to_owned(),
        };
        return Check::ok("user", format!("{app} runs as {whom}"));
    };
    let does_not_start = format!("weal up starts, and {app} does not");
    match users::find(name) {
        Err(error) => {
            let remedy = format!("useradd --system {name}, or leave `user` out");
            Check::lost("user", format!("{app}: {error:#}"), &does_not_start, remedy)
        }
        Ok(user) if user.uid == 0 && users::is_root() => {
            let lost = "it can do anything on this machine, and so can anyone who breaks into it";
            Check::lost("user", format!("{app} runs as root"), lost, "leave `user` out: it gets a user of its own")
        }
        Ok(user) if users::is_root() || user.uid == rustix::process::geteuid().as_raw() => {
            Check::ok("user", format!("{app} runs as {name}"))
        }
        Ok(_) => {
            let found = format!("{app} should run as {name}, which needs a weal that root started");
            Check::lost("user", found, &does_not_start, "start weal as root, or leave `user` out")
        }
    }
}

/// The most that a role which faces others may be exposed, on that scale.
const MOST_EXPOSED_ROLE: f64 = 1.5;

/// How far gateway and controller are confined here.
fn role_sandbox(machine: ConfinementSupport, state: Option<&StateDir>) -> Check {
    let plan = SandboxPlan::of_role(machine, state.map_or(Path::new("/"), |state| &state.root));
    let score = Exposure::of(&plan, ConfinedAs::Own).score();
    let found = format!("gateway and controller are exposed {score:.1} of 10 (as `systemd-analyze security` counts)");
    if score <= MOST_EXPOSED_ROLE {
        return Check::ok("sandbox", found);
    }
    Check::lost("sandbox", found, &machine.missing().join("; "), "run weal outside of a container, on Linux 5.12 or newer")
}

/// How far the node agent is confined where root starts weal. It is told and not judged: nobody but root and weal's own roles can speak to it.
fn agent_sandbox() -> Check {
    let score = Exposure::of_agent().score();
    Check::ok(
        "sandbox",
        format!("the node agent, which is root, is exposed {score:.1} of 10 (as `systemd-analyze security` counts)"),
    )
}

/// The most that a confined application may be exposed, on the scale of `systemd-analyze security`.
const MOST_EXPOSED: f64 = 2.5;

/// How far an application is confined here.
fn sandbox(app: &AppSpec, machine: ConfinementSupport) -> Check {
    let identity = match app.user.as_deref() {
        _ if !machine.is_root => ConfinedAs::Shared,
        None => ConfinedAs::Own,
        Some(name) if users::find(name).is_ok_and(|user| user.uid == 0) => ConfinedAs::Root,
        Some(_) => ConfinedAs::Shared,
    };
    // Where its folders are makes no difference to the score.
    let paths = Paths { data: "/".into(), tmp: "/".into(), keep: Vec::new() };
    let plan = SandboxPlan::new(&app.sandbox, machine, &paths);
    let root = app.process.image.as_ref().map(|_| OtherRoot { files: "/".into(), places: "/".into() });
    let plan = root.and_then(|root| plan.clone().with_root(root, None)).unwrap_or(plan);
    let exposure = Exposure::of(&plan, identity);
    let score = exposure.score();
    let found = format!("{} is exposed {score:.1} of 10 (as `systemd-analyze security` counts)", app.name);
    if score <= MOST_EXPOSED {
        return Check::ok("sandbox", found);
    }
    let may: Vec<&str> = exposure.may().into_iter().take(5).collect();
    let lost = format!("it may {}", may.join("; "));
    let remedy = match (app.sandbox.mode, machine.is_root) {
        (SandboxMode::Off, _) => "leave `sandbox` and `user` out, or open only what it needs",
        (SandboxMode::Strict, false) => "start weal as root, for mounts of its own and a user of its own",
        (SandboxMode::Strict, true) => "leave out what it does not need of `user` and `sandbox`",
    };
    Check::lost("sandbox", found, &lost, remedy)
}

/// Whether others could change the config that root starts a pool by.
fn trusted(path: &Path) -> Check {
    match trust::check(path) {
        Ok(()) => Check::ok("config", "others cannot change it"),
        Err(error) => Check::broken("config", error.to_string(), "chown root, and chmod go-w"),
    }
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, SandboxSpec};
    use weal_node::ladder::Missing;

    use super::*;

    #[test]
    fn a_machine_that_keeps_instances_apart_lacks_nothing_and_another_says_what() {
        assert_eq!(isolation(&Capabilities::all("cgroup-v2")).verdict, Verdict::Ok);
        let hybrid = isolation(&Capabilities::all("cgroup-hybrid"));
        assert!(hybrid.verdict == Verdict::Lost && hybrid.remedy.contains("unified_cgroup_hierarchy"), "{hybrid:?}");
        let plain = Capabilities { cpu_shares: false, cpu_limits: false, ..Capabilities::all("none") };
        let check = isolation(&plain);
        assert_eq!(check.lost, "no CPU limits and shares between applications; memory limits are checked once a second only");
    }

    #[test]
    fn an_application_without_its_user_keeps_only_itself_from_starting() {
        let app = AppSpec { user: Some("weal-nobody-has-this".to_owned()), ..AppSpec::example("shop") };
        let check = app_user(&app, None);
        assert_eq!((check.verdict, check.lost.as_str()), (Verdict::Lost, "weal up starts, and shop does not"), "{check:?}");
    }

    #[test]
    fn who_runs_as_root_is_as_exposed_by_roots_number_as_by_its_name() {
        let machine = ConfinementSupport { is_root: true, ..ConfinementSupport::probe() };
        let exposed = |user: &str| {
            sandbox(&AppSpec { user: Some(user.to_owned()), sandbox: SandboxSpec::off(), ..AppSpec::example("shop") }, machine)
                .found
        };
        assert_eq!(exposed("0"), exposed("root"));
        assert_ne!(exposed("0"), exposed("daemon"));
    }

    #[test]
    fn an_applications_own_user_is_told_with_its_number() {
        let found = app_user(&AppSpec::example("shop"), Some(64_613)).found;
        let expected = if users::is_root() { "a user of its own (64613)" } else { "whoever starts weal" };
        assert_eq!(found, format!("shop runs as {expected}"));
    }

    #[test]
    fn a_machine_without_swap_is_told_what_is_lost() {
        let capabilities = Capabilities { rungs: vec![Rung::Suspended], ..Capabilities::all("cgroup-v2") };
        let ladder = Ladder { missing: Some(Missing::Swap), swap: Bytes(0), advice: vec!["add zram".to_owned()] };
        let check = sleep(&capabilities, &ladder);
        assert_eq!((check.verdict, check.remedy.as_str()), (Verdict::Lost, "add zram"));
        assert!(check.found.starts_with("instances can be suspended;") && check.lost.contains("there is no swap"), "{check:?}");
        let ladder = Ladder { missing: None, swap: Bytes::gib(1), advice: Vec::new() };
        assert_eq!(sleep(&Capabilities::all("cgroup-v2"), &ladder).verdict, Verdict::Ok);
    }
}
