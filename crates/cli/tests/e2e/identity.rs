//! Who may do what in a pool that root started: other local users, hosted applications, and roles that somebody has taken over.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use weal_host::Proc;

use crate::load::get;
use crate::pool::{Pool, example_program, text};

pub const NOBODY: u32 = 65_534;

/// True when these tests can run: they make processes of other users.
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        weal_testing::skip("only root starts pools whose roles and applications have users of their own");
    }
    is_root
}

/// An application that tells what it is given and tries what it may not, with `more` lines.
pub fn attacker_app(name: &str, more: &str) -> String {
    let program = example_program("attacker");
    format!(
        "[app.{name}]\nrun = [\"{}\", \"serve\", \"$PORT\"]\nhealth = \"/healthz\"\nmemory = \"64MiB\"\n\
         instances = {{ min = 1, max = 1 }}\nroutes = [{{ host = \"{name}.localhost\" }}]\n{more}\n",
        program.display()
    )
}

/// What a process of user `uid` is told when it calls `method` at `socket`: the status and the answer.
fn call_as(uid: u32, socket: &Path, method: &str, body: &Value) -> (String, Value) {
    let mut command = Command::new(example_program("attacker"));
    command.arg("call").arg(socket).args([method, &body.to_string()]).uid(uid).gid(uid).current_dir("/");
    let said = text(&command.output().unwrap().stdout);
    let (status, answer) = said.trim().split_once(' ').unwrap();
    (status.to_owned(), serde_json::from_str(answer).unwrap_or_else(|_| json!(answer)))
}

/// The users that a process runs as, if it is only one.
pub fn uid_of(pid: i32) -> u32 {
    let ids = Proc::system().users(pid.cast_unsigned());
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    ids[0]
}

/// Whether there is a process of this number that runs as no other user than `uid`.
fn runs_as(pid: i64, uid: u32) -> bool {
    let ids = Proc::system().users(u32::try_from(pid).unwrap());
    !ids.is_empty() && ids.iter().all(|id| *id == uid)
}

/// The words behind a name at the beginning of a line.
pub fn values(status: &str, name: &str) -> Vec<String> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().map(str::to_owned).collect()
}

/// Takes the file modes away that keep others from the sockets, so that only the kernel's word on the caller is left.
fn open_walls(pool: &Pool) {
    let run = pool.state().join("run");
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    open(&run, 0o755);
    for entry in std::fs::read_dir(&run).unwrap() {
        open(&entry.unwrap().path(), 0o666);
    }
}

fn start_as_root() -> Value {
    json!([{ "command": "start", "spec": {
        "id": "evil-1", "app": "evil", "node": "local", "run": ["/bin/sh", "-c", "id"], "env": {}, "cwd": "/", "user": "root",
        "memory": 1_000_000, "cpu_limit": null, "health": { "probe": { "kind": "tcp" }, "interval_s": 1.0, "timeout_s": 1.0,
        "start_timeout_s": 1.0, "failures": 1 }, "restart": "never", "stop_timeout_s": 1.0, "revision": "x" } }])
}

#[test]
fn each_role_and_each_application_has_a_user_of_its_own() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&(attacker_app("one", "") + &attacker_app("two", "")));
    pool.up();
    let roles = ["node", "gateway", "controller"].map(|role| uid_of(pool.pid(role)));
    let apps: Vec<u32> = pool.instance_pids().into_iter().map(|pid| uid_of(i32::try_from(pid).unwrap())).collect();
    let mut all = [&roles[..], &apps[..]].concat();
    assert_eq!((roles[0], apps.len()), (0, 2));
    assert!(!all.contains(&NOBODY), "{all:?}");
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 5, "no two share a user: {all:?}");
    for role in ["gateway", "controller"] {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pool.pid(role))).unwrap();
        assert_eq!(values(&status, "CapEff:"), ["0000000000000000"], "the {role} has no capabilities");
        assert_eq!(values(&status, "Groups:"), Vec::<String>::new(), "the {role} has no other groups");
    }
}

