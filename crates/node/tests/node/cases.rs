//! What must hold, whatever the isolation.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use weal_model::{Bytes, Cpu, HealthProbe, InstanceId, InstanceState, RestartPolicy, Rung};
use weal_protocol::Refusal;
use weal_protocol::node::{self, LogsRequest};

use crate::bench::{Bench, PATIENCE, fixture, get, is_alive, kill, signal, wait_for};
use crate::survival::shim_of;

pub fn an_instance_becomes_ready_answers_and_leaves_nothing_behind(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.env.insert("GREETING".into(), "hello on $PORT".into());
    let instance = bench.start_ready(&spec);
    assert!(instance.start_took_s.is_some());
    let pid: u32 = get(instance.address, "/", PATIENCE).unwrap().parse().unwrap();
    assert_eq!(instance.pid, Some(pid));
    let environ = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let data = format!("DATA={}", bench.state().join("data/web").display());
    for entry in [format!("GREETING=hello on {}", instance.address.port()), data, "INSTANCE=web-1".into(), "NODE=n1".into()] {
        assert!(environ.split('\0').any(|found| found == entry), "{entry} in {environ:?}");
    }
    assert!(bench.state().join("data/web").is_dir());
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let foreign: Vec<_> = open.filter(|target| !target.to_string_lossy().starts_with("socket:")).collect();
    assert_eq!(foreign.len(), 3, "stdin, stdout and stderr, but {foreign:?}");
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    let states: Vec<InstanceState> = bench.events(0).iter().map(|event| event.state).collect();
    assert_eq!(states.last(), Some(&InstanceState::Ready));

    bench.stop("web-1");
    assert!(!is_alive(pid));
    assert!(bench.instance("web-1").is_none());
    assert!(!bench.dir("web-1").exists());
    bench.stop("web-1");
}

pub fn one_that_ignores_sigterm_is_killed_after_its_stop_timeout(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["stubborn", "$PORT"]);
    spec.stop_timeout_s = 0.5;
    let pid = bench.start_ready(&spec).pid.unwrap();
    let outcome = bench.apply(node::Command::Stop { instance: InstanceId::from("web-1") });
    assert_eq!(outcome.refusal, None);
    assert!(outcome.took_s >= 0.5, "it was given its time: {outcome:?}");
    assert!(!is_alive(pid));
}

pub fn detached_children_do_not_survive_a_stop(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["forks", "$PORT"]);
    spec.stop_timeout_s = 0.5;
    bench.start_ready(&spec);
    let family = wait_for("the children", || Some(bench.marked("web-1")).filter(|pids| pids.len() == 4));
    bench.stop("web-1");
    assert!(family.iter().all(|pid| !is_alive(*pid)), "{family:?}");

    // The same when the main process dies by itself: what it leaves is cleared away before it is started again.
    let first = bench.start_ready(&spec).pid.unwrap();
    let family = wait_for("the children", || Some(bench.marked("web-1")).filter(|pids| pids.len() == 4));
    kill(first);
    let again = wait_for("a restart", || bench.instance("web-1").filter(|instance| instance.restarts == 1));
    assert!(family.iter().all(|pid| !is_alive(*pid)), "{family:?}");
    assert_ne!(again.pid, Some(first));
}

pub fn a_missing_binary_is_named(bench: &Bench) {
    let mut spec = bench.spec("web-1", &[]);
    spec.run = vec!["./no-such-shop".into()];
    spec.cwd = "/tmp".into();
    let error = bench.start(&spec).unwrap();
    assert_eq!(error, Refusal::StartFailed { detail: "cannot run /tmp/./no-such-shop: there is no such file".into() });
    let instance = bench.wait_state("web-1", InstanceState::Backoff);
    assert!(
        instance.detail.starts_with(&error.to_string()) && instance.detail.ends_with("starts again in 0.5 s"),
        "{}",
        instance.detail
    );
    bench.stop("web-1");

    // A script whose interpreter is missing looks like a missing file to the kernel.
    let script = bench.state().join("script");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    spec.run = vec![script.display().to_string()];
    spec.restart = RestartPolicy::Never;
    let error = bench.start(&spec).unwrap().to_string();
    assert!(error.ends_with("the interpreter or loader that it names does not exist"), "{error}");
    bench.wait_state("web-1", InstanceState::Failed);
}

