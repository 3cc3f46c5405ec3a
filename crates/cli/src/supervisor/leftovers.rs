//! The roles and instances that live without a supervisor of their own: what a killed one left.

use std::io;
use std::time::{Duration, Instant};

use weal_node::Stray;

use crate::found;
use crate::role_name::RoleName;
use crate::state::{RoleRecord, StateDir};

/// A role that is being started when its supervisor dies can be seen within this: it only has to become its program.
const BECOMING: Duration = Duration::from_secs(2);
/// A shim whose instance has ended is gone within this: it only has to write its last lines.
const ENDING: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// The living roles of the pool in `state`, oldest first, when each that holds its lock can be seen.
pub async fn settled(state: &StateDir) -> Vec<RoleRecord> {
    let deadline = Instant::now() + BECOMING;
    loop {
        let roles = found::roles(state);
        let is_seen = |name: RoleName| roles.iter().any(|role| role.role == name);
        let hidden = |name: &RoleName| !is_seen(*name) && state.is_role_held(*name);
        if !RoleName::ALL.iter().any(hidden) || Instant::now() >= deadline {
            return roles;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// What runs of the pool's instances, once whatever was about to end has ended.
pub async fn instances(state: &StateDir) -> io::Result<Vec<Stray>> {
    let deadline = Instant::now() + ENDING;
    loop {
        let root = state.root.clone();
        let living = tokio::task::spawn_blocking(move || weal_node::living(&root)).await.map_err(io::Error::other)??;
        if living.is_empty() || Instant::now() >= deadline {
            return Ok(living);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