#[test]
fn a_gateway_that_was_taken_over_names_no_role_but_its_own() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", ""));
    pool.up();
    let pids = ["node", "controller"].map(|role| pool.pid(role));
    let gateway = uid_of(pool.pid("gateway"));
    // A shell takes the first word for a script, so that its command line is that of a role.
    let folder = pool.config().with_file_name("forged");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("role"), "sleep 1000\n").unwrap();
    for path in [folder.clone(), folder.join("role")] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let state = pool.state();
    let forged = [("node", ["--rpc-fd", "0", "--wake-fd", "1"]), ("controller", ["--api-fd", "0", "--local-fd", "1"])];
    let mut forged = forged.map(|(role, sockets)| {
        let mut command = Command::new("/bin/sh");
        command.arg0("weal").args(["role", role, "--state"]).arg(&state).args(sockets).args(["--lock-fd", "2"]);
        command.uid(gateway).gid(gateway).current_dir(&folder).spawn().unwrap()
    });
    pool.kill_supervisor();
    pool.start();
    let said = pool.eventually("the next supervisor goes on", || Some(pool.printed()).filter(|said| said.contains("dashboard")));
    let lives = forged.each_mut().map(|process| process.try_wait().unwrap().is_none());
    for mut process in forged {
        process.kill().unwrap();
        process.wait().unwrap();
    }
    for (role, pid) in ["node", "controller"].into_iter().zip(pids) {
        assert!(said.contains(&format!("took over the {role} (pid {pid})")), "{said}");
    }
    assert_eq!(lives, [true, true], "what is no role is not ended as one");
    assert_eq!(get(pool.listen, "one.localhost", "/healthz").unwrap().0, 200);
}

#[test]
fn a_stranger_and_a_hosted_application_can_call_nothing() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", ""));
    pool.up();
    let app = uid_of(i32::try_from(pool.instance_pids()[0]).unwrap());
    let (node, wake, gateway, local) =
        (pool.socket("node"), pool.socket("wake"), pool.socket("gateway"), pool.socket("controller"));
    let wake_one = json!({ "app": "one", "wait_s": 1.0 });
    for uid in [NOBODY, app] {
        let (status, why) = call_as(uid, &node, "node.v2/apply", &start_as_root());
        assert_eq!(status, "error", "the file's mode is the first wall: {why}");
    }
    open_walls(&pool);
    for uid in [NOBODY, app] {
        for (socket, method, body) in [
            (&node, "node.v2/apply", start_as_root()),
            (&node, "node.v2/observe", Value::Null),
            (&node, "node.v1/logs", json!({ "instance": "one-1", "cursor": null, "tail_lines": 9, "wait_s": 0.0 })),
            (&node, "node.v1/prefer", json!([1])),
            (&wake, "node.v1/wake", wake_one.clone()),
            (&gateway, "gateway.v1/observe", Value::Null),
        ] {
            let (status, answer) = call_as(uid, socket, method, &body);
            let refusal = json!({ "refusal": "caller-not-allowed", "uid": uid, "method": method });
            assert_eq!((status.as_str(), &answer["refusal"]), ("403", &refusal), "{uid} called {method}: {answer}");
        }
        assert_eq!(call_as(uid, &local, "v1/apps/one/wake", &Value::Null).0, "403");
    }
}

#[test]
fn a_gateway_that_was_taken_over_can_wake_and_nothing_else() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", ""));
    pool.up();
    let gateway = uid_of(pool.pid("gateway"));
    let wake = call_as(gateway, &pool.socket("wake"), "node.v1/wake", &json!({ "app": "none", "wait_s": 1.0 }));
    assert_eq!((wake.0.as_str(), &wake.1["refusal"]["refusal"]), ("404", &json!("nobody-to-wake")));
    let beside = call_as(gateway, &pool.socket("wake"), "node.v2/apply", &start_as_root());
    assert_eq!(beside.1["refusal"]["refusal"], "unknown-method");
    assert_eq!(call_as(gateway, &pool.socket("node"), "node.v2/observe", &Value::Null).0, "error");
    open_walls(&pool);
    for (socket, method) in [("node", "node.v2/apply"), ("node", "node.v2/observe"), ("node", "node.v1/configure")] {
        let (status, answer) = call_as(gateway, &pool.socket(socket), method, &Value::Null);
        assert_eq!((status.as_str(), &answer["refusal"]["uid"]), ("403", &json!(gateway)), "{method}");
    }
    assert_eq!(call_as(gateway, &pool.socket("controller"), "v1/apps/one/wake", &Value::Null).0, "403");
}

