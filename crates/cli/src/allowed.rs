//! What the node agent takes from whoever runs weal, and from nobody else: which users root's config names, and what is secret.
//!
//! The texts that whoever runs weal gave are known by their hashes, each with the file that it was read from: the same words mean other files in
//! another folder. Others come from holders of tokens, over the API: no file of root's is read,
//! no user allowed and no command run for what such a text says, neither at once nor when it comes back by `weal rollback`.
//!
//! The controller hands a config on, but only the supervisor with its file, and `weal apply`, `deploy` and `rollback`, write these lists. While one
//! config takes the place of another, what both name is allowed.

use std::io;
use std::path::Path;

use anyhow::Context;
use weal_model::PoolSpec;
use weal_node::{Confidential, Permits};

use crate::confidential::gather;
use crate::digest::sha256;
use crate::state::StateDir;
use crate::users;

/// Hashes of the texts of configs that whoever runs weal gave, in the state directory.
const OWN_TEXTS_FILE: &str = "own-configs.json";
/// So many of them are kept, the newest.
const MOST_OWN_TEXTS: usize = 1000;

/// Allows what `spec` names too, which `text` says, and writes down what its secrets are now.
///
/// # Errors
/// A secret or a file of variables cannot be read (says which), or a list cannot be written.
pub fn widen(state: &StateDir, spec: &PoolSpec, text: OwnText<'_>) -> anyhow::Result<()> {
    // On a full disk it is in force all the same, and cannot be rolled back to.
    let _ = keep_own(state, text);
    let before = Confidential::read(&state.root)?;
    let told = gather(spec, &before)?.over(before);
    told.write(&state.root).context("cannot write down what its secrets are")?;
    if users::is_root() { widen_permits(state, spec).context("cannot write down which users the config names") } else { Ok(()) }
}

/// The text of a config, and the file that it was read from.
#[derive(Debug, Clone, Copy)]
pub struct OwnText<'t> {
    /// The text.
    pub text: &'t str,
    /// The file, absolute.
    pub path: &'t Path,
}

impl OwnText<'_> {
    fn hash(&self) -> String {
        // No path holds a NUL.
        sha256(&format!("{}\0{}", self.path.display(), self.text))
    }
}

/// Whether whoever runs weal has given this text of a config, at any time.
pub fn is_own(state: &StateDir, text: OwnText<'_>) -> bool {
    own_texts(state).is_ok_and(|known| known.contains(&text.hash()))
}

fn keep_own(state: &StateDir, text: OwnText<'_>) -> io::Result<()> {
    let (mut known, new) = (own_texts(state)?, text.hash());
    if known.contains(&new) {
        return Ok(());
    }
    known.push(new);
    let known = &known[known.len().saturating_sub(MOST_OWN_TEXTS)..];
    weal_host::files::replace(&state.root.join(OWN_TEXTS_FILE), &serde_json::to_vec(known)?)
}

fn own_texts(state: &StateDir) -> io::Result<Vec<String>> {
    match std::fs::read(state.root.join(OWN_TEXTS_FILE)) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_texts_are_known_again_and_the_oldest_are_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir { root: folder.path().to_owned() };
        let texts: Vec<String> = (0..=MOST_OWN_TEXTS).map(|number| format!("# {number}")).collect();
        let (path, other) = (Path::new("/etc/weal.toml"), Path::new("/tmp/weal.toml"));
        let at = |path, number: usize| OwnText { text: &texts[number], path };
        assert!(!is_own(&state, at(path, 0)));
        (0..=MOST_OWN_TEXTS).for_each(|number| keep_own(&state, at(path, number)).unwrap());
        assert!(!is_own(&state, at(path, 0)));
        assert!(is_own(&state, at(path, 1)) && is_own(&state, at(path, MOST_OWN_TEXTS)));
        assert!(!is_own(&state, OwnText { text: "# another's", path }));
        assert!(!is_own(&state, at(other, 1)), "in another folder it names other files");
    }
}
