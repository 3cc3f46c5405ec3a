//! The jobs under weal.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use weal_model::{JobPhase, JobStatus};
use weal_scenario::workload::JobArrival;

use super::mix::{SLICE_CPU, SLICE_MEMORY, SLICES};
use super::play::{Queue, stand_in};
use crate::bench::real::pool::Pool;
use crate::programs::json_of;

/// A pool, ended when it is dropped.
pub(super) struct Weal {
    pool: Pool,
    program: PathBuf,
    /// By number.
    names: Vec<String>,
    /// As they were when last looked at.
    jobs: Vec<JobStatus>,
}

impl Weal {
    pub(super) fn start(folder: &Path, program: &Path) -> Result<Self> {
        let node = |n: usize| {
            format!("[[node]]\nname = \"n{n}\"\ncpu = {SLICE_CPU}\nmemory = \"{SLICE_MEMORY}\"\nutilization-limit = 1.0\n")
        };
        let config: String = (1..=SLICES).map(node).collect();
        let pool = Pool::start(program, &folder.join("pool"), &format!("\n{config}"))?;
        Ok(Self { pool, program: program.to_owned(), names: Vec::new(), jobs: Vec::new() })
    }
}

impl Queue for Weal {
    fn submit(&mut self, _: usize, job: &JobArrival) -> Result<()> {
        let (goal, work) = (format!("{}s", job.relative_goal_s), format!("{}s", job.kind.work.0));
        let (cpus, memory) = (job.kind.max_speed.0.to_string(), job.kind.memory.to_string());
        let options = ["--done-by", &goal, "--name", "job", "--memory", &memory, "--cpus", &cpus, "--work", &work];
        let mut command = self.pool.prepared(&["submit", "-o", "json"]);
        let taken: serde_json::Value = json_of(command.args(options).arg("--").args(stand_in(&self.program, job)))?;
        self.names.push(taken["job"]["id"].as_str().context("the answer names no job")?.to_owned());
        Ok(())
    }

    fn look(&mut self) -> Result<(usize, BTreeSet<usize>)> {
        self.jobs = json_of(&mut self.pool.prepared(&["jobs", "--all", "-n", "10000", "-o", "json"]))?;
        if let Some(job) = self.jobs.iter().find(|job| matches!(job.state, JobPhase::Failed | JobPhase::Cancelled)) {
            anyhow::bail!("{} is {}: {}", job.id, job.state.as_str(), job.detail);
        }
        let number = |job: &JobStatus| self.names.iter().position(|name| *name == job.id.as_str());
        let stands_still = |job: &&JobStatus| matches!(job.state, JobPhase::Paused | JobPhase::Suspended | JobPhase::Migrating);
        let open = self.names.len() - self.jobs.iter().filter(|job| job.state == JobPhase::Done).count();
        Ok((open, self.jobs.iter().filter(stands_still).filter_map(number).collect()))
    }

    fn end_s(&self, number: usize) -> Result<f64> {
        let name = &self.names[number];
        let job = self.jobs.iter().find(|job| job.id.as_str() == name.as_str());
        let end = job.and_then(|job| job.expected_end).with_context(|| format!("nothing tells when {name} was done"))?;
        Ok(end.as_secs_f64())
    }
}