pub fn one_that_exits_at_once_backs_off_and_what_it_wrote_stays_in_its_log(bench: &Bench) {
    let mut spec = bench.spec("web-1", &[]);
    spec.run = ["sh", "-c", "echo the port is mine; echo; exit 7"].map(str::to_owned).to_vec();
    bench.start(&spec);
    let instance = wait_for("two restarts", || bench.instance("web-1").filter(|instance| instance.restarts >= 2));
    assert!(instance.start_took_s.is_none());
    let instance = bench.wait_state("web-1", InstanceState::Backoff);
    let expected = "ended by itself with status 7; starts again in ";
    assert!(instance.detail.starts_with(expected), "{}", instance.detail);
    assert!(!instance.detail.contains("the port is mine"), "anybody may read its state: {}", instance.detail);
    bench.stop("web-1");

    for (restart, status, state) in [
        (RestartPolicy::OnFailure, 0, InstanceState::Stopped),
        (RestartPolicy::Never, 0, InstanceState::Stopped),
        (RestartPolicy::Never, 1, InstanceState::Failed),
    ] {
        spec.run[2] = format!("exit {status}");
        spec.restart = restart;
        bench.start(&spec);
        let instance = bench.wait_state("web-1", state);
        assert_eq!((instance.restarts, instance.pid), (0, None), "{instance:?}");
        bench.stop("web-1");
    }
}

pub fn one_that_never_gets_healthy_is_said_to(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["deaf"]);
    // A busy machine takes a while until it is heard.
    spec.health.start_timeout_s = 3.0;
    assert_eq!(bench.start(&spec), None);
    // On a slow machine it may be over before this looks.
    let pid = bench.instance("web-1").unwrap().pid;
    let instance = bench.wait_state("web-1", InstanceState::Backoff);
    for part in ["not ready within 3 s: GET /healthz on 127.0.0.1:", "connection refused"] {
        assert!(instance.detail.contains(part), "{}", instance.detail);
    }
    assert!(pid.is_none_or(|pid| !is_alive(pid)));
}