#[test]
fn the_agent_gives_up_what_changes_the_machine() {
    if !is_root() {
        return;
    }
    // SYS_MODULE, SYS_RAWIO, SYS_BOOT and SYS_TIME of linux/capability.h.
    const GIVEN_UP: u64 = 1 << 16 | 1 << 17 | 1 << 22 | 1 << 25;
    let mut pool = Pool::new(&attacker_app("mighty", "user = \"root\""));
    pool.up();
    let app = i32::try_from(pool.instance_of("mighty").unwrap()).unwrap();
    for pid in [pool.pid("node"), app] {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        assert_eq!(values(&status, "NoNewPrivs:"), ["1"], "{status}");
        for set in ["CapBnd:", "CapPrm:", "CapEff:"] {
            let held = u64::from_str_radix(&values(&status, set)[0], 16).unwrap();
            assert_eq!(held & GIVEN_UP, 0, "{set} {held:x}");
        }
    }
}

#[test]
fn no_other_process_of_a_roles_user_looks_into_the_role() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", ""));
    pool.up();
    for role in ["gateway", "controller"] {
        let (pid, uid) = (pool.pid(role), uid_of(pool.pid(role)));
        for file in ["environ", "maps", "fd", "mem"] {
            let mut command = Command::new(example_program("attacker"));
            command.args(["read", &format!("/proc/{pid}/{file}")]).uid(uid).gid(uid).current_dir("/");
            let said = text(&command.output().unwrap().stdout);
            assert!(said.starts_with("error Permission denied"), "{role} {file}: {said}");
        }
    }
}

#[test]
fn down_leaves_no_process_of_an_applications_user() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", "sandbox = \"off\""));
    pool.up();
    let uid = uid_of(i32::try_from(pool.instance_pids()[0]).unwrap());
    let answer = get(pool.listen, "one.localhost", "/detach").unwrap().1;
    let hidden: i32 = answer.lines().last().unwrap().trim().parse().unwrap();
    assert_eq!(uid_of(hidden), uid);
    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    pool.wait_end();
    assert!(!crate::pool::is_alive(i64::from(hidden)), "{}", pool.printed());
}

#[test]
fn a_state_folder_is_made_so_that_roles_pass_through_what_is_above_it() {
    if !is_root() {
        return;
    }
    let pool = Pool::new(&attacker_app("one", ""));
    let state = pool.state().join("new/deeper");
    let weal = |words: &[&str]| pool.command(words).env("WEAL_STATE", &state).output().unwrap();
    let up = weal(&["up", "-d"]);
    assert!(up.status.success(), "{}{}", text(&up.stdout), text(&up.stderr));
    let mode = |path: &str| std::fs::metadata(state.join(path)).unwrap().mode() & 0o7777;
    assert_eq!((mode(""), mode(".."), mode("logs"), mode("controller"), mode("data/one")), (0o711, 0o711, 0o700, 0o700, 0o700));
    assert_eq!(mode("controller/store.db") & 0o077, 0, "others read nothing of it");
    assert!(weal(&["down"]).status.success());
}

#[test]
fn a_controller_that_was_taken_over_starts_programs_as_applications_users_only() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&(attacker_app("one", "") + &attacker_app("admin", "user = \"root\"")));
    pool.up();
    assert!(pool.printed().contains("admin runs as root"), "{}", pool.printed());
    let controller = uid_of(pool.pid("controller"));
    let refusal_of = |change: &dyn Fn(&mut Value)| {
        let mut order = start_as_root();
        change(&mut order[0]["spec"]);
        let (status, answer) = call_as(controller, &pool.socket("node"), "node.v2/apply", &order);
        assert_eq!(status, "200", "{answer}");
        answer[0]["refusal"]["refusal"].clone()
    };
    assert_eq!(refusal_of(&|_| {}), "user-not-allowed");
    assert_eq!(refusal_of(&|spec| spec["app"] = json!("one")), "user-not-allowed");
    assert_eq!(refusal_of(&|spec| spec["app"] = json!("admin")), "other-program-as-root");
    assert_eq!(refusal_of(&|spec| spec["user"] = json!("nobody")), "user-not-allowed");
    let (status, _) = call_as(controller, &pool.socket("node"), "node.v1/prefer", &json!([1]));
    assert_ne!(status, "200", "only root moves processes");
    open_walls(&pool);
    assert_eq!(call_as(controller, &pool.socket("node"), "node.v1/prefer", &json!([1])).0, "403");
    assert_eq!(call_as(controller, &pool.socket("controller"), "v1/apps/one/wake", &Value::Null).0, "403");
    assert_eq!(call_as(controller, &pool.socket("wake"), "node.v1/wake", &json!({ "app": "one", "wait_s": 1.0 })).0, "403");
}

