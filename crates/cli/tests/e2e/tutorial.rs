//! The tutorial runs as it is written: its files are saved, and its commands are run in their order.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::pool::{free_ports, text};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/tutorial.md");
/// Before a block that is saved as a file.
const SAVE: &str = "<!-- save ";
/// Before a block whose commands fail.
const FAILS: &str = "<!-- fails -->";

/// What a reader does.
#[derive(Debug, PartialEq)]
enum Step {
    Save { name: String, content: String },
    Run { command: String, fails: bool },
}

/// The steps of a page: blocks after a mark are files, lines that begin with `$` are commands.
fn steps(page: &str) -> Vec<Step> {
    let (mut steps, mut saved, mut fails) = (Vec::new(), None, false);
    for line in page.lines() {
        if let Some(name) = line.strip_prefix(SAVE) {
            saved = Some((name.trim_end_matches(" -->").to_owned(), String::new()));
        } else if line == FAILS {
            fails = true;
        } else if let Some((_, content)) = saved.as_mut().filter(|_| line.is_empty() || line.starts_with("    ")) {
            *content += &format!("{}\n", line.strip_prefix("    ").unwrap_or(line));
        } else if let Some(command) = line.strip_prefix("    $ ") {
            steps.push(Step::Run { command: command.to_owned(), fails });
        } else if !line.is_empty() {
            fails = false;
            steps.extend(saved.take().map(|(name, content): (String, String)| Step::Save { name, content: trimmed(&content) }));
        }
    }
    steps
}

/// Without the empty lines around it.
fn trimmed(content: &str) -> String {
    content.trim_matches('\n').to_owned() + "\n"
}

/// Where the tutorial is gone through; its pool ends with it. As root, applications have a `/tmp` of their own, in which nothing of it lies.
struct Desk {
    folder: tempfile::TempDir,
    /// The tutorial's ports, and those that are free here.
    ports: [(&'static str, String); 2],
}

impl Desk {
    fn new() -> Self {
        let above = if rustix::process::geteuid().is_root() { PathBuf::from("/var/lib") } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("weal-e2e-").tempdir_in(above).unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("shop")).unwrap();
        let [listen, api] = free_ports();
        Self { folder, ports: [("8080", listen.to_string()), ("8081", api.to_string())] }
    }

    fn shop(&self) -> PathBuf {
        self.folder.path().join("shop")
    }

    fn with_ports(&self, text: &str) -> String {
        self.ports.iter().fold(text.to_owned(), |text, (written, free)| text.replace(written, free))
    }

    fn run(&self, command: &str) -> Output {
        let own = Path::new(env!("CARGO_BIN_EXE_weal")).parent().unwrap();
        let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(self.with_ports(command)).current_dir(self.shop());
        shell.env("PATH", path).env("WEAL_STATE", self.folder.path().join("state")).env_remove("WEAL_FILE").env("NO_COLOR", "1");
        shell.stdin(Stdio::null()).output().unwrap()
    }

    fn take(&self, step: &Step) {
        match step {
            Step::Save { name, content } => fs::write(self.shop().join(name), self.with_ports(content)).unwrap(),
            Step::Run { command, fails } => {
                let output = self.run(command);
                let said = format!("$ {command}\n{}{}", text(&output.stdout), text(&output.stderr));
                assert_eq!(output.status.success(), !fails, "{said}");
                // Whoever goes through the tutorial sees that something came.
                assert!(!command.starts_with("curl ") || !output.stdout.is_empty(), "{said}");
                println!("{said}");
            }
        }
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        self.run("weal down --timeout 10");
    }
}

#[test]
fn the_tutorial_runs_as_it_is_written() {
    let desk = Desk::new();
    let steps = steps(&fs::read_to_string(PAGE).unwrap());
    assert!(steps.iter().any(|step| matches!(step, Step::Save { name, .. } if name == "weal.toml")), "{steps:?}");
    steps.iter().for_each(|step| desk.take(step));
}

#[test]
fn files_commands_and_failures_of_a_page_are_told_apart() {
    let page = "Save:\n\n<!-- save a.py -->\n\n    one\n\n      two\n\nThen:\n\n    $ weal up -d\n    ready\n\n<!-- fails -->\n\n    $ weal deploy\n\nEnd.\n\n    $ weal down\n";
    let run = |command: &str, fails| Step::Run { command: command.to_owned(), fails };
    let saved = Step::Save { name: "a.py".to_owned(), content: "one\n\n  two\n".to_owned() };
    assert_eq!(steps(page), [saved, run("weal up -d", false), run("weal deploy", true), run("weal down", false)]);
}
