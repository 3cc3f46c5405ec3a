//! Instances of images: made here of the fixture, a shell and the libraries of both.

use std::fs;
use std::path::Path;

use serde_json::json;
use weal_model::{AppSpec, InstanceState, PoolSpec};
use weal_protocol::Refusal;
use weal_protocol::node::InstanceSpec;
use weal_testing::image::EntryType::{self, Char, Link, Regular, Symlink};
use weal_testing::image::{Image, Layer};

use crate::bench::{Bench, PATIENCE, fixture, get, wait_for};

/// The program's user in its own eyes.
const USER: u32 = 4321;

/// A bench on which instances of images can run.
fn bench() -> Option<Bench> {
    if !rustix::process::geteuid().is_root() || !weal_sandbox::ConfinementSupport::probe().mounts {
        weal_testing::skip("images need root outside of a container");
        return None;
    }
    ["cgroup-v2", "cgroup-hybrid", "none"].into_iter().find_map(Bench::new)
}

/// An image whose program is the fixture.
fn image(layers: Vec<Vec<u8>>) -> Image {
    let run = json!({
        "User": "app", "Env": ["PATH=/bin", "MODE=fast"], "Entrypoint": ["fixture", "serve"], "Cmd": ["1"], "WorkingDir": "/srv",
        "StopSignal": "SIGINT", "ExposedPorts": { "80/tcp": {} },
    });
    Image::new(layers, &run)
}

/// A layer with the fixture, a shell, what both are linked with, and a user; `None` where that cannot be told.
fn programs() -> Option<Vec<u8>> {
    let mut layer = Layer::of_programs(&[&fixture(), Path::new("/bin/sh")])?;
    layer.add("bin/fixture", &fs::read(fixture()).unwrap());
    layer.add("etc/passwd", format!("app:x:{USER}:{USER}::/srv:/bin/sh\n").as_bytes());
    layer.add("srv/page", b"of the image");
    Some(layer.done())
}

/// An instance of the image at `path`, which root's config names.
fn spec(bench: &Bench, id: &str, path: &Path) -> InstanceSpec {
    let mut spec = bench.spec(id, &[]);
    (spec.run, spec.cwd) = (vec!["$PORT".to_owned()], String::new());
    spec.process.image = Some(path.display().to_string());
    let app = AppSpec {
        run: spec.run.clone(),
        cwd: spec.cwd.clone(),
        process: spec.process.clone(),
        health: spec.health.clone(),
        env: spec.env.clone(),
        ..AppSpec::example(spec.app.as_str())
    };
    let pool = PoolSpec { apps: [(app.name.clone(), app)].into(), ..PoolSpec::example() };
    weal_node::Permits::of(&pool).write(bench.state()).unwrap();
    spec
}

