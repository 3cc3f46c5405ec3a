//! The same jobs with real processes: under weal, and under Slurm where it is installed, one after the other on slices of the same size.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::Result;
use tempfile::TempDir;
use weal_scenario::workload::JobArrival;

use super::mix::{JOBS, LOADS, SLICE_CPU, mix};
use super::outcome::Outcome;
use super::play::play;
use super::slurm::{self, Slurm};
use super::under_weal::Weal;
use crate::programs::release;

/// The middle one of the simulated loads: the slices are busy, and there is time for all jobs.
const LOAD: f64 = LOADS[1];
const SEED: u64 = 1;
/// Between two looks at the jobs. A change that is undone sooner is not counted, under none of the policies.
const LOOK: Duration = Duration::from_millis(500);

/// What a policy made of the jobs, and what a reader must know.
pub(super) fn outcomes(quick: bool) -> Result<(Vec<Outcome>, Vec<String>)> {
    let jobs: Vec<JobArrival> = mix(LOAD).stream(SEED, "jobs").take(if quick { 10 } else { JOBS }).collect();
    let weal = release(&["--package", "weal", "--bin", "weal"])?.join("weal");
    let of = |policy, run| Outcome { policy, load: LOAD, runs: vec![run] };
    let mut outcomes = Vec::new();
    let mut notes = vec![format!(
        "Real processes, {} jobs, one seed. Slices have {SLICE_CPU} cores each by the same control groups. Who stands still is looked at twice a second.",
        jobs.len()
    )];
    match slurm::missing() {
        None => {
            for (name, way) in slurm::WAYS {
                let folder = open_folder()?;
                outcomes.push(of(name, play(&mut Slurm::start(folder.path(), &weal, way)?, &jobs, LOOK)?));
            }
            notes.push(slurm::NOTE.to_owned());
        }
        Some(program) => {
            notes.push(format!("Slurm was left out: {program} is not installed (`apt-get install {}`).", slurm::PACKAGES))
        }
    }
    let folder = open_folder()?;
    outcomes.push(of("weal", play(&mut Weal::start(folder.path(), &weal)?, &jobs, LOOK)?));
    Ok((outcomes, notes))
}

/// A folder through which users of jobs get to theirs.
fn open_folder() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}
