//! What a shell may write next. The shell asks weal itself at each key, so that it knows the applications, nodes, jobs and instances of the
//! pool that is meant: of the running one, else of the config file. Nothing that goes wrong here may disturb a shell: then there are no names.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, Command, CommandFactory};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use toml::{Table, Value};
use weal_model::Status;

use crate::args::{Cli, PoolArgs};
use crate::client::{Client, block_on};
use crate::output::span;
use crate::state::{DEFAULT_FILE, StateDir};
use crate::terminal;

/// A shell sets it to its own name when it asks.
const VARIABLE: &str = "_WEAL_COMPLETE";
/// Whoever waits longer for a name goes on writing. A controller answers within milliseconds.
const PATIENCE: Duration = Duration::from_millis(500);
/// More names are no help.
const MOST: usize = 1000;
/// A longer config file is not read for its names.
const LONGEST_CONFIG: u64 = 1 << 20;
/// Commands whose `-f` means `--follow`, and not a file.
const FOLLOWING: &str = "logs";

/// Answers a shell that asks what may come next, and ends the process then. Nothing may have been printed before.
pub fn answer() {
    CompleteEnv::with_factory(command).var(VARIABLE).bin("weal").completer("weal").complete();
}

/// The script by which `shell` asks.
///
/// # Errors
/// None, unless a library has lost that shell.
pub fn script(shell: clap_complete::Shell) -> anyhow::Result<String> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let completer = shells.completer(&name).with_context(|| format!("{name} cannot be completed"))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, "weal", "weal", "weal", &mut script)?;
    Ok(String::from_utf8(script)?)
}

/// The command line, with the names that its arguments may have.
fn command() -> Command {
    with_names(Cli::command())
}

fn with_names(command: Command) -> Command {
    command.mut_args(named).mut_subcommands(with_names)
}

/// What an argument is about is told by its name.
fn named(arg: Arg) -> Arg {
    let kind: fn(Names) -> Vec<Name> = match arg.get_id().as_str() {
        "app" => |names| names.apps,
        "node" => |names| names.nodes,
        "job" => |names| names.jobs,
        "instance" => |names| names.instances,
        // `weal load` takes an application or an address.
        "url" => |names| names.apps,
        _ => return arg,
    };
    arg.add(ArgValueCandidates::new(move || kind(names()).into_iter().take(MOST).map(Name::candidate).collect()))
}

/// One name, and what a shell may say about it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    name: String,
    about: Option<String>,
}

impl Name {
    fn new(name: &str, about: impl Into<String>) -> Self {
        Self { name: name.to_owned(), about: Some(about.into()) }
    }

    fn plain(name: &str) -> Self {
        Self { name: name.to_owned(), about: None }
    }

    fn candidate(self) -> CompletionCandidate {
        let about = self.about.map(|about| terminal::visible(&about).into_owned().into());
        CompletionCandidate::new(self.name).help(about)
    }
}

/// What a pool has.
#[derive(Debug, Default, PartialEq, Eq)]
struct Names {
    apps: Vec<Name>,
    nodes: Vec<Name>,
    jobs: Vec<Name>,
    instances: Vec<Name>,
}

impl Names {
    fn of_status(status: &Status) -> Self {
        let app = |app: &weal_model::AppStatus| Name::new(app.name.as_str(), app.state.as_str());
        let node = |node: &weal_model::NodeStatus| Name::new(node.name.as_str(), if node.up { "up" } else { "down" });
        let job = |job: &weal_model::JobStatus| {
            let ago = status.time.since(job.submitted).as_secs();
            Name::new(job.id.as_str(), format!("{}, submitted {} ago", job.state.as_str(), span(ago)))
        };
        let instances = status.apps.iter().flat_map(|app| &app.instances);
        let instance =
            |one: &weal_model::InstanceStatus| Name::new(one.id.as_str(), format!("{} on {}", one.state.as_str(), one.node));
        Self {
            apps: status.apps.iter().map(app).collect(),
            nodes: status.nodes.iter().map(node).collect(),
            jobs: status.jobs.iter().map(job).collect(),
            instances: instances.map(instance).collect(),
        }
    }

    /// Those that a config names, however many mistakes it has elsewhere.
    fn of_config(text: &str) -> Self {
        let Ok(config) = text.parse::<Table>() else { return Self::default() };
        let keys = |table: &str| -> Vec<Name> {
            config
                .get(table)
                .and_then(Value::as_table)
                .map(|table| table.keys().map(|key| Name::plain(key)).collect())
                .unwrap_or_default()
        };
        let nodes = config.get("node").and_then(Value::as_array).into_iter().flatten();
        let nodes = nodes.filter_map(|node| node.get("name")?.as_str()).map(Name::plain).collect();
        Self { apps: keys("app"), nodes, jobs: Vec::new(), instances: Vec::new() }
    }
}

/// The names of the pool that the command line so far is about.
fn names() -> Names {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let target = target(std::env::args_os(), variable);
    running(&target).unwrap_or_else(|| written(&target))
}

