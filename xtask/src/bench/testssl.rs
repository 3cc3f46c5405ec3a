//! `cargo xtask bench testssl`: what testssl.sh finds at the gateway of `weal up`.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Arguments;
use super::real::pool::Pool;
use crate::programs::release;
use crate::table::Table;

/// What the program is called where Debian packs it, and where its authors do.
const NAMES: [&str; 2] = ["testssl", "testssl.sh"];

const HOST: &str = "shop.localhost";

/// The fields of answers are the application's matter, or its route's: the ones that testssl.sh asks for.
const APP: &str = "[tls.shop]\ncertificate = \"shop.pem\"\nkey = \"shop.key\"\n\n[app.shop]\nrun = [\"SHOP\", \"--port\", \"$PORT\"]\n\
                   health = \"/healthz\"\nmemory = \"64MiB\"\nroutes = [{ response-headers = { set = { \
                   strict-transport-security = \"max-age=31536000\", x-content-type-options = \"nosniff\", x-frame-options = \"DENY\", \
                   content-security-policy = \"default-src 'self'\" } } }]\n";

/// How bad a finding is: its word, and whether there may be one.
const SEVERITIES: [(&str, bool); 8] = [
    ("OK", true),
    ("INFO", true),
    ("WARN", true),
    ("LOW", true),
    ("MEDIUM", false),
    ("HIGH", false),
    ("CRITICAL", false),
    ("FATAL", false),
];

/// One line of what testssl.sh writes down.
#[derive(Deserialize)]
struct Finding {
    id: String,
    severity: String,
    finding: String,
}

/// Runs it.
pub fn run(_: &Arguments) -> Result<Table> {
    let (program, version) = NAMES
        .iter()
        .find_map(|name| Some((*name, version(name)?)))
        .context("testssl.sh is not installed: run `apt-get install testssl.sh`")?;
    let programs = release(&["--package", "weal", "--package", "weal-demo", "--bin", "weal", "--bin", "weal-demo-shop"])?;
    let folder = std::env::temp_dir().join(format!("weal-testssl-{}", std::process::id()));
    let found = examine(program, &programs, &folder);
    std::fs::remove_dir_all(&folder)?;
    let mut table = judge(&found?, &version)?;
    table.notes.push(crate::report::circumstances());
    Ok(table)
}

fn version(name: &str) -> Option<String> {
    // With a word before it, 3.0 does not know this one.
    let output = Command::new(name).arg("--version").stdin(Stdio::null()).output().ok()?;
    Some(format!("testssl.sh {}", read_version(&String::from_utf8_lossy(&output.stdout)).unwrap_or("of an unknown version")))
}