pub fn a_flooded_log_stays_bounded_and_readable(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["flood", "64"]);
    spec.health.probe = HealthProbe::Command { argv: vec!["true".into()] };
    let begun = Instant::now();
    let writer = bench.start_ready(&spec).pid.unwrap();
    let tail = |lines| LogsRequest {
        instance: InstanceId::from("web-1"),
        cursor: None,
        tail_lines: lines,
        wait_s: 0.0,
        since: None,
        ended: None,
    };
    let last =
        wait_for("the end of the flood", || Some(bench.call(node::LOGS, &tail(1))).filter(|chunk| chunk.text == "flood over\n"));
    // 64 MiB are a burst of 32 MiB and four seconds at 8 MiB.
    assert!(begun.elapsed() >= Duration::from_millis(3900), "its log is read no faster than it may write: {:?}", begun.elapsed());
    let stat = |pid: u32| weal_host::Proc::system().stat(pid).unwrap();
    let (writes, reads) = (stat(writer).own_seconds(), stat(stat(writer).parent).own_seconds());
    println!("64 MiB: the instance took {writes:.2} s of CPU to write them, its shim {reads:.2} s to keep them");
    assert!(
        reads < 20.0 * writes.max(0.05),
        "no limit of the instance's holds its shim, so it has to be little: {reads} s, {writes} s"
    );
    // The kernel counts in steps of 10 ms.
    let both = writes + reads - 0.04;
    let told = bench.instance("web-1").unwrap().cpu_seconds.unwrap();
    assert!(told >= both, "{told} s are charged to the instance, {writes} + {reads} s are its doing");
    let is_log = |file: &fs::DirEntry| file.path().extension().is_some_and(|end| end == "log");
    let files = fs::read_dir(bench.dir("web-1").join("logs")).unwrap().flatten();
    let bytes: u64 = files.filter(is_log).map(|file| file.metadata().unwrap().len()).sum();
    assert!((40 << 20..=50 << 20).contains(&bytes), "{bytes}");
    let files = fs::read_dir(bench.dir("web-1").join("logs")).unwrap().flatten();
    let notes: usize = files
        .filter(is_log)
        .map(|file| fs::read_to_string(file.path()).unwrap().matches("\n[weal: it writes more than").count())
        .sum();
    // An emulated machine may be so slow that nothing has to be held up.
    let is_emulated = std::env::var_os("WEAL_VM").is_some();
    assert!(notes == 1 || (is_emulated && notes == 0), "it is told of once: {notes}");
    // From a place that was dropped it goes on at the oldest that is left, and says so.
    let old = LogsRequest { cursor: Some("1:0".into()), ..tail(0) };
    let chunk = bench.call(node::LOGS, &old);
    assert!(chunk.text.starts_with("[weal: older lines were dropped"), "{}", &chunk.text[..80]);
    assert!(chunk.text.len() <= (1 << 20) + 100);
    let none = LogsRequest { cursor: Some(last.next.clone()), ..tail(0) };
    assert_eq!(bench.call(node::LOGS, &none).text, "");
}

pub fn one_that_leaks_past_its_memory_limit_is_killed_and_restarted(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.memory = Bytes::mib(40);
    let instance = bench.start_ready(&spec);
    assert!(get(instance.address, "/hog/10", PATIENCE).is_some());
    let used = bench.instance("web-1").unwrap().memory_used.unwrap();
    assert!((Bytes::mib(10)..Bytes::mib(40)).contains(&used), "{used}");
    assert_eq!(get(instance.address, "/hog/80", Duration::from_secs(20)).filter(|_| bench.kind() != "none"), None);
    let ended = wait_for("the kill", || {
        let events = bench.events(0);
        events.into_iter().find(|event| event.state == InstanceState::Backoff)
    });
    let expected = match bench.kind() {
        "none" => "killed for using ",
        _ => "ran out of memory: its limit is 40MiB",
    };
    assert!(ended.detail.starts_with(expected), "{}", ended.detail);
    let again = bench.wait_state("web-1", InstanceState::Ready);
    assert_eq!(again.restarts, 1);
    assert_eq!(again.address, instance.address);
}

pub fn a_health_command_lives_in_its_instances_groups(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    let script = "while read -r line; do echo \"$$line\"; done < /proc/self/cgroup > $DATA/groups";
    spec.health.probe = HealthProbe::Command { argv: vec!["/bin/sh".into(), "-c".into(), script.into()] };
    spec.health.interval_s = 3600.0;
    let web = bench.start_ready(&spec);
    let of_instance = fs::read_to_string(format!("/proc/{}/cgroup", web.pid.unwrap())).unwrap();
    let of_check = fs::read_to_string(bench.state().join("data/web/groups")).unwrap();
    assert_eq!(of_check, of_instance);
}

