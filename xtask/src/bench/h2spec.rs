//! `cargo xtask bench h2spec`: h2spec's cases of HTTP/2 and HPACK against the gateway of `weal up`, in the clear and over TLS.
//!
//! h2spec is a program in Go. It is installed below `target/tools` when it is not there; without Go there is nothing to measure.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::Arguments;
use super::real::pool::Pool;
use crate::programs::{release, target};
use crate::table::Table;

/// The newest version that the module proxy has.
const MODULE: &str = "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible";
/// Cases that a correct answer in HTTP/1 fails: what is no preface on a port for both is a request of HTTP/1, and a bad one.
const OF_HTTP2_ALONE: [&str; 1] = ["Sends invalid connection preface"];

/// What cases ask for. An answer that is whole before the offending frames come ends its stream, and nothing is left to be refused: so it
/// takes longer than these. It has a body of some length, which cases of flow control need.
const PATH: &str = "/work?sleep_ms=400&bytes=2000";

const APP: &str = "[tls.test]\nself-signed = true\n\n[app.shop]\nrun = [\"SHOP\", \"--port\", \"$PORT\"]\nhealth = \"/healthz\"\n\
                   memory = \"64MiB\"\nroutes = [{ }]\n";

/// What h2spec printed of one port.
struct Verdict {
    passed: u32,
    skipped: u32,
    total: u32,
    /// Each failed case with what came instead.
    failed: Vec<(String, String)>,
}

/// Runs the cases.
pub fn run(_: &Arguments) -> Result<Table> {
    let h2spec = install()?;
    let programs = release(&["--package", "weal", "--package", "weal-demo", "--bin", "weal", "--bin", "weal-demo-shop"])?;
    let folder = std::env::temp_dir().join(format!("weal-h2spec-{}", std::process::id()));
    let result = measure(&h2spec, &programs, &folder);
    std::fs::remove_dir_all(&folder)?;
    result
}

fn install() -> Result<PathBuf> {
    let folder = target().join("tools");
    let program = folder.join("h2spec");
    if program.exists() {
        return Ok(program);
    }
    let found = Command::new("go")
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    ensure!(found, "h2spec needs Go, which is not installed: run `apt-get install golang-go`");
    std::fs::create_dir_all(&folder)?;
    let folder = std::fs::canonicalize(folder)?;
    let installed = Command::new("go").args(["install", MODULE]).env("GOBIN", &folder).current_dir(&folder).status()?;
    ensure!(installed.success(), "cannot install {MODULE}");
    Ok(program)
}

fn measure(h2spec: &Path, programs: &Path, folder: &Path) -> Result<Table> {
    let shop = folder.join("shop");
    std::fs::create_dir_all(folder)?;
    std::fs::copy(programs.join("weal-demo-shop"), &shop)?;
    let (pool, secure) = Pool::start_with_tls(&programs.join("weal"), folder, &APP.replace("SHOP", &shop.display().to_string()))?;
    pool.wait_for_answer("/")?;
    let mut table = Table::new("h2spec against the gateway of `weal up`", &["port", "passed", "skipped", "failed", "of"]);
    for (name, address, is_secure) in [("http, prior knowledge", pool.listen(), false), ("https, ALPN h2", secure, true)] {
        let verdict = judge(h2spec, address, is_secure)?;
        let is_known = |case: &str| !is_secure && OF_HTTP2_ALONE.iter().any(|known| case.ends_with(known));
        let is_met = verdict.skipped == 0 && verdict.failed.iter().all(|(case, _)| is_known(case));
        let counts = [verdict.passed, verdict.skipped, verdict.total - verdict.passed - verdict.skipped, verdict.total];
        table.row(std::iter::once(name.to_owned()).chain(counts.map(|count| count.to_string())), Some(is_met));
        table.notes.extend(verdict.failed.iter().map(|(case, actual)| {
            let why = if is_known(case) {
                " The port speaks HTTP/1 too, to which this is a malformed request: 400, and closed."
            } else {
                ""
            };
            format!("{name}: {case}: {actual}.{why}")
        }));
    }
    table.notes.push(format!("{MODULE}. Target: all, but for what only a port without HTTP/1 can pass."));
    Ok(table)
}

fn judge(h2spec: &Path, address: SocketAddr, is_secure: bool) -> Result<Verdict> {
    let mut command = Command::new(h2spec);
    command.args(["--host", "localhost", "--port", &address.port().to_string(), "--path", PATH, "--timeout", "5"]);
    if is_secure {
        command.args(["--tls", "--insecure"]);
    }
    let output = command.stdin(Stdio::null()).output().context("cannot run h2spec")?;
    read(&String::from_utf8_lossy(&output.stdout))
}

/// Reads what h2spec prints: failed cases at the end, each with a cross, then the sums.
fn read(printed: &str) -> Result<Verdict> {
    let sums = printed.lines().rev().find(|line| line.contains(" tests, ")).context("h2spec printed no sums")?;
    let count = |word: &str| -> Result<u32> {
        let part =
            sums.split(", ").find_map(|part| part.strip_suffix(word)).with_context(|| format!("no number of{word} in {sums}"))?;
        Ok(part.trim().parse()?)
    };
    let Some((_, failures)) = printed.split_once("Failures:") else {
        let verdict =
            Verdict { passed: count(" passed")?, skipped: count(" skipped")?, total: count(" tests")?, failed: Vec::new() };
        if count(" failed")? > 0 {
            bail!("h2spec names no failures: {sums}");
        }
        return Ok(verdict);
    };
    let mut failed: Vec<(String, String)> = Vec::new();
    for line in failures.lines().map(str::trim) {
        if let Some(case) = line.strip_prefix("\u{d7} ") {
            failed.push((case.split_once(": ").map_or(case, |(_, name)| name).to_owned(), String::new()));
        } else if let (Some(actual), Some((_, last))) = (line.strip_prefix("Actual: "), failed.last_mut()) {
            actual.clone_into(last);
        }
    }
    Ok(Verdict { passed: count(" passed")?, skipped: count(" skipped")?, total: count(" tests")?, failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_cases_and_sums_are_read() {
        let printed = "Hypertext Transfer Protocol\n  \u{2714} 1: fine\n\nFailures: \n\n    3.5. Preface\n      \u{d7} 2: Sends nonsense\n        -> It \
                       MUST.\n           Expected: closed\n             Actual: open\n\nFinished in 0.4 seconds\n145 tests, 143 passed, 1 \
                       skipped, 1 failed\n";
        let verdict = read(printed).unwrap();
        assert_eq!((verdict.total, verdict.passed, verdict.skipped), (145, 143, 1));
        assert_eq!(verdict.failed, [("Sends nonsense".to_owned(), "open".to_owned())]);
        assert!(read("3 tests, 2 passed, 0 skipped, 1 failed\n").is_err(), "a failure without a name");
    }
}