/// What a shell prints that runs `script` beside an instance.
fn beside(bench: &Bench, id: &str, script: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _inside = runtime.enter();
    let argv = ["sh", "-c", script].map(str::to_owned);
    let mut command = weal_node::command_beside(bench.state(), &"web".into(), &id.into(), &argv).unwrap();
    let output = runtime.block_on(command.output()).unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn roots(bench: &Bench) -> usize {
    fs::read_dir(bench.state().join("node/images/roots")).map_or(0, Iterator::count)
}

#[test]
fn an_image_serves_sleeps_and_wakes_like_any_other_and_is_removed_when_nobody_needs_it() {
    let Some(bench) = bench() else { return };
    let Some(programs) = programs() else { return weal_testing::skip("there is no ldd here") };
    let path = image(vec![programs]).write(&bench.state().join("image.tar"));
    let spec = spec(&bench, "web-1", &path);
    let web = bench.start_ready(&spec);
    assert!(get(web.address, "/", PATIENCE).is_some());
    let second = InstanceSpec { id: "web-2".into(), ..spec.clone() };
    bench.start_ready(&second);
    assert_eq!(roots(&bench), 1, "both have the same files");
    bench.suspend("web-1");
    bench.suspend("web-2");
    bench.wake_one_of("web", &["web-1"]).unwrap();
    assert_eq!(get(web.address, "/", PATIENCE), Some(web.pid.unwrap().to_string()), "the same process goes on");
    bench.kill_agent();
    bench.start_agent();
    assert_eq!(bench.instance("web-1").unwrap().pid, web.pid, "the next agent finds it");
    assert_eq!(roots(&bench), 1);
    ["web-1", "web-2"].into_iter().for_each(|id| bench.stop(id));
    weal_node::Permits::default().write(bench.state()).unwrap();
    bench.kill_agent();
    bench.start_agent();
    wait_for("the image to be removed", || (roots(&bench) == 0).then_some(()));
}

#[test]
fn an_image_cannot_write_its_files_and_sees_none_of_the_machines() {
    let Some(bench) = bench() else { return };
    let Some(programs) = programs() else { return weal_testing::skip("there is no ldd here") };
    let path = image(vec![programs]).write(&bench.state().join("image.tar"));
    let web = bench.start_ready(&spec(&bench, "web-1", &path));
    let script = format!(
        "echo in $PWD, $MODE, $HOME; read -r page < /srv/page || true; echo page $page\n\
         for path in /root /usr/bin/env {0} {1}; do [ -e $path ] && echo sees $path; done\n\
         for path in / /srv /bin /etc; do echo 1 2>/dev/null > $path/file && echo wrote in $path; done\n\
         echo 1 > $DATA/file && echo 1 > /tmp/file && echo wrote its own\n\
         while read -r a b c; do case $a in Uid:|CapEff:|CapBnd:|Seccomp:) echo $a $b;; esac; done < /proc/self/status",
        path.display(),
        bench.state().join("agent.log").display(),
    );
    let said = beside(&bench, "web-1", &script);
    let lines: Vec<&str> = said.lines().collect();
    for line in [
        "in /srv, fast, /srv",
        "page of the image",
        "wrote its own",
        "CapEff: 0000000000000000",
        "CapBnd: 0000000000000000",
        "Seccomp: 2",
    ] {
        assert!(lines.contains(&line), "{line}: {said}");
    }
    assert!(!said.contains("sees ") && !said.contains("wrote in"), "{said}");
    let status = fs::read_to_string(format!("/proc/{}/status", web.pid.unwrap())).unwrap();
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap().split_whitespace().next().unwrap();
    assert!(![USER.to_string(), "0".to_owned()].contains(&uid.to_owned()), "to the machine it is a user of its own: {uid}");
    let seen = fs::read_to_string(format!("/proc/{}/uid_map", web.pid.unwrap())).unwrap();
    let seen: Vec<&str> = seen.split_whitespace().collect();
    let own_eyes = if seen == [USER.to_string().as_str(), uid, "1"] { USER.to_string() } else { uid.to_owned() };
    assert!(lines.contains(&format!("Uid: {own_eyes}").as_str()), "{said}");
    // It is asked to end by the signal of its image, which the fixture does not handle.
    bench.stop("web-1");
}

#[test]
fn an_image_that_was_changed_or_means_harm_is_refused() {
    let Some(bench) = bench() else { return };
    let outside = tempfile::tempdir().unwrap();
    let escape = outside.path().join("mine");
    let attempt = |name: &str, made: Image| {
        let path = made.write(&bench.state().join(name));
        let refusal = bench.start(&spec(&bench, "web-1", &path));
        bench.stop("web-1");
        match refusal {
            Some(Refusal::StartFailed { detail }) => detail,
            other => panic!("{name}: {other:?}"),
        }
    };
    let layer = |entries: &[(&str, EntryType, &str)]| {
        let mut layer = Layer::default();
        entries
            .iter()
            .for_each(|(path, kind, target)| layer.add_entry(path, *kind, target, if target.is_empty() { b"x" } else { b"" }));
        layer.done()
    };
    let mut changed = image(vec![layer(&[("bin/fixture", Regular, "")])]);
    let blob = changed.0.iter_mut().find(|(_, content)| content.ends_with(&[0; 1024])).unwrap();
    blob.1[512] ^= 1;
    let error = attempt("changed.tar", changed);
    assert!(error.contains("was changed or is damaged"), "{error}");
    let up = format!("../../../../../../../../..{}", escape.display());
    for (name, entries, expected) in [
        ("dots.tar", vec![(up.as_str(), Regular, "")], "leads out of the image"),
        (
            "link.tar",
            vec![("out", Symlink, outside.path().to_str().unwrap()), ("out/mine", Regular, "")],
            "leads out of the image",
        ),
        ("hard.tar", vec![("mine", Link, up.as_str())], "leads out of the image"),
        ("device.tar", vec![("dev/mem", Char, "")], "is a device"),
    ] {
        let error = attempt(name, image(vec![layer(&entries)]));
        assert!(error.contains(expected) && error.contains("its layer 1 cannot be unpacked"), "{name}: {error}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "nothing was made outside");
    assert_eq!(roots(&bench), 0);
    let error = attempt("empty.tar", image(vec![layer(&[("bin/other", Regular, "")])]));
    assert_eq!(error, "its image runs as `app`, which its own passwd and group do not know");
    let error = attempt("passwd.tar", image(vec![layer(&[("etc/passwd", Symlink, "/etc/passwd")])]));
    assert!(error.starts_with("its image"), "the machine's own passwd is not read: {error}");
}

#[test]
fn an_image_that_roots_config_does_not_name_is_not_even_read() {
    let Some(bench) = bench() else { return };
    let path = bench.state().join("nothing.tar");
    let named = spec(&bench, "web-1", &path);
    let Some(Refusal::StartFailed { detail }) = bench.start(&named) else { panic!("it does not exist") };
    assert!(detail.contains("No such file"), "{detail}");
    let mut other = named.clone();
    other.id = "web-2".into();
    other.process.image = Some("/etc".to_owned());
    assert_eq!(bench.start(&other), Some(Refusal::ProcessNotAllowed { app: "web".into() }));
    assert!(bench.instance("web-2").is_none_or(|one| one.state != InstanceState::Ready));
}
