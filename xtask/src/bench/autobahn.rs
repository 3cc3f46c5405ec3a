//! `cargo xtask bench autobahn`: what Autobahn's WebSocket test suite finds at a server, asked at once and through the gateway.
//!
//! A tunnel looks at no frame, so both have to come to the same: what is right of the server stays right, and what is wrong of it is no better.
//! The suite is a program for Python 2.7, and the server is its own. It is installed below `target/tools` when it is not there.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::json;

use super::Arguments;
use super::real::pool::free_address;
use crate::programs::{release, target};
use crate::table::Table;

/// It names the versions of all that it needs.
const SUITE: &str = "autobahntestsuite==25.10.1";
const PYTHON: &str = "python2.7";
/// Packages below one name are found only where Python reads the folder as one of its own.
const ASKS: &str = "import os, site; site.addsitedir(os.environ['SUITE']); from autobahntestsuite.wstest import run; run()";
/// The server refuses a client that names another port than its own, as one does who asks the gateway.
const SERVES: &str = "import os, site; site.addsitedir(os.environ['SUITE']); \
                      from autobahn.websocket.protocol import WebSocketServerFactory as factory; \
                      factory.externalPort = property(lambda self: None, lambda self, port: None); \
                      from autobahntestsuite.wstest import run; run()";

/// Autobahn's words for how a case went, as far as it went right.
const WORDS: [&str; 4] = ["OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED"];
/// As the report calls the two.
const ASKED: [&str; 2] = ["at once", "through the gateway"];

/// Until a program listens.
const PATIENCE: Duration = Duration::from_secs(60);

/// How one case went, and how its connection was closed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Verdict {
    behavior: String,
    behavior_close: String,
}

impl Verdict {
    /// Autobahn takes both `OK` and `NON-STRICT` for right. Where a frame after a good one is wrong, chance decides between them: whether the server has
    /// sent the good one back before it closes.
    fn is_as_good_as(&self, other: &Self) -> bool {
        let rank = |verdict: &Self| if verdict.behavior == WORDS[1] { WORDS[0].to_owned() } else { verdict.behavior.clone() };
        rank(self) == rank(other) && self.behavior_close == other.behavior_close
    }
}

/// By agent and case.
type Report = BTreeMap<String, BTreeMap<String, Verdict>>;

/// Runs it.
pub fn run(arguments: &Arguments) -> Result<Table> {
    let suite = install()?;
    let programs = release(&["--package", "weal-gateway", "--example", "gateway-bench"])?;
    let folder = std::env::temp_dir().join(format!("weal-autobahn-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let report = examine(&suite, &programs, &folder, if arguments.quick { "1.*" } else { "*" });
    std::fs::remove_dir_all(&folder)?;
    judge(&report?)
}

fn install() -> Result<PathBuf> {
    let folder = target().join("tools/autobahn");
    if !folder.join("autobahntestsuite").exists() {
        let found = Command::new(PYTHON).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        let is_there = found.is_ok_and(|status| status.success());
        ensure!(is_there, "Autobahn's test suite needs {PYTHON}, which is not installed (pyenv has it: `pyenv install 2.7.18`)");
        let mut pip = Command::new(PYTHON);
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]).arg(&folder).arg(SUITE);
        ensure!(pip.status()?.success(), "cannot install {SUITE}");
    }
    Ok(std::fs::canonicalize(folder)?)
}

fn wstest(suite: &Path, folder: &Path, script: &str) -> Command {
    let mut command = Command::new(PYTHON);
    command.args(["-c", script]).env("SUITE", suite).current_dir(folder).stdin(Stdio::null());
    command
}

fn examine(suite: &Path, programs: &Path, folder: &Path, cases: &str) -> Result<Report> {
    let (server, gateway) = (free_address()?, free_address()?);
    let _server = Program::start(
        wstest(suite, folder, SERVES).args(["-m", "echoserver", "-w", &format!("ws://{server}")]).stdout(Stdio::null()),
        server,
    )?;
    let mut command = Command::new(programs.join("examples/gateway-bench"));
    let _gateway = Program::start(command.args([&gateway.to_string(), &server.to_string(), "0", "2"]), gateway)?;
    let agents = ASKED.iter().zip([server, gateway]).map(|(agent, at)| json!({ "agent": agent, "url": format!("ws://{at}") }));
    let spec = json!({
        "outdir": folder.join("report"), "servers": agents.collect::<Vec<_>>(), "cases": [cases], "exclude-cases": [],
        "exclude-agent-cases": {}
    });
    std::fs::write(folder.join("spec.json"), serde_json::to_vec(&spec)?)?;
    let asked = wstest(suite, folder, ASKS).args(["-m", "fuzzingclient", "-s", "spec.json"]).stdout(Stdio::null()).status()?;
    ensure!(asked.success(), "the suite's client failed");
    let index = std::fs::read(folder.join("report/index.json")).context("the suite wrote no report")?;
    Ok(serde_json::from_slice(&index)?)
}

