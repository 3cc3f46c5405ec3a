//! What instances are told and nobody else is: variables from files, and secrets.
//!
//! A config says where they are. The supervisor, which runs as whoever started weal, reads them there and writes them down for the node agent,
//! in a file that nobody else can read. So neither controller nor gateway ever has them, and no answer of the API can show them.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weal_model::AppName;

use crate::files::{at, read_own, write_json};

/// Where they are, in the state directory.
pub const CONFIDENTIAL_FILE: &str = "secrets.json";
/// The longest file that is read.
const LONGEST: u64 = 64 << 20;

/// What the applications of a pool are told.
#[derive(Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confidential {
    apps: BTreeMap<AppName, Hidden>,
}

/// What one application is told.
#[derive(Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hidden {
    /// Variables of its files.
    pub variables: BTreeMap<String, String>,
    /// The values of its secrets.
    pub secrets: BTreeMap<String, String>,
}

impl fmt::Debug for Confidential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.apps.keys()).finish()
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys().chain(self.secrets.keys())).finish()
    }
}

impl Confidential {
    /// Tells `app` this too.
    pub fn tell(&mut self, app: AppName, hidden: Hidden) {
        self.apps.insert(app, hidden);
    }

    /// What `app` is told.
    pub fn of(&self, app: &AppName) -> Hidden {
        self.apps.get(app).cloned().unwrap_or_default()
    }

    /// All of this, and of `before` what only it has: while one config takes the place of another, instances of both run.
    #[must_use]
    pub fn over(mut self, before: Self) -> Self {
        for (app, hidden) in before.apps {
            self.apps.entry(app).or_insert(hidden);
        }
        self
    }

    /// What stands in the state directory `state`; nothing without a file.
    ///
    /// # Errors
    /// It cannot be read, or somebody else than the user of this process could have written it.
    pub fn read(state: &Path) -> io::Result<Self> {
        let path = state.join(CONFIDENTIAL_FILE);
        match read_own(&path, LONGEST)? {
            None => Ok(Self::default()),
            // The text is not part of the error.
            Some(text) => serde_json::from_slice(&text).map_err(|_| at(&path)(io::ErrorKind::InvalidData.into())),
        }
    }

    /// Puts this in place of what stands in the state directory `state`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, state: &Path) -> io::Result<()> {
        let path = state.join(CONFIDENTIAL_FILE);
        if self.apps.is_empty() && !path.exists() {
            return Ok(());
        }
        write_json(&path, self).map_err(at(&path))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_written_is_read_again_by_its_owner_only_and_never_shown() {
        let state = tempfile::tempdir().unwrap();
        let mut told = Confidential::default();
        told.write(state.path()).unwrap();
        assert!(!state.path().join(CONFIDENTIAL_FILE).exists(), "nothing to tell is no file");
        let secrets = BTreeMap::from([("PASSWORD".to_owned(), "hunter2".to_owned())]);
        told.tell("shop".into(), Hidden { secrets, ..Hidden::default() });
        told.write(state.path()).unwrap();
        let file = state.path().join(CONFIDENTIAL_FILE);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Confidential::read(state.path()).unwrap(), told);
        assert!(!format!("{told:?}{:?}", told.of(&"shop".into())).contains("hunter2"));
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o622)).unwrap();
        assert!(Confidential::read(state.path()).is_err(), "others could have written it");
    }
}
