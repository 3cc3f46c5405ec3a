//! What processes get besides their command: variables of files, secrets, limits; and what is told of none of it.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::load::get;
use crate::pool::{Pool, echo_app, echo_program, text};

const PASSWORD: &str = "s3cr3t-of-the-shop";

/// The environment and one limit of a process.
fn environment(pid: i64) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap().replace('\0', "\n")
}

#[test]
fn secrets_reach_their_application_and_nobody_else() {
    let mut pool = Pool::new("");
    let folder = pool.config().parent().unwrap().to_owned();
    let write = |name: &str, content: &str| {
        std::fs::write(folder.join(name), content).unwrap();
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("db.txt", &format!("{PASSWORD}\n"));
    write(
        "shop.env",
        "# of the shop\nexport MODE=\"fast\"\nTOKEN=token-of-the-shop\nPORT=1\nPATH=/of/the/shop:/usr/bin\nTZ=UTC\n",
    );
    pool.write(&echo_app(
        "shop",
        "env-file = [\"shop.env\", \"-none.env\"]\nenv = { MODE = \"slow\" }\ntime-zone = \"Asia/Tokyo\"\numask = \"027\"\n\
         limits = { stack = \"4MiB\" }\n\
         secrets = { DB_PASSWORD = \"file:db.txt\", GIVEN = \"variable:WEAL_E2E_GIVEN\", \
         KEY_FILE = { from = \"file:db.txt\", as = \"file\" } }",
    ));
    pool.start_by(&[("WEAL_E2E_GIVEN", "given-by-the-operator")], false);
    pool.wait_ready();

    let pid = pool.instance_of("shop").unwrap();
    let environment = environment(pid);
    let has = |line: &str| environment.lines().any(|one| one == line);
    assert!(has(&format!("DB_PASSWORD={PASSWORD}")) && has("GIVEN=given-by-the-operator"));
    assert!(has("TOKEN=token-of-the-shop") && has("MODE=slow") && has("TZ=Asia/Tokyo") && !has("PORT=1"));
    assert!(has("PATH=/of/the/shop:/usr/bin"), "what the shop says wins over what weal has: {environment}");
    let key = environment.lines().find_map(|line| line.strip_prefix("KEY_FILE=")).unwrap();
    assert_eq!(std::fs::read_to_string(key).unwrap(), format!("{PASSWORD}\n"));
    assert_eq!(std::fs::metadata(key).unwrap().permissions().mode() & 0o777, 0o400);
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let stack = limits.lines().find(|line| line.starts_with("Max stack size")).unwrap();
    assert!(stack.contains("4194304"), "{stack}");
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("Umask:\t0027"), "{status}");

    let is_told =
        |said: &str| [PASSWORD, "given-by-the-operator", "token-of-the-shop"].iter().any(|secret| said.contains(secret));
    for args in [
        &["config", "show"][..],
        &["config", "show", "--effective"],
        &["config", "show", "-o", "json"],
        &["status", "-o", "json"],
        &["events", "-o", "json"],
        &["why", "shop"],
        &["validate", "-o", "json"],
        &["apply", "--dry-run"],
    ] {
        let output = pool.run(args);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && !is_told(&said), "weal {args:?}: {said}");
    }
    assert!(text(&pool.run(&["config", "show", "--effective"]).stdout).contains("file:"), "where it is may be told");
    for path in ["/v1/status", "/v1/events?limit=1000", "/metrics"] {
        assert!(!is_told(&get(pool.api, "127.0.0.1", path).unwrap().1), "{path}");
    }
    for log in ["supervisor", "controller", "gateway", "node"] {
        let said = std::fs::read_to_string(pool.state().join(format!("logs/{log}.log"))).unwrap_or_default();
        assert!(!is_told(&said), "{log}.log");
    }
    let kept = std::fs::metadata(pool.state().join("secrets.json")).unwrap();
    assert_eq!(kept.permissions().mode() & 0o777, 0o600);
    assert!(!is_told(&std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap()));
    pool.write(&echo_app("shop", ""));
    pool.eventually("a secret that left the config left the disk", || (!std::path::Path::new(key).exists()).then_some(()));
}

#[test]
fn nothing_that_an_application_leaves_in_its_folder_keeps_its_secrets_from_it() {
    let mut pool = Pool::new("");
    std::fs::write(pool.config().with_file_name("db.txt"), PASSWORD).unwrap();
    std::fs::set_permissions(pool.config().with_file_name("db.txt"), std::fs::Permissions::from_mode(0o600)).unwrap();
    pool.write(&echo_app("shop", "secrets = { KEY_FILE = { from = \"file:db.txt\", as = \"file\" } }"));
    pool.up();
    let data = pool.state().join("data/shop");
    for obstacle in ["folder", "file", "link"] {
        for name in [".weal-secrets", "secrets"] {
            let _ = std::fs::remove_dir_all(data.join(name));
            let _ = std::fs::remove_file(data.join(name));
            match obstacle {
                "folder" => std::fs::create_dir_all(data.join(name).join("KEY_FILE/full")).unwrap(),
                "file" => std::fs::write(data.join(name), "").unwrap(),
                _ => std::os::unix::fs::symlink("/etc", data.join(name)).unwrap(),
            }
        }
        let restarted = pool.run(&["restart", "shop"]);
        assert!(restarted.status.success(), "{obstacle}: {}", text(&restarted.stderr));
        let environment = environment(pool.instance_of("shop").unwrap());
        let key = environment.lines().find_map(|line| line.strip_prefix("KEY_FILE=")).unwrap();
        assert_eq!(std::fs::read_to_string(key).unwrap(), PASSWORD, "{obstacle}");
        let folder = std::path::Path::new(key).parent().unwrap();
        let metadata = std::fs::metadata(folder).unwrap();
        assert!(!folder.starts_with(&data) && metadata.uid() == rustix::process::geteuid().as_raw(), "{obstacle}: {key}");
    }
}