pub fn an_instance_is_confined_and_so_is_its_health_command(bench: &Bench) {
    let probed = weal_sandbox::ConfinementSupport::probe();
    if !probed.mounts || !probed.filter {
        return weal_testing::skip(format_args!(
            "a sandbox's mounts need root outside of a container, and filters of system calls: {probed:?}"
        ));
    }
    let mut spec = bench.spec("web-1", &[]);
    // Not only the user keeps it from writing here.
    let open = bench.state().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let look = |who: &str| {
        format!(
            "exec > $DATA/{who} 2>&1; echo here > /tmp/{who}; echo no > {}/{who}; while read -r line; do case \"$$line\" in \
             Uid:*|CapBnd:*|NoNewPrivs:*|Seccomp:*) echo $$line;; esac; done < /proc/self/status; read -r x < /proc/1/status || echo others are hidden",
            open.display()
        )
    };
    let fixture = fixture().display().to_string();
    let forks = format!("i=0; while test $$i -lt 40; do {fixture} deaf & i=$$((i+1)); done; echo forked 40; {fixture} deaf");
    let script = format!("{}; until test -e $DATA/go; do :; done; {forks}", look("instance"));
    spec.run = vec!["/bin/sh".into(), "-c".into(), script];
    let check = format!("{}; test -e /tmp/instance", look("check"));
    spec.health.probe = HealthProbe::Command { argv: vec!["/bin/sh".into(), "-c".into(), check] };
    spec.health.interval_s = 3600.0;
    spec.sandbox.processes = 20;
    let refused = bench.start(&spec);
    assert!(matches!(refused, Some(Refusal::SandboxNotAllowed { .. })), "a controller alone opens nothing: {refused:?}");
    bench.allow_sandbox(&spec);
    bench.start_ready(&spec);
    for who in ["instance", "check"] {
        let said = fs::read_to_string(bench.state().join("data/web").join(who)).unwrap();
        for line in ["CapBnd: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2", "others are hidden"] {
            assert!(said.lines().any(|one| one == line), "{who}, {line}: {said}");
        }
        assert!(said.contains("cannot create") && !open.join(who).exists(), "{who}: {said}");
        assert!(!said.contains("Uid: 0"), "{who}: {said}");
        assert_eq!(fs::read_to_string(bench.dir("web-1").join("private/tmp").join(who)).unwrap(), "here\n", "its own /tmp");
    }
    let said = || fs::read_to_string(bench.state().join("data/web/instance")).unwrap();
    if bench.kind() == "none" {
        return;
    }
    fs::write(bench.state().join("data/web/go"), "").unwrap();
    let ended = wait_for("its end", || bench.instance("web-1").filter(|instance| instance.restarts > 0));
    assert!(!said().contains("forked 40"), "{ended:?}: {}", said());
}

