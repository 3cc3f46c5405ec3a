//! What is done to one program.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weal_model::{Permit, SandboxMode, SandboxSpec};

use crate::failure::Failure;
use crate::filter::{Filter, Programs};
use crate::landlock_rules::Landlock;
use crate::mounts::{Mounts, Tmp};
use crate::rights::{ProcessLimits, drop_bounding_set, drop_capabilities, leave_keyring};
use crate::root::OtherRoot;
use crate::support::ConfinementSupport;
use crate::user::SeenAs;

/// What is done to one program, with nothing left to find out. The default does nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPlan {
    /// A file system of its own.
    pub mounts: Option<Mounts>,
    /// Rules for files and signals.
    pub landlock: Option<Landlock>,
    /// Which system calls it may make.
    pub filter: Option<Filter>,
    /// Limits of each of its processes.
    pub limits: Option<ProcessLimits>,
    /// Whether it and all that it runs are without capabilities.
    pub drops_capabilities: bool,
    /// Whether others can read the files that it makes.
    #[serde(default)]
    pub hides_files: bool,
    /// Which user it is in its own eyes, where that is another than in the machine's.
    #[serde(default)]
    pub seen_as: Option<SeenAs>,
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

impl SandboxPlan {
    /// What `spec` asks for on `machine`.
    pub fn new(spec: &SandboxSpec, machine: ConfinementSupport, paths: &Paths) -> Self {
        if spec.mode == SandboxMode::Off {
            return Self::default();
        }
        let write: Vec<PathBuf> = std::iter::once(itself(&paths.data)).chain(spec.write.iter().map(PathBuf::from)).collect();
        let has = |permit| spec.permit.contains(&permit);
        let filter = Filter {
            namespaces: has(Permit::Namespaces),
            debugging: has(Permit::Debugging),
            realtime: has(Permit::Realtime),
            identities: true,
        };
        Self {
            mounts: machine.mounts.then(|| Mounts {
                write: write.clone(),
                tmp: if spec.private_tmp { Tmp::Folder(itself(&paths.tmp)) } else { Tmp::Shared },
                hide: Vec::new(),
                keep: paths.keep.clone(),
                devices: spec.devices.iter().map(PathBuf::from).collect(),
                root: None,
            }),
            landlock: (!machine.mounts && machine.landlock_version > 0).then(|| Landlock {
                write: write.into_iter().chain(shared_folders()).chain(spec.devices.iter().map(PathBuf::from)).collect(),
            }),
            filter: (machine.filter && !has(Permit::SystemCalls)).then_some(filter),
            limits: Some(ProcessLimits { open_files: spec.open_files, core_dumps: spec.core_dumps }),
            drops_capabilities: machine.is_root,
            hides_files: false,
            seen_as: None,
        }
    }

    /// The same with `root` in the place of the machine's files. `None` where the machine cannot do that.
    pub fn with_root(mut self, root: OtherRoot, seen_as: Option<SeenAs>) -> Option<Self> {
        self.mounts.as_mut()?.root = Some(root);
        Some(Self { seen_as, ..self })
    }

    /// Whether it has other files than the machine's.
    pub fn has_own_root(&self) -> bool {
        self.mounts.as_ref().is_some_and(|mounts| mounts.root.is_some())
    }

    /// For a role of weal's own that faces others: it writes its state, and finds homes empty. It changes neither users nor priorities.
    pub fn of_role(machine: ConfinementSupport, state: &Path) -> Self {
        let filter = Filter { namespaces: false, debugging: false, realtime: false, identities: false };
        let hide = ["/home", "/root", "/run/user"].map(PathBuf::from).to_vec();
        Self {
            mounts: machine.mounts.then(|| Mounts {
                write: vec![itself(state)],
                tmp: Tmp::Memory,
                hide,
                keep: Vec::new(),
                devices: Vec::new(),
                root: None,
            }),
            landlock: None,
            filter: machine.filter.then_some(filter),
            // The gateway takes as many connections as it may.
            limits: None,
            drops_capabilities: machine.is_root,
            hides_files: true,
            seen_as: None,
        }
    }

    /// Makes ready what can be before the process is forked that becomes the program.
    ///
    /// # Errors
    /// There is no such filter of system calls.
    pub fn prepare(self) -> Result<Sandbox, Failure> {
        let programs = self
            .filter
            .map(Filter::compile)
            .transpose()
            .map_err(|error| Failure::new("make its filter of system calls".to_owned(), std::io::Error::other(error)))?;
        Ok(Sandbox { plan: self, programs })
    }
}

/// A plan to be carried out, in two parts: the first as root, the second as the program's user.
pub struct Sandbox {
    plan: SandboxPlan,
    programs: Option<Programs>,
}

impl Sandbox {
    /// The first part: namespaces, the bounding set, limits.
    ///
    /// # Errors
    /// Says at which step.
    pub fn enter(&self) -> Result<(), Failure> {
        let plan = &self.plan;
        if *plan != SandboxPlan::default() {
            leave_keyring()?;
        }
        plan.limits.map_or(Ok(()), ProcessLimits::set)?;
        plan.mounts.as_ref().map_or(Ok(()), Mounts::enter)?;
        if plan.drops_capabilities {
            drop_bounding_set()?;
        }
        Ok(())
    }

    /// The second part: capabilities, Landlock, the filter. New privileges must be ruled out before.
    ///
    /// # Errors
    /// Says at which step.
    pub fn confine(&self) -> Result<(), Failure> {
        if self.plan.hides_files {
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        }
        if let Some(seen_as) = self.plan.seen_as {
            // The kernel gives every capability to whoever makes a namespace, within it.
            if seen_as.enter()? && self.plan.drops_capabilities {
                drop_bounding_set()?;
            }
        }
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

/// The place that `path` leads to. Only for what weal itself made: root has seen to it that nobody else's links are on the way, but for those of
/// whoever called `sudo`.
fn itself(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Without a file system of its own, a program has these in common with others.
fn shared_folders() -> impl Iterator<Item = PathBuf> {
    ["/tmp", "/var/tmp", "/dev/shm"].into_iter().map(PathBuf::from).filter(|path| path.exists())
}
