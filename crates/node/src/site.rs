//! What all instances of one agent share.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use weal_host::Proc;
use weal_model::naming;
use weal_protocol::node::InstanceSpec;

use crate::accounts::Accounts;
use crate::events::Events;
use crate::hash::hash;
use crate::idle::Idle;
use crate::isolation::Isolation;
use crate::logbook::Logbook;
use crate::ports::Ports;

/// What is read ahead when an instance wakes that was paged out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefetch {
    /// Nothing: each page when it is touched.
    Nothing,
    /// What it touched the last times that it woke.
    WorkingSet,
    /// All of it, as al-Qudah does. For comparison.
    Everything,
}

/// What all instances of one agent share.
pub struct Site {
    /// `node/instances` in the state directory.
    pub instances: PathBuf,
    /// `node/runs` in the state directory: runs of jobs that have ended and were taken away.
    pub archive: PathBuf,
    /// What instances wrote.
    pub logbook: Logbook,
    /// `data` in the state directory.
    pub data: PathBuf,
    /// Whom instances run as.
    pub accounts: Accounts,
    /// Images that are unpacked.
    pub images: weal_image::Cache,
    /// The ports of instances.
    pub ports: Mutex<Ports>,
    /// How far instances can be confined here.
    pub confinement: weal_sandbox::ConfinementSupport,
    /// How instances are kept apart.
    pub isolation: Box<dyn Isolation>,
    /// What is read ahead on a wake; `None` decides by the swap device.
    pub prefetch: Option<Prefetch>,
    /// What sleep has cost each application.
    pub costs: crate::costs::Costs,
    /// What happens.
    pub events: Arc<Events>,
    /// Whether cores may sleep.
    pub idle: Arc<Idle>,
    /// The program that is a shim when it gets `shim --dir DIR`.
    pub shim_program: OsString,
    /// `/proc`.
    pub proc: Proc,
}

impl Site {
    /// The folder of an instance.
    pub fn dir(&self, instance: &str) -> PathBuf {
        self.instances.join(instance)
    }

    /// The folder that an instance has for itself: that of its application, or of its job.
    pub fn data_of(&self, spec: &InstanceSpec) -> PathBuf {
        match &spec.job {
            Some(run) => self.data.join(naming::job_folder(&run.job)),
            None => self.data.join(spec.owner().as_str()),
        }
    }
}

/// The name of our control groups: pools on one machine differ by their state directories.
pub fn group_name(state_dir: &Path) -> String {
    format!("weal-{:08x}", hash(state_dir) as u32)
}
