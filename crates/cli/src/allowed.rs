//! What the node agent takes from whoever runs weal, and from nobody else: which users root's config names, and what is secret.
//!
//! The controller hands a config on, but only the supervisor with its file, and `weal apply`, `deploy` and `rollback`, write these lists. While one
//! config takes the place of another, what both name is allowed.

use std::io;

use anyhow::Context;
use weal_model::PoolSpec;
use weal_node::{Confidential, Permits};

use crate::confidential::gather;
use crate::state::StateDir;
use crate::users;

/// Allows what `spec` names too, and writes down what its secrets are now.
///
/// # Errors
/// A secret or a file of variables cannot be read (says which), or a list cannot be written.
pub fn widen(state: &StateDir, spec: &PoolSpec) -> anyhow::Result<()> {
    let before = Confidential::read(&state.root)?;
    let told = gather(spec, &before)?.over(before);
    told.write(&state.root).context("cannot write down what its secrets are")?;
    if users::is_root() { widen_permits(state, spec).context("cannot write down which users the config names") } else { Ok(()) }
}

fn widen_permits(state: &StateDir, spec: &PoolSpec) -> io::Result<()> {
    let before = Permits::read(&state.root)?;
    let both = before.clone().and(Permits::of(spec));
    // On a full disk, what stays as it is must not be what fails.
    if both == before { Ok(()) } else { both.write(&state.root) }
}

/// Allows what `spec` names, and nothing else; forgets the secrets of applications that are gone.
///
/// # Errors
/// A list cannot be written.
pub fn settle(state: &StateDir, spec: &PoolSpec) -> anyhow::Result<()> {
    let told = Confidential::read(&state.root)?;
    let mut kept = Confidential::default();
    for app in spec.apps.values().filter(|app| app.process.is_confidential()) {
        kept.tell(app.name.clone(), told.of(&app.name));
    }
    kept.write(&state.root)?;
    if users::is_root() { Ok(Permits::of(spec).write(&state.root)?) } else { Ok(()) }
}
