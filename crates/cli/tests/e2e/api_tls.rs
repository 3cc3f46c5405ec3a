//! The API over TLS, asked by curl and openssl.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::pool::{PATIENCE, Pool, echo_app, text};

/// An authority and what it signed, made by openssl.
struct Authority {
    folder: PathBuf,
    name: &'static str,
}

impl Authority {
    fn new(folder: &Path, name: &'static str) -> Self {
        let authority = Self { folder: folder.to_owned(), name };
        authority.openssl(&format!("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"));
        authority
    }

    fn openssl(&self, words: &str) {
        let output = Command::new("openssl").args(words.split(' ')).current_dir(&self.folder).output().unwrap();
        assert!(output.status.success(), "openssl {words}: {}", text(&output.stderr));
    }

    /// `NAME.pem` and `NAME.key`.
    fn sign(&self, name: &str) {
        let Self { folder, name: of } = self;
        std::fs::write(folder.join("ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1").unwrap();
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {of}.pem -CAkey {of}.key -CAcreateserial -days 2 -extfile ext -out {name}.pem"
        ));
        std::fs::set_permissions(folder.join(format!("{name}.key")), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
}

fn write(pool: &Pool) {
    pool.write(&echo_app("echo", ""));
    let config = std::fs::read_to_string(pool.config()).unwrap();
    let tls = "api-tls = { certificate = \"api.pem\", key = \"api.key\", client-ca = \"ours.pem\" }\nflow-cycle";
    pool.write_text(&config.replacen("flow-cycle", tls, 1));
}

/// The status and the body that curl gets, or `None` where there is no TLS with it.
fn curl(pool: &Pool, path: &str, words: &[&str]) -> Option<(String, String)> {
    let url = format!("https://localhost:{}{path}", pool.api);
    let mut command = Command::new("curl");
    command
        .args(["-sS", "--max-time", &PATIENCE.as_secs().to_string(), "--cacert", "ours.pem", "-w", "\n%{http_code}"])
        .args(words)
        .arg(url);
    let output = command.current_dir(pool.config().parent().unwrap()).output().unwrap();
    let said = text(&output.stdout);
    let (body, status) = said.trim_end().rsplit_once('\n').unwrap_or(("", said.trim()));
    output.status.success().then(|| (status.to_owned(), body.to_owned()))
}

#[test]
fn the_api_over_tls_lets_in_who_shows_a_certificate_and_orders_take_a_token() {
    if ["openssl", "curl"].iter().any(|program| Command::new(program).arg("version").output().is_err()) {
        return weal_testing::skip("there is no openssl or no curl");
    }
    let mut pool = Pool::new("");
    let folder = pool.config().parent().unwrap().to_owned();
    let (ours, theirs) = (Authority::new(&folder, "ours"), Authority::new(&folder, "theirs"));
    ["api", "caller"].iter().for_each(|name| ours.sign(name));
    theirs.sign("stranger");
    write(&pool);
    pool.up();
    assert!(pool.printed().contains(&format!("https://127.0.0.1:{}", pool.api)), "{}", pool.printed());

    let caller = ["--cert", "caller.pem", "--key", "caller.key"];
    assert_eq!(curl(&pool, "/v1/status", &[]), None, "without a certificate");
    assert_eq!(
        curl(&pool, "/healthz", &["--cert", "stranger.pem", "--key", "stranger.key"]),
        None,
        "with one of another authority"
    );
    let plain = crate::load::get(pool.api, "127.0.0.1", "/v1/status");
    assert!(plain.is_err() || plain.is_ok_and(|(status, _)| status != 200), "nothing is said without TLS");
    let (status, body) = curl(&pool, "/v1/status", &caller).expect("with one of ours");
    assert!(status == "200" && body.contains("https://"), "{status} {body}");

    let order = |secret: &str| {
        let header = format!("authorization: Bearer {secret}");
        let token: &[&str] = if secret.is_empty() { &[] } else { &["-H", &header] };
        curl(&pool, "/v1/apps/echo/restart", &[&["-X", "POST"], &caller[..], token].concat()).expect("TLS holds").0
    };
    let made = pool.json(&["token", "create", "looker", "--read-only"]);
    let operator = std::fs::read_to_string(pool.state().join("controller/token")).unwrap();
    assert_eq!(order(""), "401", "a certificate gives no orders");
    assert_eq!(order(made["secret"].as_str().unwrap()), "403", "nor does a token that only reads");
    assert!(order(operator.trim()).starts_with('2'), "the operator's token does");

    let before = serial(&pool);
    ours.sign("api");
    pool.eventually("the changed certificate is shown", || (serial(&pool)? != before.clone()?).then_some(()));
    assert_eq!(curl(&pool, "/healthz", &caller).expect("it is taken").0, "200");
}

/// The serial number of the certificate that the API shows; `None` while it shows none.
fn serial(pool: &Pool) -> Option<String> {
    let shake = format!(
        "openssl s_client -connect 127.0.0.1:{} -cert caller.pem -key caller.key </dev/null 2>/dev/null | openssl x509 -noout -serial",
        pool.api
    );
    let output = Command::new("sh").args(["-c", &shake]).current_dir(pool.config().parent().unwrap()).output().unwrap();
    let said = text(&output.stdout);
    said.starts_with("serial=").then_some(said)
}

#[test]
fn an_api_whose_certificate_cannot_be_used_starts_nothing() {
    let pool = Pool::new("");
    write(&pool);
    let refused = |what: &str| {
        let output = pool.run(&["up"]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(1) && said.contains("api-tls in [pool]") && said.contains(what), "{said}");
    };
    refused("api.key");
    let folder = pool.config().parent().unwrap().to_owned();
    for name in ["api.key", "api.pem", "ours.pem"] {
        std::fs::write(folder.join(name), "nothing").unwrap();
        std::fs::set_permissions(folder.join(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    refused("chmod o-rwx");
    std::fs::set_permissions(folder.join("api.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
    refused("cannot be read as PEM");
}

#[test]
fn an_api_beyond_loopback_takes_a_token_for_everything_and_plain_http_only_by_consent() {
    let mut pool = Pool::new("");
    pool.write(&echo_app("echo", ""));
    let config = std::fs::read_to_string(pool.config()).unwrap();
    let open = config.replacen(&format!("api = \"127.0.0.1:{}", pool.api), &format!("api = \"0.0.0.0:{}", pool.api), 1);
    assert_ne!(open, config);
    pool.write_text(&open);
    let refused = pool.run(&["up"]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("unencrypted") && said.contains("api-insecure = true"), "{said}");
    pool.write_text(&open.replacen("flow-cycle", "api-insecure = true\nflow-cycle", 1));
    pool.up();
    let secret = pool.json(&["token", "create", "looker", "--read-only"])["secret"].as_str().unwrap().to_owned();
    for path in ["/v1/status", "/v1/events", "/v1/history", "/v1/config", "/metrics"] {
        let status = |token: &str| ask(&pool, path, token);
        assert_eq!((status(""), status("00")), (401, 401), "{path}");
        assert_eq!(status(&secret), if path == "/v1/config" { 403 } else { 200 }, "{path}");
    }
    assert_eq!(ask(&pool, "/healthz", ""), 200);
}

/// The status that the API answers a caller with `token`.
fn ask(pool: &Pool, path: &str, token: &str) -> u16 {
    use std::io::{Read as _, Write as _};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", pool.api)).unwrap();
    stream.set_read_timeout(Some(*PATIENCE)).unwrap();
    let authorization = if token.is_empty() { String::new() } else { format!("authorization: Bearer {token}\r\n") };
    write!(stream, "GET {path} HTTP/1.1\r\nhost: pool.example\r\n{authorization}connection: close\r\n\r\n").unwrap();
    let mut head = [0; 12];
    stream.read_exact(&mut head).unwrap();
    text(&head[9..]).parse().unwrap()
}
