//! What is written down again when somebody removed the state directory, or a part of it, below a running agent: enough for the next agent to go
//! on with every instance that runs.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use weal_host::Proc;
use weal_host::users::APPLICATION_UIDS;
use weal_model::AppName;

use crate::accounts::numbers::NUMBERS_FILE;
use crate::files::{write_json, write_missing_json};
use crate::instance::{MEMORY_FILE, View};
use crate::shim::{LOGS_FOLDER, PID_FILE, SPEC_FILE, Started};
use crate::site::Site;

/// Writes down what `views` know and what is not there, below `dir`, the agent's own folder. Returns how many instances had no record.
///
/// # Errors
/// A file cannot be written.
pub fn write_down(site: &Site, dir: &Path, views: &[View]) -> io::Result<usize> {
    DirBuilder::new().recursive(true).mode(0o711).create(&site.instances)?;
    write_missing_json(&dir.join(NUMBERS_FILE), &numbers(views))?;
    let has_none = |view: &&View| !site.dir(view.record.spec.id.as_str()).join(SPEC_FILE).exists();
    let lost: Vec<&View> = views.iter().filter(has_none).collect();
    lost.iter().try_for_each(|view| write_instance(site, view))?;
    Ok(lost.len())
}

/// Which application runs under which number of its own.
fn numbers(views: &[View]) -> BTreeMap<AppName, u32> {
    let of = |view: &View| {
        let uid = view.record.launch.user.as_ref()?.uid;
        APPLICATION_UIDS.contains(&uid).then(|| (view.record.spec.app.clone(), uid))
    };
    views.iter().filter_map(of).collect()
}

fn write_instance(site: &Site, view: &View) -> io::Result<()> {
    let dir = site.dir(view.record.spec.id.as_str());
    fs::create_dir_all(dir.join(LOGS_FOLDER))?;
    if let Some(started) = view.pid.and_then(|pid| started(&site.proc, pid)) {
        write_json(&dir.join(PID_FILE), &started)?;
    }
    write_json(&dir.join(MEMORY_FILE), &view.memory)?;
    write_json(&dir.join(SPEC_FILE), &view.record)
}

/// The shim is the parent of what it started; one that was replaced is not, and is replaced once more.
fn started(proc: &Proc, pid: u32) -> Option<Started> {
    let main = proc.stat(pid)?;
    Some(Started { main: main.identity(), shim: proc.identity(main.parent)?, session: main.session })
}
