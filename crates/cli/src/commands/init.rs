//! `weal init`: a first `weal.toml` of what lies in a folder.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::json;
use weal_config::init::{Look, Proposal, of_command, propose};

use crate::args::begin::Init;
use crate::config_file::load;
use crate::output::{self, Stream, Tone, paint};
use crate::state::absolute_config;

/// A file that says how a program is started is shorter.
const LONGEST_FILE: u64 = 1 << 20;

/// Runs it.
///
/// # Errors
/// There is a file already, or nothing says how to start a program.
pub fn run(order: &Init, json: bool) -> anyhow::Result<()> {
    let path = absolute_config(&order.file)?;
    let folder = path.parent().context("the file is in no folder")?;
    let proposal = made(order, folder)?;
    if !order.print {
        write(&path, &proposal.text, order.force)?;
    }
    if json {
        let written = (!order.print).then_some(&path);
        let Proposal { text, source, notes } = &proposal;
        return output::json(&json!({ "text": text, "source": source, "notes": notes, "written": written }), false);
    }
    output::print(&proposal.text);
    for note in &proposal.notes {
        output::complain(&format!("{} {note}", paint("note:", Tone::Warn, Stream::Err)));
    }
    if !order.print {
        load(&path)?;
        let good = paint("written:", Tone::Good, Stream::Err);
        output::complain(&format!("{good} {}, made of {}; start it with weal up", path.display(), proposal.source));
    }
    Ok(())
}

fn made(order: &Init, folder: &Path) -> anyhow::Result<Proposal> {
    let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    if !order.command.is_empty() {
        return Ok(of_command(&order.command, &name));
    }
    propose(&Folder(folder.to_owned()), &name).with_context(|| format!("cannot make a config in {}", folder.display()))
}

fn write(path: &Path, text: &str, force: bool) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).create(true).truncate(force).create_new(!force).open(path);
    match file {
        Ok(mut file) => file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display())),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            bail!("{} is there already: --force writes over it, --print shows what would be written", path.display())
        }
        Err(error) => Err(error).with_context(|| format!("cannot write {}", path.display())),
    }
}

/// A folder on disk.
struct Folder(PathBuf);

impl Look for Folder {
    fn read(&self, name: &str) -> Option<String> {
        let file = fs::File::open(self.0.join(name)).ok().filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()))?;
        let mut text = String::new();
        file.take(LONGEST_FILE).read_to_string(&mut text).ok()?;
        Some(text)
    }

    fn has(&self, name: &str) -> bool {
        self.0.join(name).is_file()
    }
}