/// The first word that may be one.
fn read_version(text: &str) -> Option<&str> {
    text.split_whitespace().find(|word| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.'))
}

fn examine(program: &str, programs: &Path, folder: &Path) -> Result<Vec<Finding>> {
    let shop = folder.join("shop");
    std::fs::create_dir_all(folder)?;
    std::fs::copy(programs.join("weal-demo-shop"), &shop)?;
    certify(folder)?;
    let (pool, secure) = Pool::start_with_tls(&programs.join("weal"), folder, &APP.replace("SHOP", &shop.display().to_string()))?;
    pool.wait_for_answer("/")?;
    let written = folder.join("findings.json");
    let mut command = Command::new(program);
    command.args(["--quiet", "--color", "0", "--warnings", "batch", "--nodns", "none", "--ip", &secure.ip().to_string()]);
    command.arg("--add-ca").arg(folder.join("authority.pem")).arg("--jsonfile").arg(&written).arg(uri(secure));
    let output = command.stdin(Stdio::null()).output().context("cannot run testssl.sh")?;
    let text = std::fs::read_to_string(&written).with_context(|| String::from_utf8_lossy(&output.stdout).into_owned())?;
    read(&text)
}

fn uri(address: SocketAddr) -> String {
    format!("https://{HOST}:{}/", address.port())
}

/// An authority, and a certificate by it as a public one would give it.
fn certify(folder: &Path) -> Result<()> {
    let more = format!(
        "subjectAltName = DNS:{HOST}\nbasicConstraints = critical, CA:FALSE\nkeyUsage = critical, digitalSignature\nextendedKeyUsage = serverAuth\n\
         crlDistributionPoints = URI:http://authority.invalid/crl\nauthorityInfoAccess = OCSP;URI:http://authority.invalid/ocsp\n"
    );
    std::fs::write(folder.join("more"), more)?;
    let openssl = |words: &str| -> Result<()> {
        let made = Command::new("openssl").args(words.split(' ')).current_dir(folder).output().context("cannot run openssl")?;
        ensure!(made.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&made.stderr).trim());
        Ok(())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -days 400 -subj /CN=authority -keyout authority.key -out authority.pem"))?;
    openssl(&format!("req {key} -subj /CN={HOST} -keyout shop.key -out shop.csr"))?;
    openssl(
        "x509 -req -in shop.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 200 -extfile more -out shop.pem",
    )?;
    std::fs::set_permissions(folder.join("shop.key"), std::fs::Permissions::from_mode(0o600))?;
    Ok(())
}

/// All of a run that came to its end.
fn read(text: &str) -> Result<Vec<Finding>> {
    let findings: Vec<Finding> = serde_json::from_str(text).context("testssl.sh wrote no list of findings")?;
    ensure!(findings.iter().any(|finding| finding.id == "scanTime"), "testssl.sh did not come to its end");
    Ok(findings)
}

fn judge(findings: &[Finding], version: &str) -> Result<Table> {
    let mut table = Table::new("testssl.sh against the gateway of `weal up`", &["severity", "findings"]);
    for (severity, may_be) in SEVERITIES {
        let count = findings.iter().filter(|finding| finding.severity == severity).count();
        table.row([severity.to_owned(), count.to_string()], (!may_be).then_some(count == 0));
    }
    let is_known = |finding: &&Finding| SEVERITIES.iter().any(|(severity, _)| finding.severity == *severity);
    if let Some(unknown) = findings.iter().find(|finding| !is_known(finding)) {
        anyhow::bail!("testssl.sh knows a severity of which nothing is known here: {}", unknown.severity);
    }
    let others = findings.iter().filter(|finding| !["OK", "INFO"].contains(&finding.severity.as_str()));
    table.notes.extend(others.map(|Finding { id, severity, finding }| format!("{severity}, {id}: {finding}")));
    table.notes.push(format!("{version}. Target: nothing above LOW."));
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(findings: &[(&str, &str)]) -> Result<Table> {
        let line = |(id, severity): &(&str, &str)| {
            format!(r#"{{"id":"{id}","ip":"x","port":"1","severity":"{severity}","finding":"why"}}"#)
        };
        let text = format!("[{}]", findings.iter().map(line).collect::<Vec<_>>().join(","));
        judge(&read(&text)?, "testssl.sh 3")
    }

    #[test]
    fn the_version_is_read_as_debian_and_its_authors_print_it() {
        for banner in [
            "\u{1b}[1m\n#####\n    testssl       3.0.8 from \u{1b}[m",
            "#####\n  testssl.sh version 3.0.8 from https://testssl.sh/",
        ] {
            assert_eq!(read_version(banner), Some("3.0.8"));
        }
    }

    #[test]
    fn what_is_worse_than_low_misses_the_target_and_is_named() {
        let table = judged(&[("TLS1_3", "OK"), ("DNS_CAArecord", "LOW"), ("scanTime", "INFO")]).unwrap();
        assert!(table.all_met());
        assert_eq!(table.notes[0], "LOW, DNS_CAArecord: why");
        let table = judged(&[("BREACH", "MEDIUM"), ("scanTime", "INFO")]).unwrap();
        assert!(!table.all_met() && table.notes[0] == "MEDIUM, BREACH: why");
    }

    #[test]
    fn a_run_that_was_cut_short_or_speaks_otherwise_is_an_error() {
        assert!(judged(&[("TLS1_3", "OK")]).is_err());
        assert!(judged(&[("TLS1_3", "GRAVE"), ("scanTime", "INFO")]).is_err());
    }
}
