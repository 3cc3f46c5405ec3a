//! `import::procfile`: the format of Heroku and foreman, `name: command` per line.

use super::app::{App, health_command, to_toml};
use super::command::to_argv;
use super::imported::{ImportError, Imported};
use weal_model::naming::is_name;

use crate::parse::as_name;

/// The process that runs once per deploy, before the others.
const RELEASE: &str = "release";

/// Makes a `weal.toml` of a Procfile.
///
/// `web` gets the route `web.localhost` and, like every process, `$PORT`; other processes get no routes and count as healthy
/// while they run. `release` runs once per deploy before all others.
///
/// # Errors
/// A line that is not `name: command`; nothing to run at all.
pub fn procfile(text: &str) -> Result<Imported, ImportError> {
    let mut apps = Vec::new();
    let (mut notes, mut release) = (Vec::new(), None);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = || ImportError::Line { line: index + 1, text: line.to_owned() };
        let (written, command) = line.split_once(':').ok_or_else(wrong)?;
        let (name, command) = (as_name(written.trim()), command.trim());
        // No program can be given a zero byte.
        if !is_name(&name) || command.is_empty() || command.contains('\0') {
            return Err(wrong());
        }
        if name == RELEASE {
            release = Some(to_argv(command, &["PORT"]));
            continue;
        }
        if name != written.trim() {
            notes.push(format!("`{}` is called `{name}` here", written.trim()));
        }
        apps.push(app(name, command, &mut notes));
    }
    if apps.is_empty() {
        return Err(ImportError::Nothing("process"));
    }
    if let Some(argv) = release {
        run_before(&mut apps, argv);
    }
    Ok(Imported { text: to_toml("Procfile", &apps), notes })
}

/// Has `argv` run once per deploy before any of `apps`: as the step of the only one, or as a task that all of them wait for.
fn run_before(apps: &mut Vec<App>, argv: Vec<String>) {
    if let [only] = apps.as_mut_slice() {
        only.release = Some(argv);
        return;
    }
    apps.iter_mut().for_each(|app| app.needs.push(RELEASE.to_owned()));
    apps.insert(0, App { name: RELEASE.to_owned(), run: argv, is_task: true, ..App::default() });
}

fn app(name: String, command: &str, notes: &mut Vec<String>) -> App {
    let run = to_argv(command, &["PORT"]);
    let own_port = assigned_port(command);
    let listens = names_port(command) || own_port.is_some() || name == "web";
    if let Some(port) = &own_port {
        notes.push(format!("`{name}` sets PORT to {port} itself: take that out, because weal gives each instance its own"));
    } else if !listens {
        notes.push(format!("`{name}` does not seem to listen anywhere: it counts as healthy while it runs"));
    } else if !names_port(command) {
        notes.push(format!("`{name}` does not mention $PORT: see that it listens there, it is in its environment"));
    }
    let host = (name == "web").then(|| "web.localhost".to_owned());
    App { name, run, health: (!listens).then(|| health_command(["true"])), host, ..App::default() }
}

/// Whether `$PORT` or `${PORT..}` stands in it: `$PORTAL` and `EXPORT` are something else.
fn names_port(command: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    let mut after = command.split('$').skip(1).map(|after| after.strip_prefix('{').unwrap_or(after));
    after.any(|after| after.strip_prefix("PORT").is_some_and(is_end))
}

/// The port of an assignment `PORT=3000` before the program, in a shell's way or by `env`.
fn assigned_port(command: &str) -> Option<String> {
    let words = shlex::split(command)?;
    let mut before = words.into_iter().skip_while(|word| word == "env" || word == "exec").take_while(|word| word.contains('='));
    before.find_map(|word| word.strip_prefix("PORT=").map(str::to_owned))
}
