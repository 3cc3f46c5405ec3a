//! What is done to one program.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use weal_model::{Permit, SandboxMode, SandboxSpec};

use crate::failure::Failure;
use crate::filter::{Filter, Programs};
use crate::landlock_rules::Landlock;
use crate::machine::Machine;
use crate::mounts::Mounts;
use crate::rights::{Limits, drop_bounding_set, drop_capabilities, leave_keyring};

/// What is done to one program, with nothing left to find out. The default does nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// A file system of its own.
    pub mounts: Option<Mounts>,
    /// Rules for files and signals.
    pub landlock: Option<Landlock>,
    /// Which system calls it may make.
    pub filter: Option<Filter>,
    /// Limits of each of its processes.
    pub limits: Option<Limits>,
    /// Whether it and all that it runs are without capabilities.
    pub drops_capabilities: bool,
}

/// Where a program lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// What it may write: its data.
    pub data: PathBuf,
    /// A folder for what it keeps in `/tmp`, which its user owns: `tmp` and `var-tmp` in it.
    pub tmp: PathBuf,
    /// Its program and its working directory.
    pub keep: Vec<PathBuf>,
}

impl Plan {
    /// What `spec` asks for on `machine`.
    pub fn new(spec: &SandboxSpec, machine: Machine, paths: &Paths) -> Self {
        if spec.mode == SandboxMode::Off {
            return Self::default();
        }
        let write: Vec<PathBuf> = std::iter::once(paths.data.clone()).chain(spec.write.iter().map(PathBuf::from)).collect();
        let has = |permit| spec.permit.contains(&permit);
        let filter =
            Filter { namespaces: has(Permit::Namespaces), debugging: has(Permit::Debugging), realtime: has(Permit::Realtime) };
        Self {
            mounts: machine.mounts.then(|| Mounts {
                write: write.clone(),
                tmp: spec.private_tmp.then(|| paths.tmp.clone()),
                keep: paths.keep.clone(),
                devices: spec.devices.iter().map(PathBuf::from).collect(),
            }),
            landlock: (!machine.mounts && machine.landlock_version > 0).then(|| Landlock {
                write: write.into_iter().chain(shared_folders()).chain(spec.devices.iter().map(PathBuf::from)).collect(),
            }),
            filter: (machine.filter && !has(Permit::SystemCalls)).then_some(filter),
            limits: Some(Limits { open_files: spec.open_files, core_dumps: spec.core_dumps }),
            drops_capabilities: machine.is_root,
        }
    }

    /// The first part, as root: namespaces, the bounding set, limits. What the second needs is made ready.
    ///
    /// # Errors
    /// Says at which step.
    pub fn enter(&self) -> Result<Confinement<'_>, Failure> {
        let programs = self
            .filter
            .map(Filter::compile)
            .transpose()
            .map_err(|error| Failure::new("make its filter of system calls".to_owned(), std::io::Error::other(error)))?;
        if *self != Self::default() {
            leave_keyring()?;
        }
        self.limits.map_or(Ok(()), Limits::set)?;
        self.mounts.as_ref().map_or(Ok(()), Mounts::enter)?;
        if self.drops_capabilities {
            drop_bounding_set()?;
        }
        Ok(Confinement { plan: self, programs })
    }
}

/// The second part of a plan, to be carried out as the program's user.
pub struct Confinement<'p> {
    plan: &'p Plan,
    programs: Option<Programs>,
}

impl Confinement<'_> {
    /// The second part: capabilities, Landlock, the filter. New privileges must be ruled out before.
    ///
    /// # Errors
    /// Says at which step.
    pub fn confine(&self) -> Result<(), Failure> {
        if self.plan.drops_capabilities {
            drop_capabilities()?;
        }
        if let Some(landlock) = &self.plan.landlock {
            landlock
                .restrict()
                .map_err(|error| Failure::new("set its Landlock rules".to_owned(), std::io::Error::other(error.to_string())))?;
        }
        if let Some(programs) = &self.programs {
            programs.load().map_err(|error| Failure::new("load its filter of system calls".to_owned(), error))?;
        }
        Ok(())
    }
}

/// Without a file system of its own, a program has these in common with others.
fn shared_folders() -> impl Iterator<Item = PathBuf> {
    ["/tmp", "/var/tmp", "/dev/shm"].into_iter().map(PathBuf::from).filter(|path| path.exists())
}