fn running(target: &PoolArgs) -> Option<Names> {
    let client = Client::new(&StateDir::find(target).ok()?).with_timeout(PATIENCE);
    let status = block_on(async { Ok(client.status().await?) }).ok()?;
    Some(Names::of_status(&status))
}

fn written(target: &PoolArgs) -> Names {
    let path = target.file.as_deref().unwrap_or(DEFAULT_FILE.as_ref());
    let is_short = std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() <= LONGEST_CONFIG);
    let text = is_short.then(|| std::fs::read_to_string(path).ok()).flatten();
    text.map(|text| Names::of_config(&text)).unwrap_or_default()
}

/// The pool that a command line names, as far as it is written. The words after the first `--` are the command line.
fn target(words: impl Iterator<Item = OsString>, variable: impl Fn(&str) -> Option<OsString>) -> PoolArgs {
    let words: Vec<OsString> = words.skip_while(|word| word != "--").skip(1).take_while(|word| word != "--").collect();
    let follows = words.iter().any(|word| word == FOLLOWING);
    let value = |names: &[&str]| {
        let at = |index: usize| words.get(index + 1).cloned().filter(|value| !value.is_empty());
        let of = |(index, word): (usize, &OsString)| {
            let word = word.to_str()?;
            let joined = |name: &&str| word.strip_prefix(name)?.strip_prefix('=').map(OsString::from);
            names.iter().find_map(joined).or_else(|| names.contains(&word).then(|| at(index)).flatten())
        };
        words.iter().enumerate().rev().find_map(of)
    };
    let file = if follows { value(&["--file"]) } else { value(&["--file", "-f"]) };
    PoolArgs {
        file: file.or_else(|| variable("WEAL_FILE")).map(|path| expanded(&path).into()),
        state: value(&["--state"]).or_else(|| variable("WEAL_STATE")).map(|path| expanded(&path).into()),
    }
}

/// A shell hands words over as they are written: it has not yet put a folder in place of `~`.
fn expanded(path: &OsStr) -> OsString {
    match (path.to_str().and_then(|path| path.strip_prefix("~/")), std::env::var_os("HOME")) {
        (Some(rest), Some(mut home)) => {
            home.push("/");
            home.push(rest);
            home
        }
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> PoolArgs {
        let words = ["weal", "--"].into_iter().chain(line.split(' ')).map(OsString::from);
        target(words, |name| (name == "WEAL_STATE").then(|| OsString::from("/set")))
    }

    #[test]
    fn the_pool_is_the_one_that_the_line_names_so_far() {
        let (a, set) = (Some("a.toml".into()), Some("/set".into()));
        for line in [
            "weal why --file a.toml ",
            "weal why --file=a.toml s",
            "weal status -f b.toml -f a.toml",
            "weal logs --file a.toml -f sh",
        ] {
            let found = of(line);
            assert_eq!((found.file, found.state), (a.clone(), set.clone()), "{line}");
        }
        assert_eq!(of("weal logs -f shop").file, None, "it follows");
        assert_eq!(of("weal exec shop -- prog --file x").file, None, "another program's");
        assert_eq!(of("weal why --state /s sh").state, Some("/s".into()));
        assert_eq!(of("weal why --file").file, None);
    }

    #[test]
    fn a_config_tells_its_names_whatever_else_is_wrong_with_it() {
        let names = Names::of_config(
            "[pool]\nnonsense = 1\n[[node]]\nname = \"n1\"\n[[node]]\ncpu = 1\n[app.shop]\n[app.blog]\nrun = 7\n",
        );
        let plain = |names: &[&str]| names.iter().map(|name| Name::plain(name)).collect::<Vec<_>>();
        assert_eq!((names.apps, names.nodes), (plain(&["blog", "shop"]), plain(&["n1"])));
        for text in ["[pool", "app = 1\nnode = 2", ""] {
            assert_eq!(Names::of_config(text), Names::default(), "{text}");
        }
    }

    /// Every argument that is called so, of every command.
    fn arguments(command: &Command, path: &str, found: &mut Vec<(String, bool)>) {
        for arg in command.get_arguments().filter(|arg| ["app", "node", "job", "instance"].contains(&arg.get_id().as_str())) {
            found.push((format!("{path} {}", arg.get_id()), arg.get::<ArgValueCandidates>().is_some()));
        }
        command.get_subcommands().for_each(|sub| arguments(sub, &format!("{path} {}", sub.get_name()), found));
    }

    #[test]
    fn each_argument_that_is_a_name_is_completed() {
        let mut found = Vec::new();
        arguments(&command(), "weal", &mut found);
        assert!(found.iter().all(|(_, is_completed)| *is_completed), "{found:?}");
        for expected in
            ["weal logs app", "weal why node", "weal job show job", "weal reload instance", "weal scale app", "weal sleep app"]
        {
            assert!(found.iter().any(|(argument, _)| argument == expected), "{expected} in {found:?}");
        }
    }
}