#[test]
fn a_controller_that_was_taken_over_brings_no_command_beside_an_instance_that_runs() {
    if !is_root() {
        return;
    }
    let keeper = attacker_app("keeper", "secrets = { KEY = \"file:key.txt\" }");
    let mut pool = Pool::new("");
    std::fs::write(pool.config().with_file_name("key.txt"), "hunter2").unwrap();
    pool.write(&(attacker_app("admin", "user = \"root\"") + &attacker_app("named", "user = \"daemon\"") + &keeper));
    pool.up();
    let (controller, node) = (uid_of(pool.pid("controller")), pool.socket("node"));
    let seen = call_as(controller, &node, "node.v2/observe", &Value::Null).1;
    let proof = pool.state().join("proof");
    let command = json!({ "kind": "command", "argv": ["/bin/sh", "-c", format!("env > {}", proof.display())] });
    let refusal_of = |app: &str, change: &dyn Fn(&mut Value)| {
        let instances = seen["instances"].as_array().unwrap();
        let mut spec = instances.iter().find(|instance| instance["spec"]["app"] == app).unwrap()["spec"].clone();
        spec["health"]["interval_s"] = json!(0.1);
        change(&mut spec);
        let (status, answer) = call_as(controller, &node, "node.v2/apply", &json!([{ "command": "start", "spec": spec }]));
        assert_eq!(status, "200", "{answer}");
        answer[0]["refusal"]["refusal"].clone()
    };
    let evil = |spec: &mut Value| spec["health"]["probe"] = command.clone();
    let hook = |spec: &mut Value| spec["on_resume"] = command["argv"].clone();
    let job = json!({ "job": "x-1", "attempt": 1, "checkpoint": command["argv"] });
    let without = |spec: &mut Value, key: &str| drop(spec.as_object_mut().unwrap().remove(key));
    for app in ["admin", "named", "keeper"] {
        // The order is checked as what it says it is, so it says that it is nothing special.
        let disguise = |spec: &mut Value| {
            evil(spec);
            spec["user"] = Value::Null;
            ["sandbox", "process"].into_iter().for_each(|key| without(spec, key));
        };
        assert!(["other-revision", "folder-not-allowed"].map(Value::from).contains(&refusal_of(app, &disguise)), "{app}");
    }
    let other_name = |spec: &mut Value| {
        evil(spec);
        (spec["app"], spec["user"]) = (json!("free"), Value::Null);
        ["sandbox", "process"].into_iter().for_each(|key| without(spec, key));
    };
    for app in ["admin", "named", "keeper"] {
        assert_eq!(refusal_of(app, &other_name), "other-revision", "{app}");
    }
    for (app, refusal) in [("admin", "other-program-as-root"), ("keeper", "process-not-allowed")] {
        assert_eq!(refusal_of(app, &evil), refusal);
        assert_eq!(refusal_of(app, &hook), refusal);
        let new_job = |spec: &mut Value| (spec["id"], spec["job"]) = (json!("job.x-1.1"), job.clone());
        assert_eq!(refusal_of(app, &new_job), refusal, "what saves a job's state is a command too");
        let in_its_folder = |spec: &mut Value| {
            (spec["id"], spec["user"], spec["run"]) = (json!(format!("{app}-9")), Value::Null, command["argv"].clone());
            ["sandbox", "process"].into_iter().for_each(|key| without(spec, key));
        };
        assert_eq!(refusal_of(app, &in_its_folder), "folder-not-allowed");
        let as_its_step = |spec: &mut Value| {
            in_its_folder(spec);
            (spec["app"], spec["step_of"]) = (json!("free"), json!(app));
        };
        assert_eq!(refusal_of(app, &as_its_step), "folder-not-allowed");
    }
    let longer = |spec: &mut Value| spec["stop_timeout_s"] = json!(1.5);
    assert_eq!(refusal_of("admin", &longer), Value::Null, "what is no command is taken over");
    assert!(!proof.exists(), "{}", std::fs::read_to_string(&proof).unwrap());
}

