//! Runs of jobs that have ended and were taken away: what they wrote, until newer runs take their place.
//!
//! A run that is here has ended, and that is written down in the controller's store. It is never started again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use weal_model::naming;

use crate::files::{at, move_into, size};
use crate::folder::remove_tree;
use crate::shim::{LOGS_FOLDER, Record, SPEC_FILE};
use crate::site::Site;

/// Runs that are kept. Someone who looks after his jobs once a day finds all of them up to one a minute and a half.
const KEPT: usize = 1000;
/// Bytes of output that are kept of all runs together; the newest run is kept whatever it wrote.
const BYTES_KEPT: u64 = 1 << 30;

/// Keeps what the run in `dir` wrote, under the run's name.
pub fn keep(site: &Site, record: &Record, dir: &Path) -> io::Result<()> {
    let to = folder(site, record.spec.id.as_str());
    fs::create_dir_all(&to).map_err(at(&to))?;
    move_into(&dir.join(LOGS_FOLDER), &to.join(LOGS_FOLDER))?;
    move_into(&dir.join(SPEC_FILE), &to.join(SPEC_FILE))?;
    prune(site);
    Ok(())
}

/// Whether a run was taken away.
pub fn has(site: &Site, run: &str) -> bool {
    folder(site, run).exists()
}

/// Where the output of a run is, whether it is still there or was taken away.
pub fn logs_of(site: &Site, run: &str) -> Option<PathBuf> {
    let places = [site.dir(run), folder(site, run)];
    places.into_iter().map(|place| place.join(LOGS_FOLDER)).find(|logs| logs.is_dir())
}

fn folder(site: &Site, run: &str) -> PathBuf {
    site.archive.join(run)
}

/// Drops the oldest runs beyond the bounds, each with its job's folder when no other run of the job is left.
fn prune(site: &Site) {
    let Ok(entries) = fs::read_dir(&site.archive) else { return };
    let dated = |entry: fs::DirEntry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()));
    let mut runs: Vec<(SystemTime, PathBuf)> = entries.flatten().filter_map(dated).collect();
    runs.sort();
    let (mut count, mut bytes) = (0, 0);
    for (_, run) in runs.into_iter().rev() {
        count += 1;
        bytes += size(&run.join(LOGS_FOLDER));
        if count > KEPT || (bytes > BYTES_KEPT && count > 1) {
            drop_run(site, &run);
        }
    }
}

fn drop_run(site: &Site, run: &Path) {
    let record: Option<Record> = crate::files::read_json(&run.join(SPEC_FILE)).ok().flatten();
    if let Err(error) = fs::remove_dir_all(run) {
        tracing::warn!(run = %run.display(), %error, "an old run of a job cannot be dropped");
    }
    let Some(spec) = record.map(|record| record.spec) else { return };
    let Some(job) = spec.job.as_ref().map(|run| naming::job_folder(&run.job) + ".") else { return };
    let others = [&site.archive, &site.instances].into_iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    if !others.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(&job)) {
        let _ = remove_tree(&site.data_of(&spec));
    }
}
