//! General solvers beside the planner: CP-SAT and HiGHS from PyPI, in a Python environment of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::programs::python_with;

/// Solves an exported problem; beside this file.
const SCRIPT: &str = include_str!("oracle.py");

/// Versions that were tried; a newer one may name its functions otherwise.
const PACKAGES: [&str; 2] = ["ortools==9.15.6755", "highspy==1.15.1"];

#[derive(Clone, Copy)]
pub enum Solver {
    /// Constraint programming, for placements.
    CpSat,
    /// Mixed integer programming, for placements.
    Highs,
    /// Linear programming by HiGHS, for seats.
    Lp,
}

impl Solver {
    fn argument(self) -> &'static str {
        match self {
            Self::CpSat => "cp-sat",
            Self::Highs => "highs",
            Self::Lp => "lp",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::CpSat => "CP-SAT",
            Self::Highs => "HiGHS",
            Self::Lp => "HiGHS, linear program",
        }
    }
}

/// What a solver found.
#[derive(Deserialize)]
pub struct Answer {
    /// Utility of the worst off; `None` when nothing was found.
    pub lowest: Option<f64>,
    bound: Option<f64>,
    status: String,
    ms: f64,
}

impl Answer {
    /// A row of the placement table.
    pub fn row(&self, title: &str, solver: Solver, weal_ms: f64, asked: &str) -> [String; 8] {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.4}"));
        [
            title.to_owned(),
            format!("{}: {}", solver.name(), self.status),
            format!("{:.0}", self.ms),
            format!("{:.0}", self.ms / weal_ms),
            self.lowest.map_or_else(|| "none".to_owned(), |lowest| format!("{lowest:.4}")),
            number(self.bound),
            String::new(),
            asked.to_owned(),
        ]
    }
}

/// The Python environment with the solvers.
pub struct Oracles {
    python: PathBuf,
    script: PathBuf,
}

impl Oracles {
    /// Makes the environment if it is not there; the error says why it cannot be had.
    pub fn prepare(folder: &Path) -> Result<Self> {
        let python = python_with(&folder.join("venv"), &PACKAGES)?;
        let script = folder.join("oracle.py");
        std::fs::write(&script, SCRIPT).with_context(|| format!("cannot write {}", script.display()))?;
        Ok(Self { python, script })
    }

    /// Lets one of them solve the problem in `file`.
    pub fn solve(&self, solver: Solver, file: &Path, seconds: u32) -> Result<Answer> {
        let mut command = Command::new(&self.python);
        let output = command.arg(&self.script).arg(solver.argument()).arg(file).arg(seconds.to_string()).output()?;
        ensure!(output.status.success(), "{}: {}", solver.name(), String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}