/// The state directory lies where nothing is mounted anew for an instance.
#[test]
fn a_secret_that_is_given_as_a_file_is_read_by_its_application_wherever_the_state_directory_lies() {
    if !rustix::process::geteuid().is_root() {
        return weal_testing::skip("only root gives applications users of their own, and makes folders in /var/lib");
    }
    let pool = Pool::new("");
    let folder = tempfile::Builder::new().prefix("weal-e2e-").tempdir_in("/var/lib").unwrap();
    let state = folder.path().join("state");
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(pool.config().with_file_name("key.txt"), PASSWORD).unwrap();
    std::fs::set_permissions(pool.config().with_file_name("key.txt"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let app = |name: &str, more: &str| {
        crate::identity::attacker_app(
            name,
            &format!("secrets = {{ KEY_FILE = {{ from = \"file:key.txt\", as = \"file\" }} }}\n{more}"),
        )
    };
    pool.write(&(app("confined", "") + &app("open", "sandbox = \"off\"") + &app("named", "user = \"daemon\"")));
    let up = pool.command(&["up", "-d"]).env("WEAL_STATE", &state).output().unwrap();
    let said: Vec<(u16, String)> = ["confined", "open", "named"]
        .map(|app| crate::load::get(pool.listen, &format!("{app}.localhost"), "/secret").unwrap_or_default())
        .into();
    let down = pool.command(&["down"]).env("WEAL_STATE", &state).output().unwrap();
    assert!(up.status.success() && down.status.success(), "{}{}", text(&up.stderr), text(&down.stderr));
    assert!(said.iter().all(|(_, answer)| answer.ends_with(&format!("\r\n\r\n{PASSWORD}"))), "{said:?}");
}

#[test]
fn nothing_sets_what_weal_itself_tells_a_process() {
    let pool = Pool::new("");
    let refused = |apps: &str, code: i32, what: &str| {
        pool.write(apps);
        let output = pool.run(&["up"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(what), "{apps}: {said}");
    };
    refused(&echo_app("shop", "env = { LISTEN_FDS = \"1\" }"), 3, "`LISTEN_FDS` is set by weal");
    refused(&echo_app("shop", "secrets = { WEAL_X = \"variable:HOME\" }"), 3, "`WEAL_X` cannot be a secret");
    refused(&echo_app("shop", "secrets = { PATH = \"variable:HOME\" }"), 3, "`PATH` cannot be a secret");
    std::fs::write(pool.config().with_file_name("shop.env"), "LISTEN_PID=1\n").unwrap();
    refused(&echo_app("shop", "env-file = \"shop.env\""), 1, "shop.env sets LISTEN_PID");
}

#[test]
fn a_secret_that_cannot_be_read_starts_nothing_and_is_named() {
    let pool = Pool::new(&echo_app("shop", "secrets = { DB_PASSWORD = \"file:none.txt\" }"));
    let up = pool.run(&["up"]);
    assert_eq!(up.status.code(), Some(1));
    let said = text(&up.stderr);
    assert!(said.contains("[app.shop]") && said.contains("secrets.DB_PASSWORD") && said.contains("none.txt"), "{said}");
    let validate = pool.run(&["validate"]);
    assert!(validate.status.success(), "it may come later");
    assert!(text(&validate.stderr).contains("cannot read"), "{}", text(&validate.stderr));
    pool.write(&echo_app("shop", "secrets = { DB_PASSWORD = \"hunter2\" }"));
    let refused = pool.run(&["validate"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("write where it is, not what it is"), "{}", text(&refused.stderr));
}

#[test]
fn an_application_that_listens_elsewhere_is_told_at_which_port() {
    let [port] = crate::pool::free_ports();
    let program = echo_program();
    let mut pool = Pool::new(&format!(
        "[app.shop]\nrun = [\"{}\", \"--port\", \"{port}\"]\nmemory = \"64MiB\"\nroutes = [{{ host = \"shop.localhost\" }}]\n",
        program.display()
    ));
    pool.start();
    pool.eventually("the port is named", || {
        let status = pool.status()?;
        let detail = status["apps"][0]["detail"].as_str()?;
        detail.contains(&format!("listens on port {port}, and not on $PORT, which is")).then_some(())
    });
}

#[test]
fn the_health_check_asks_for_the_applications_own_host() {
    let script = "import http.server, os\n\
        class Strict(http.server.BaseHTTPRequestHandler):\n\
        \x20   def do_GET(self):\n\
        \x20       self.send_response(200 if self.headers['host'] == 'shop.example' else 400)\n\
        \x20       self.send_header('content-length', '0')\n\
        \x20       self.end_headers()\n\
        http.server.ThreadingHTTPServer(('127.0.0.1', int(os.environ['PORT'])), Strict).serve_forever()\n";
    let app = format!(
        "[app.shop]\nrun = [\"/usr/bin/python3\", \"-c\", '''{script}''']\nhealth = \"/\"\nmemory = \"64MiB\"\n\
         routes = [{{ host = \"*.example\" }}, {{ host = \"shop.example\" }}]\n"
    );
    let mut pool = Pool::new(&app);
    pool.up();
    assert_eq!(get(pool.listen, "shop.example", "/").unwrap().0, 200);
}