pub fn a_stranger_at_its_port_gets_no_requests(bench: &Bench) {
    let mut spec = bench.spec("web-1", &[]);
    let fixture = fixture().display().to_string();
    let script = format!("test -e $DATA/again && exec {fixture} serve $PORT; : > $DATA/again; exec {fixture} deaf");
    spec.run = vec!["/bin/sh".into(), "-c".into(), script];
    assert_eq!(bench.start(&spec), None);
    let address = wait_for("its address", || bench.instance("web-1")).address;
    // It is faster than the instance, which does not listen yet, and answers all that it is asked.
    let stranger = std::net::TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        for mut client in stranger.incoming().flatten() {
            let mut question = [0; 4096];
            let _ = std::io::Read::read(&mut client, &mut question);
            let _ = std::io::Write::write_all(&mut client, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let told = format!("port {} is held by ", address.port());
    bench.said(0, &told);
    let ready = bench.wait_state("web-1", InstanceState::Ready);
    assert_ne!(ready.address, address, "it has another port, which is its own");
    assert!(get(ready.address, "/healthz", PATIENCE).is_some());
    bench.said(0, "ready ");
    let states: Vec<_> = bench.events(0).into_iter().map(|event| event.state).collect();
    let first_ready = states.iter().position(|state| *state == InstanceState::Ready).unwrap();
    assert!(states[..first_ready].contains(&InstanceState::Backoff), "it was never ready with the stranger: {states:?}");
}

pub fn one_that_stops_answering_is_replaced_after_a_while(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    (spec.health.timeout_s, spec.health.interval_s) = (0.3, 0.1);
    (spec.health.failures, spec.health.replace_after) = (2, 4);
    let first = bench.start_ready(&spec);
    // It still accepts, by its backlog, and never answers.
    signal(first.pid.unwrap(), Signal::STOP);
    bench.said(0, "replaced after 4 failed health checks in a row: GET /healthz on ");
    let second = wait_for("another process", || {
        bench.instance("web-1").filter(|one| one.state == InstanceState::Ready && one.pid != first.pid)
    });
    assert!(!is_alive(first.pid.unwrap()) && second.restarts == 1, "{second:?}");
    let states: Vec<_> = bench.events(0).into_iter().map(|event| event.state).collect();
    assert!(states.contains(&InstanceState::Unhealthy), "it was unhealthy before: {states:?}");
}

pub fn the_status_of_a_program_of_many_threads_is_told(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["threads", "5"]);
    spec.restart = RestartPolicy::Never;
    // The main thread is gone some time before the last of the others, and only then the kernel tells the status.
    bench.start(&spec);
    let instance = bench.wait_state("web-1", InstanceState::Failed);
    assert_eq!(instance.detail, "ended by itself with status 5");
}

pub fn cpu_seconds_match_what_was_burnt(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"]));
    let before = bench.observe();
    get(web.address, "/spin/1500", PATIENCE).unwrap();
    // The truth: what the kernel says of its only process, and of the shim that works for it.
    let stat = |pid: u32| weal_host::Proc::system().stat(pid).unwrap();
    let main = stat(web.pid.unwrap());
    let truth = main.own_seconds() + stat(main.parent).own_seconds();
    let after = bench.observe();
    let measured = after.instances[0].cpu_seconds.unwrap();
    assert!((measured - truth).abs() < 0.1 + truth * 0.05, "measured {measured} s, burnt {truth} s");
    let node = after.nodes[0].cpu_seconds - before.nodes[0].cpu_seconds;
    let instance = measured - before.instances[0].cpu_seconds.unwrap();
    assert!((node - instance).abs() < 0.1 + instance * 0.1, "node {node} s, instance {instance} s");

    // What was used stays counted when the process is another one.
    kill(web.pid.unwrap());
    wait_for("the restart", || bench.instance("web-1").filter(|i| i.restarts == 1 && i.state == InstanceState::Ready));
    assert!(bench.instance("web-1").unwrap().cpu_seconds.unwrap() >= measured);
    bench.stop("web-1");
    let since = bench.observe().nodes[0].cpu_seconds - after.nodes[0].cpu_seconds;
    // A restart takes a little; were what is stopped counted twice, all of it would be there again.
    assert!((0.0..0.9 * measured).contains(&since), "{since} s since {measured} were used");
}

pub fn a_suspended_instance_uses_no_cpu_and_goes_on(bench: &Bench) {
    let web = bench.start_ready(&bench.spec("web-1", &["forks", "$PORT"]));
    let address = web.address;
    // It burns CPU while it is frozen in the middle of a request.
    let request = std::thread::spawn(move || get(address, "/spin/2000", PATIENCE));
    wait_for("the burning", || bench.instance("web-1").filter(|i| i.cpu_seconds > web.cpu_seconds.map(|before| before + 0.2)));
    bench.suspend("web-1");
    let frozen = bench.instance("web-1").unwrap();
    assert_eq!(frozen.state, InstanceState::Suspended);
    assert!(frozen.detail.starts_with("frozen in "), "{}", frozen.detail);
    let began = Instant::now();
    assert_eq!(get(web.address, "/", Duration::from_millis(300)), None, "a frozen instance cannot answer");
    // Not refused: it has waited, but for the ticks that the kernel's timer may be short.
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
    let later = bench.instance("web-1").unwrap();
    assert_eq!(later.state, InstanceState::Suspended, "it is not asked how it is");
    assert!(later.cpu_seconds.unwrap() - frozen.cpu_seconds.unwrap() < 0.05, "{later:?} after {frozen:?}");
    bench.suspend("web-1");
    bench.resume("web-1");
    // Not its state's detail: on a slow machine it may have missed a health check by now.
    bench.said(0, "woken from suspended in ");
    assert_eq!(request.join().unwrap(), Some(web.pid.unwrap().to_string()));
    // One that is asleep can be stopped.
    bench.suspend("web-1");
    bench.stop("web-1");
    assert!(!is_alive(web.pid.unwrap()));
}

pub fn a_repeated_start_changes_nothing_but_what_needs_no_new_process(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    let first = bench.start_ready(&spec);
    spec.stop_timeout_s = 3.5;
    assert_eq!(bench.start(&spec), None);
    let again = bench.instance("web-1").unwrap();
    assert_eq!((again.pid, again.spec.stop_timeout_s), (first.pid, 3.5));
    spec.revision = "other".into();
    assert_eq!(bench.start(&spec), Some(Refusal::OtherRevision { instance: spec.id.clone() }));
    spec.id = InstanceId::from("../../etc");
    let bad = Refusal::BadName { what: "an instance".into(), name: "../../etc".into() };
    assert_eq!(bench.start(&spec), Some(bad));
}

pub fn parking_pages_out_or_says_why_not(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.memory = Bytes::mib(200);
    let web = bench.start_ready(&spec);
    get(web.address, "/hog/60", PATIENCE).unwrap();
    let outcome = bench.apply(node::Command::Sleep { instance: InstanceId::from("web-1"), rung: Rung::Parked });
    let has_swap = fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() > 1;
    let instance = bench.instance("web-1").unwrap();
    if has_swap {
        assert_eq!(outcome.refusal, None);
        assert_eq!(instance.state, InstanceState::Parked);
        assert!(instance.memory_used.unwrap() < Bytes::mib(30), "{instance:?}");
    } else {
        assert!(matches!(outcome.refusal, Some(Refusal::NoSwap { free: Bytes(0), .. })), "{outcome:?}");
        assert_eq!(instance.state, InstanceState::Suspended);
    }
    bench.resume("web-1");
    assert_eq!(get(web.address, "/", PATIENCE), Some(web.pid.unwrap().to_string()));
}

pub fn cpu_limits_hold_where_they_can(bench: &Bench) {
    if bench.kind() == "none" {
        assert!(!bench.observe().capabilities.cpu_limits);
        return;
    }
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.cpu_limit = Some(Cpu(0.2));
    let web = bench.start_ready(&spec);
    let burn = |address| {
        let before = bench.instance("web-1").unwrap().cpu_seconds.unwrap();
        let began = Instant::now();
        get(address, "/spin/1500", PATIENCE).unwrap();
        let used = bench.instance("web-1").unwrap().cpu_seconds.unwrap() - before;
        used / began.elapsed().as_secs_f64()
    };
    let limited = burn(web.address);
    assert!(limited < 0.3, "{limited} CPU with a limit of 0.2");
    let set = node::Command::SetCpu { instance: spec.id.clone(), share: Cpu(1.0), limit: None, memory: None };
    assert_eq!(bench.apply(set).refusal, None);
    let free = burn(web.address);
    // How much more depends on what else runs on this machine.
    assert!(free > limited, "{free} CPU without a limit, {limited} with one");
}

pub fn instances_run_as_their_user(bench: &Bench) {
    let mut spec = bench.spec("web-1", &["serve", "$PORT"]);
    spec.user = Some("nobody-of-that-name".into());
    let detail = "there is no user `nobody-of-that-name` on this machine".into();
    assert_eq!(bench.start(&spec), Some(Refusal::StartFailed { detail }));
    spec.user = Some("nobody".into());
    if !rustix::process::geteuid().is_root() {
        spec.user = Some("root".into());
        assert!(bench.start(&spec).unwrap().to_string().ends_with("the node agent is not root"));
        return;
    }
    let refusal = Refusal::UserNotAllowed { app: "web".into(), user: "nobody".to_owned() };
    assert_eq!(bench.start(&spec), Some(refusal), "no config of root's names that user");
    bench.allow(&[("web", "nobody")]);
    spec.run[1] = "forks".into();
    let web = bench.start_ready(&spec);
    let status = fs::read_to_string(format!("/proc/{}/status", web.pid.unwrap())).unwrap();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().nth(1).unwrap();
    assert_ne!(line("Uid:"), "0");
    assert_ne!(line("Gid:"), "0");
    assert!(!status.lines().any(|line| line.starts_with("Groups:") && line.split_whitespace().any(|group| group == "0")));
    use std::os::unix::fs::MetadataExt;
    assert_eq!(fs::metadata(bench.state().join("data/web")).unwrap().uid().to_string(), line("Uid:"));
    // It is measured, frozen and stopped like any other.
    bench.suspend("web-1");
    bench.resume("web-1");
    bench.stop("web-1");
    assert!(!is_alive(web.pid.unwrap()));
}

pub fn what_left_its_instance_is_ended_by_its_user(bench: &Bench) {
    if !rustix::process::geteuid().is_root() {
        weal_testing::skip("only a root agent gives applications users of their own");
        return;
    }
    let web = bench.start_ready(&bench.spec("web-1", &["hides", "$PORT"])).pid.unwrap();
    // With both gone, plain processes cannot tell whose child it was.
    let (shim, children) = (shim_of(bench, "web-1"), weal_host::Proc::system().children(web));
    [shim, web].into_iter().for_each(kill);
    wait_for("another process", || bench.instance("web-1")?.pid.filter(|pid| *pid != web));
    bench.stop("web-1");
    bench.end_agent();
    let strays = weal_node::end_strays(bench.state()).unwrap();
    assert_eq!(strays.left, []);
    let expected = if bench.kind() == "none" { 1..=2 } else { 0..=0 };
    assert!(expected.contains(&strays.ended.len()), "{strays:?}");
    assert!(!children.is_empty() && children.iter().all(|pid| !is_alive(*pid)), "{children:?}");
}

pub fn the_agent_comes_before_instances_and_leaves_no_group(bench: &Bench) {
    let has_groups = bench.kind() != "none";
    // Its path in the hierarchy that divides CPU, if it is one of weal's own.
    let own = |pid: u32| {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        groups
            .lines()
            .find_map(|line| Some(line.splitn(3, ':').nth(2)?.strip_suffix("/.roles")?.trim_start_matches('/').to_owned()))
    };
    let web = bench.start_ready(&bench.spec("web-1", &["serve", "$PORT"])).pid.unwrap();
    let pool = own(bench.agent_pid());
    assert_eq!((pool.is_some(), own(web)), (has_groups, None));
    // Another process of the agent's program, as the gateway is, and one of another, which nobody may put there.
    let run = |command: &mut Command| command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut role = run(Command::new(fixture()).args(["serve", "0"]));
    let mut other = run(Command::new("sh").args(["-c", "read line"]));
    assert_eq!(bench.prefer(&[role.id()]), None);
    assert_eq!(own(role.id()), pool);
    let refused = bench.prefer(&[other.id()]).unwrap();
    assert!(refused.contains(&format!("process {} is none of weal's", other.id())), "{refused}");
    assert_eq!(own(other.id()), None);
    for child in [&mut role, &mut other] {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    bench.stop("web-1");
    bench.end_agent();
    let bases = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten().map(|entry| entry.path());
    let bases: Vec<_> = bases.chain(["/sys/fs/cgroup".into()]).collect();
    let left: Vec<_> =
        pool.iter().flat_map(|pool| bases.iter().map(move |base| base.join(pool))).filter(|group| group.exists()).collect();
    assert!(left.is_empty(), "{left:?}");
}