#[test]
fn a_hosted_application_gets_no_right_no_descriptor_and_no_secret_of_the_operator() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", "env = { MODE = \"fast\" }"));
    pool.start_by(&[("SECRET", "of the operator")], true);
    pool.wait_ready();
    let seen = get(pool.listen, "one.localhost", "/self").unwrap().1;
    let uid = values(&seen, "Uid:")[0].clone();
    assert!(values(&seen, "Uid:").iter().chain(&values(&seen, "Gid:")).all(|id| *id == uid && id != "0"), "{seen}");
    assert_eq!(values(&seen, "Groups:"), std::slice::from_ref(&uid));
    assert_eq!(
        (values(&seen, "CapEff:"), values(&seen, "NoNewPrivs:")),
        (vec!["0000000000000000".to_owned()], vec!["1".to_owned()])
    );
    let names = |kind: &str| -> Vec<String> {
        let mut names: Vec<String> =
            seen.lines().filter_map(|line| Some(line.strip_prefix(kind)?.split('\t').next()?.to_owned())).collect();
        names.sort();
        names
    };
    assert_eq!(names("Fd:\t"), ["0", "1", "2"]);
    let expected =
        ["DATA", "HOME", "INSTANCE", "LOGNAME", "MODE", "NODE", "PATH", "PORT", "USER", "WEAL_INSTANCE_DIR", "WEAL_KEEP_AWAKE"];
    let inherited = ["LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME"];
    let given: Vec<String> = names("Env:\t").into_iter().filter(|name| !inherited.contains(&name.as_str())).collect();
    assert_eq!(given, expected);
    let data = pool.state().join("data/one");
    for expected in ["USER\tweal-one".to_owned(), "LOGNAME\tweal-one".to_owned(), format!("HOME\t{}", data.display())] {
        assert!(seen.contains(&format!("Env:\t{expected}\n")), "{expected}: {seen}");
    }
    assert_eq!(std::fs::metadata(&data).unwrap().uid().to_string(), uid);
    for role in ["gateway", "controller", "node"] {
        let process = PathBuf::from(format!("/proc/{}", pool.pid(role)));
        let environment = std::fs::read(process.join("environ")).unwrap();
        assert!(!text(&environment).contains("SECRET"), "the {role} has it");
        let open = std::fs::read_dir(process.join("fd")).unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
        let leaked: Vec<PathBuf> = open.filter(|target| target.ends_with("weal.toml")).collect();
        assert_eq!(leaked, Vec::<PathBuf>::new(), "the {role} has the operator's descriptor");
    }
}