fn judge(report: &Report) -> Result<Table> {
    let of = |agent: &str| report.get(agent).with_context(|| format!("the report says nothing of the server asked {agent}"));
    let [at_once, through] = [of(ASKED[0])?, of(ASKED[1])?];
    ensure!(at_once.keys().eq(through.keys()), "the two were not asked the same");
    let columns = ["asked", "cases"].into_iter().chain(WORDS).chain(["others"]);
    let mut table = Table::new("Autobahn's test suite at its own server", &columns.collect::<Vec<_>>());
    let differ = |case: &&String| at_once[*case] != through[*case];
    let different: Vec<&String> = at_once.keys().filter(differ).collect();
    let is_met = at_once.iter().all(|(case, verdict)| verdict.is_as_good_as(&through[case]));
    for (agent, verdicts) in [(ASKED[0], at_once), (ASKED[1], through)] {
        let counts = WORDS.map(|word| verdicts.values().filter(|verdict| verdict.behavior == word).count());
        let others = verdicts.len() - counts.iter().sum::<usize>();
        let numbers = std::iter::once(verdicts.len()).chain(counts).chain([others]).map(|count| count.to_string());
        table.row(std::iter::once(agent.to_owned()).chain(numbers), (agent == ASKED[1]).then_some(is_met));
    }
    let other = |verdicts: &BTreeMap<String, Verdict>| -> BTreeSet<String> {
        verdicts.values().map(|verdict| verdict.behavior.clone()).filter(|word| !WORDS.contains(&word.as_str())).collect()
    };
    table.notes.extend(other(at_once).union(&other(through)).map(|word| format!("Among the others: {word}.")));
    let told = |case: &&String| {
        let [first, second] = [&at_once[*case], &through[*case]];
        let Verdict { behavior, behavior_close } = first;
        format!(
            "Case {case}: {behavior}, closed {behavior_close}; through the gateway {}, closed {}.",
            second.behavior, second.behavior_close
        )
    };
    table.notes.extend(different.iter().map(told));
    table.notes.push(format!("{SUITE}. Target: each case right both times or the same, and each connection closed the same way. `OK` and `NON-STRICT` are right."));
    Ok(table)
}

/// A program that listens, until this is dropped.
struct Program(Child);

impl Program {
    fn start(command: &mut Command, at: SocketAddr) -> Result<Self> {
        let program = Self(command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?);
        let begun = Instant::now();
        while TcpStream::connect(at).is_err() {
            ensure!(begun.elapsed() < PATIENCE, "{:?} does not listen", command.get_program());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(through: &str) -> Report {
        let text = format!(
            r#"{{"at once":{{"1.1.1":{{"behavior":"OK","behaviorClose":"OK","duration":1}},"2.1":{{"behavior":"NON-STRICT","behaviorClose":"OK"}}}},
               "through the gateway":{{{through}}}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn each_case_has_to_go_as_without_the_gateway() {
        let same = r#""1.1.1":{"behavior":"OK","behaviorClose":"OK"},"2.1":{"behavior":"NON-STRICT","behaviorClose":"OK"}"#;
        let table = judge(&report(same)).unwrap();
        assert!(table.all_met() && table.notes.len() == 1, "{:?}", table.notes);
        let worse = judge(&report(&same.replace("NON-STRICT", "FAILED"))).unwrap();
        assert!(!worse.all_met());
        assert_eq!(
            worse.notes[..2],
            ["Among the others: FAILED.", "Case 2.1: NON-STRICT, closed OK; through the gateway FAILED, closed OK."]
        );
        let other_order = judge(&report(&same.replace("NON-STRICT", "OK"))).unwrap();
        assert!(other_order.all_met() && other_order.notes.len() == 2, "{:?}", other_order.notes);
        let closed = same.replacen(r#""behaviorClose":"OK""#, r#""behaviorClose":"UNCLEAN""#, 1);
        assert!(!judge(&report(&closed)).unwrap().all_met());
        assert!(judge(&report(r#""1.1.1":{"behavior":"OK","behaviorClose":"OK"}"#)).is_err(), "a case is missing");
    }
}
