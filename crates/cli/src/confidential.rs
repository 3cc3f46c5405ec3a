//! Reading what is secret, as whoever runs weal: the values of `secrets`, and the files of `env-file`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use weal_config::env_file::{self, EnvFileError};
use weal_model::{AppSpec, EnvFile, PoolSpec, Secret, SecretSource, naming};
use weal_node::{Confidential, Hidden};

/// A longer value is no secret that a variable could hold.
const LONGEST: u64 = 64 << 10;

/// Why something secret cannot be had. No text of these says what it is.
#[derive(Debug, thiserror::Error)]
pub enum NoSecret {
    /// Its file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    File {
        /// Where it should be.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what a variable can hold.
    #[error("{} is longer than 64 KiB, or no text", .path.display())]
    NoText {
        /// Where it is.
        path: PathBuf,
    },
    /// Its variable is not set.
    #[error("the variable {0} is not set where weal was started")]
    Variable(String),
    /// systemd handed nothing over.
    #[error(
        "there is no credential {0}: systemd hands it over with LoadCredential= in weal's unit, and CREDENTIALS_DIRECTORY says where"
    )]
    Credential(String),
    /// A line of a file of variables cannot be read.
    #[error("{}: {source}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: EnvFileError,
    },
    /// It sets what only weal sets.
    #[error("{} sets {name}: `WEAL_*` and systemd's `LISTEN_*` are what weal tells a process, so take another name", .path.display())]
    Reserved {
        /// The file.
        path: PathBuf,
        /// The variable.
        name: String,
    },
}

/// What the applications of `spec` are told. A variable or a credential that is not there keeps its value of `before`: `weal apply` runs in
/// another environment than `weal up`.
///
/// # Errors
/// Something cannot be read: says for which application.
pub fn gather(spec: &PoolSpec, before: &Confidential) -> anyhow::Result<Confidential> {
    let mut told = Confidential::default();
    // The steps of a release are told what their application is told.
    for app in spec.apps.values().filter(|app| app.step_of.is_none() && app.process.is_confidential()) {
        let hidden = of_app(app, &before.of(&app.name)).with_context(|| format!("[app.{}]", app.name))?;
        told.tell(app.name.clone(), hidden);
    }
    Ok(told)
}

fn of_app(app: &AppSpec, before: &Hidden) -> anyhow::Result<Hidden> {
    let mut hidden = Hidden::default();
    for file in &app.process.env_files {
        hidden.variables.extend(variables(file).context("env-file")?);
    }
    for (name, secret) in &app.process.secrets {
        let value = value(secret, before.secrets.get(name)).with_context(|| format!("secrets.{name}"))?;
        hidden.secrets.insert(name.clone(), value);
    }
    Ok(hidden)
}

/// The variables of `file`; none where it need not be there.
///
/// # Errors
/// It cannot be read.
pub fn variables(file: &EnvFile) -> Result<BTreeMap<String, String>, NoSecret> {
    let path = PathBuf::from(&file.path);
    let text = match read(&path) {
        Err(NoSecret::File { source, .. }) if !file.required && source.kind() == io::ErrorKind::NotFound => {
            return Ok(BTreeMap::new());
        }
        text => text?,
    };
    let read = env_file::parse(&text).map_err(|source| NoSecret::Line { path: path.clone(), source })?;
    match read.iter().find(|(name, _)| naming::is_reserved_variable(name)) {
        Some((name, _)) => Err(NoSecret::Reserved { path, name: name.clone() }),
        None => Ok(read.into_iter().collect()),
    }
}

/// The value of `secret`, or `before` where it can be had by the supervisor only.
///
/// # Errors
/// It cannot be had.
pub fn value(secret: &Secret, before: Option<&String>) -> Result<String, NoSecret> {
    let of_file = |path: &Path| {
        let text = read(path)?;
        // An editor ends a line; a key in PEM form ends with one too, and is read from a file as it is.
        Ok(if secret.as_file { text } else { text.strip_suffix('\n').unwrap_or(&text).to_owned() })
    };
    match &secret.from {
        SecretSource::File(path) => of_file(Path::new(path)),
        SecretSource::Variable(name) => {
            let value = std::env::var(name).ok().or_else(|| before.cloned());
            value.ok_or_else(|| NoSecret::Variable(name.clone()))
        }
        SecretSource::Credential(name) => match std::env::var_os("CREDENTIALS_DIRECTORY") {
            Some(folder) => of_file(&Path::new(&folder).join(name)),
            None => before.cloned().ok_or_else(|| NoSecret::Credential(name.clone())),
        },
    }
}

fn read(path: &Path) -> Result<String, NoSecret> {
    let mut bytes = Vec::new();
    let result = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    result.map_err(|source| NoSecret::File { path: path.to_owned(), source })?;
    let text = String::from_utf8(bytes).ok().filter(|text| text.len() as u64 <= LONGEST && !text.contains('\0'));
    text.ok_or_else(|| NoSecret::NoText { path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_read_where_it_is_and_never_part_of_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        std::fs::write(&path, "hunter2\n").unwrap();
        let of = |as_file| Secret { from: SecretSource::File(path.display().to_string()), as_file };
        assert_eq!(value(&of(false), None).unwrap(), "hunter2");
        assert_eq!(value(&of(true), None).unwrap(), "hunter2\n");
        std::fs::write(&path, "hunter2\0").unwrap();
        let error = value(&of(false), None).unwrap_err().to_string();
        assert!(error.contains("no text") && !error.contains("hunter2"), "{error}");
        let unset = Secret { from: SecretSource::Variable("WEAL_TEST_NOT_SET".to_owned()), as_file: false };
        assert_eq!(value(&unset, Some(&"kept".to_owned())).unwrap(), "kept");
        assert!(value(&unset, None).unwrap_err().to_string().contains("WEAL_TEST_NOT_SET is not set"));
    }

    #[test]
    fn a_file_of_variables_sets_nothing_that_only_weal_sets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".env");
        let file = EnvFile { path: path.display().to_string(), required: true };
        std::fs::write(&path, "LISTEN_ADDR=1\nPATH=/opt/bin\n").unwrap();
        assert_eq!(variables(&file).unwrap().len(), 2);
        for name in ["LISTEN_FDS", "WEAL_KEEP_AWAKE"] {
            std::fs::write(&path, format!("{name}=hunter2\n")).unwrap();
            let error = variables(&file).unwrap_err().to_string();
            assert!(error.contains(name) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_file_of_variables_need_not_be_there_where_a_dash_says_so() {
        let file = |required| EnvFile { path: "/no/such/.env".to_owned(), required };
        assert_eq!(variables(&file(false)).unwrap(), BTreeMap::new());
        assert!(variables(&file(true)).unwrap_err().to_string().contains("/no/such/.env"));
    }
}
