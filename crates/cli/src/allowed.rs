//! What root's configs allow the node agent to run as named users.
//!
//! The controller hands a config on, but only root writes this list: the supervisor with the file that it follows, and `weal apply`. While one
//! config takes the place of another, what both name is allowed.

use std::io;

use weal_model::PoolSpec;
use weal_node::Permits;

use crate::state::StateDir;
use crate::users;

/// Allows what `spec` names too.
///
/// # Errors
/// The list cannot be read or written.
pub fn widen(state: &StateDir, spec: &PoolSpec) -> io::Result<()> {
    if !users::is_root() {
        return Ok(());
    }
    let before = Permits::read(&state.root)?;
    let both = before.clone().and(Permits::of(spec));
    // On a full disk, what stays as it is must not be what fails.
    if both == before { Ok(()) } else { both.write(&state.root) }
}

/// Allows what `spec` names, and nothing else.
///
/// # Errors
/// The list cannot be written.
pub fn settle(state: &StateDir, spec: &PoolSpec) -> io::Result<()> {
    if users::is_root() { Permits::of(spec).write(&state.root) } else { Ok(()) }
}
