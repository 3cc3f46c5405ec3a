//! Certificates from an authority: a real one, Pebble, which Let's Encrypt tests clients with.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::pool::{Pool, echo_app, free_ports, go_program, text};
use crate::site::has_curl;

const PEBBLE: &str = "github.com/letsencrypt/pebble/v2/cmd";
const VERSION: &str = "v2.10.1";

/// A program of Pebble's, where it can be had.
fn program(name: &str) -> Option<PathBuf> {
    go_program(&format!("pebble-{VERSION}"), PEBBLE, VERSION, name)
}

/// An authority that runs, with a name server that sends it to this machine.
struct Authority {
    folder: tempfile::TempDir,
    directory: u16,
    programs: Vec<Child>,
}

impl Drop for Authority {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

impl Authority {
    /// It asks hosts at these ports, and its certificates are good for so many seconds. `None` where it cannot be had.
    fn start(http: u16, https: u16, life_s: u64) -> Option<Self> {
        let (pebble, names) = (program("pebble")?, program("pebble-challtestsrv")?);
        let folder = tempfile::tempdir().unwrap();
        let [directory, management, dns, unused] = free_ports();
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let (chain, secret) = (folder.path().join("directory.pem"), folder.path().join("directory.key"));
        std::fs::write(&chain, certificate.pem()).unwrap();
        std::fs::write(&secret, key.serialize_pem()).unwrap();
        let config = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{directory}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": chain,
            "privateKey": secret,
            "httpPort": http,
            "tlsPort": https,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "certificateValidityPeriod": life_s,
            "profiles": { "default": { "description": "short", "validityPeriod": life_s } },
        }});
        let file = folder.path().join("pebble.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let log = || std::fs::OpenOptions::new().create(true).append(true).open(folder.path().join("log")).unwrap();
        let mut command = Command::new(names);
        command.args(["-dnsserver", &format!("127.0.0.1:{dns}"), "-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
        command.args(["-http01", "", "-https01", "", "-tlsalpn01", "", "-doh", ""]);
        command.args(["-management", &format!("127.0.0.1:{unused}")]);
        let names = command.stdin(Stdio::null()).stdout(log()).stderr(log()).spawn().unwrap();
        let mut command = Command::new(pebble);
        command.arg("-config").arg(&file).args(["-dnsserver", &format!("127.0.0.1:{dns}")]);
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "20");
        let pebble = command.stdin(Stdio::null()).stdout(log()).stderr(log()).spawn().unwrap();
        let authority = Self { folder, directory, programs: vec![names, pebble] };
        authority.wait();
        Some(authority)
    }

    /// Until it takes connections: first it makes keys.
    fn wait(&self) {
        for _ in 0..600 {
            if TcpStream::connect(("127.0.0.1", self.directory)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("Pebble does not listen: {}", self.log());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A `[tls.main]` that asks it.
    fn table(&self, challenge: &str, hosts: &str) -> String {
        let (directory, ca) = (self.directory, self.folder.path().join("directory.pem"));
        format!(
            "[tls.main]\nacme = \"https://localhost:{directory}/dir\"\nacme-ca = \"{}\"\nchallenge = \"{challenge}\"\n{hosts}\n\n",
            ca.display()
        )
    }
}

fn write(pool: &Pool, https: u16, table: &str) {
    let (listen, api) = (pool.listen, pool.api);
    let apps = echo_app("echo", "").replace(
        "{ host = \"echo.localhost\" }",
        "{ host = \"shop.example\" }, { host = \"www.example\" }, { host = \"late.example\" }",
    );
    pool.write_text(&format!(
        "[pool]\nlisten = [\"http://127.0.0.1:{listen}\", \"https://127.0.0.1:{https}\"]\napi = \"127.0.0.1:{api}\"\nflow-cycle = \"1s\"\nwatch = true\n\
         https-redirect = true\n\n{table}{apps}"
    ));
}

/// Who gave the certificate that `host` shows, and its serial number; nothing while it shows none.
fn shown(https: u16, host: &str) -> Option<(String, String)> {
    let script = format!(
        "openssl s_client -connect 127.0.0.1:{https} -servername {host} </dev/null 2>/dev/null | openssl x509 -noout -issuer -serial -ext subjectAltName"
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    let printed = text(&output.stdout);
    let serial = printed.lines().find_map(|line| line.strip_prefix("serial="))?.to_owned();
    Some((printed, serial))
}

fn mode(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_authority_gives_a_certificate_for_several_hosts_by_either_challenge() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let mut pool = Pool::new("");
        let [https] = free_ports();
        let Some(authority) = Authority::start(pool.listen, https, 90 * 24 * 3600) else { return };
        write(&pool, https, &authority.table(challenge, "hosts = [\"shop.example\", \"www.example\"]"));
        pool.up();
        let (printed, serial) =
            pool.eventually(&format!("a certificate by {challenge}\n{}", authority.log()), || shown(https, "www.example"));
        assert!(printed.contains("Pebble") && printed.contains("DNS:shop.example"), "{printed}");
        assert!(!authority.log().contains("panic"), "{}", authority.log());
        let folder = pool.state().join("tls");
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
        assert_eq!(
            std::fs::read_dir(&folder)
                .unwrap()
                .filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("acme-"))
                .count(),
            1
        );

        // It stays over a restart, and another host makes another one.
        pool.kill_supervisor();
        pool.start();
        pool.wait_ready();
        assert_eq!(shown(https, "shop.example").unwrap().1, serial, "the same is used again");
        write(&pool, https, &authority.table(challenge, ""));
        let (printed, _) = pool.eventually("a certificate with the third host", || shown(https, "late.example"));
        assert!(printed.contains("DNS:late.example") && printed.contains("DNS:shop.example"), "{printed}");
        if has_curl("SSL") {
            let resolve = format!("late.example:{https}:127.0.0.1");
            let output =
                Command::new("curl").args(["-sk", "--resolve", &resolve, &format!("https://late.example:{https}/")]).output();
            assert!(text(&output.unwrap().stdout).contains("echo-"), "it is used for requests");
        }
    }
}

#[test]
fn a_certificate_is_renewed_before_it_ends_and_no_handshake_fails_meanwhile() {
    let mut pool = Pool::new("");
    let [https] = free_ports();
    let Some(authority) = Authority::start(pool.listen, https, 24) else { return };
    write(&pool, https, &authority.table("http-01", "hosts = [\"shop.example\"]"));
    pool.up();
    let (_, first) = pool.eventually("a certificate", || shown(https, "shop.example"));
    let (_, second) = pool.eventually("another one", || {
        let shown = shown(https, "shop.example").expect("there is always one");
        (shown.1 != first).then_some(shown)
    });
    assert_ne!(first, second);
}

#[test]
fn an_authority_that_says_no_is_quoted_and_asked_less_often() {
    let mut pool = Pool::new("");
    let [https, http] = free_ports();
    // It asks at a port where nobody listens.
    let Some(authority) = Authority::start(http, https, 3600) else { return };
    write(&pool, https, &authority.table("http-01", "hosts = [\"shop.example\"]"));
    pool.up();
    let said = |part: &str| pool.printed().lines().find(|line| line.contains(part)).map(str::to_owned);
    let line = pool.eventually("the refusal", || said("no certificate from localhost"));
    assert!(
        line.contains("could not convince itself that shop.example is yours") && line.contains("trying again in 120 s"),
        "{line}"
    );
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(pool.printed().matches("no certificate from").count(), 1, "it pauses");
    assert_eq!(shown(https, "shop.example"), None, "and no other certificate is shown for it");
    // What is wrong is corrected, and tried at once.
    write(&pool, https, &authority.table("tls-alpn-01", "hosts = [\"shop.example\"]"));
    pool.eventually("a certificate", || shown(https, "shop.example"));
}