#[test]
fn data_goes_over_to_the_next_user_and_no_link_in_it_leads_out() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", "user = \"nobody\""));
    pool.up();
    let (data, outside) = (pool.state().join("data/one"), pool.config());
    assert_eq!(std::fs::metadata(&data).unwrap().uid(), NOBODY);
    std::fs::write(data.join("file"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, data.join("soft")).unwrap();
    std::fs::hard_link(&outside, data.join("hard")).unwrap();
    for name in ["file", "soft"] {
        std::os::unix::fs::lchown(data.join(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    pool.write(&attacker_app("one", ""));
    let owner = |name: &str| std::fs::symlink_metadata(data.join(name)).unwrap().uid();
    pool.eventually("the data has the application's own user", || (owner("") != NOBODY).then_some(()));
    let uid = owner("");
    pool.eventually("an instance of that user", || {
        // One that is replaced ends meanwhile.
        pool.instance_pids().iter().any(|pid| runs_as(*pid, uid)).then_some(())
    });
    assert_eq!((owner("file"), owner("soft"), owner("hard")), (uid, uid, 0));
    assert_eq!(std::fs::metadata(&outside).unwrap().uid(), 0, "what the links lead to stays root's");
}

#[test]
fn root_takes_no_config_and_no_state_folder_that_others_could_change() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", ""));
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    let refused = |pool: &Pool, part: &str| {
        let up = pool.run(&["up"]);
        let said = text(&up.stderr);
        assert!(!up.status.success() && said.contains(part), "{said}");
    };
    mode(&pool.config(), 0o666);
    refused(&pool, "others than its owner may write to");
    mode(&pool.config(), 0o644);
    chown(pool.config(), Some(NOBODY), None).unwrap();
    refused(&pool, "belongs to user 65534");
    chown(pool.config(), Some(0), None).unwrap();
    std::fs::create_dir(pool.state()).unwrap();
    let (shared, own) = (pool.state().join("shared"), pool.state().join("own"));
    std::fs::create_dir_all(own.join("inner")).unwrap();
    std::fs::create_dir(&shared).unwrap();
    mode(&shared, 0o1777);
    std::os::unix::fs::symlink(&own, shared.join("trap")).unwrap();
    std::os::unix::fs::lchown(shared.join("trap"), Some(NOBODY), None).unwrap();
    for state in ["trap", "trap/inner", "trap/new/state"] {
        let up = pool.command(&["up"]).env("WEAL_STATE", shared.join(state)).output().unwrap();
        let said = text(&up.stderr);
        assert!(!up.status.success() && said.contains("shared/trap is a link that user 65534 made"), "{state}: {said}");
    }
    let left: Vec<_> = std::fs::read_dir(&own).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["inner"], "nothing was made where the link leads");
    std::fs::copy(pool.config(), own.join("weal.toml")).unwrap();
    let up = pool.command(&["up", "--file"]).arg(shared.join("trap/weal.toml")).output().unwrap();
    let said = text(&up.stderr);
    assert!(!up.status.success() && said.contains("shared/trap is a link that user 65534 made"), "{said}");
    std::os::unix::fs::symlink("/etc", pool.state().join("run")).unwrap();
    refused(&pool, "it is a link or a file, not a folder");
    std::fs::remove_file(pool.state().join("run")).unwrap();
    chown(pool.state(), Some(NOBODY), None).unwrap();
    refused(&pool, "belongs to user 65534");
    chown(pool.state(), Some(0), None).unwrap();
    pool.up();
    mode(&pool.config(), 0o666);
    pool.write_in_place(&attacker_app("evil", ""));
    pool.eventually("the changed file is refused", || {
        pool.printed().contains("others than its owner may write to").then_some(())
    });
    let apps: Vec<String> = pool.json(&["config", "show"])["apps"].as_object().unwrap().keys().cloned().collect();
    assert_eq!(apps, ["one"]);
}

#[test]
fn a_pool_that_ran_as_nobody_and_root_goes_over_to_users_of_its_own() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&attacker_app("one", ""));
    pool.up();
    assert!(pool.run(&["down"]).status.success());
    pool.wait_end();
    // As versions before left it.
    let state = pool.state();
    for folder in ["gateway", "controller"] {
        for entry in std::fs::read_dir(state.join(folder)).unwrap() {
            chown(entry.unwrap().path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        chown(state.join(folder), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    std::fs::write(state.join("data/one/kept"), "x").unwrap();
    chown(state.join("data/one"), Some(0), Some(0)).unwrap();
    pool.up();
    for (folder, role) in [("gateway", "gateway"), ("controller", "controller")] {
        let uid = uid_of(pool.pid(role));
        for entry in std::fs::read_dir(state.join(folder)).unwrap() {
            assert_eq!(entry.unwrap().metadata().unwrap().uid(), uid, "{folder}");
        }
    }
    let app = uid_of(i32::try_from(pool.instance_pids()[0]).unwrap());
    assert_eq!(std::fs::metadata(state.join("data/one/kept")).unwrap().uid(), app);
}

#[test]
fn applications_that_run_as_root_are_named_wherever_the_pool_is_shown() {
    if !is_root() {
        return;
    }
    let mut pool = Pool::new(&(attacker_app("admin", "user = \"root\"") + &attacker_app("free", "")));
    pool.up();
    assert!(pool.printed().contains("admin runs as root"), "{}", pool.printed());
    let status = text(&pool.run(&["status"]).stdout);
    assert!(status.contains("admin runs as root") && !status.contains("free runs as root"), "{status}");
    let doctor = text(&pool.run(&["doctor"]).stdout);
    assert!(doctor.contains("admin runs as root") && doctor.contains("free runs as a user of its own"), "{doctor}");
    let exposed = |what: &str| -> f64 {
        let words = doctor.split_once(&format!("{what} exposed ")).unwrap_or_else(|| panic!("{what}: {doctor}")).1;
        words.split_whitespace().next().unwrap().parse().unwrap()
    };
    assert!(exposed("free is") <= 2.5 && exposed("gateway and controller are") <= 1.5 && exposed("admin is") > 2.5, "{doctor}");
}

#[test]
fn a_folder_that_an_application_cannot_pass_is_named() {
    if !is_root() {
        return;
    }
    let pool = Pool::new(&attacker_app("one", "cwd = \"closed/inner\""));
    let closed = pool.config().parent().unwrap().join("closed");
    std::fs::create_dir_all(closed.join("inner")).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o700)).unwrap();
    let up = pool.run(&["up", "-d", "--timeout", "30"]);
    let said = text(&up.stdout) + &text(&up.stderr) + &text(&pool.run(&["events"]).stdout);
    let barrier = format!("user weal-one may not enter {0} (mode 0700): chmod o+x {0}, keep", closed.display());
    assert!(said.contains(&barrier), "{said}");
}
