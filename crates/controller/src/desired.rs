//! The config in force, and what becomes of a new one.

use std::sync::Arc;

use weal_config::{Diagnostic, MachineSize};
use weal_model::{Bytes, PoolSpec};

use crate::store::StoredConfig;
use weal_protocol::controller::{Caller, ConfigDiagnostic, ConfigRefused, ConfigView};

/// What the pool is to be.
#[derive(Debug, Clone)]
pub(crate) struct Desired {
    pub generation: u64,
    pub text: String,
    pub path: String,
    pub spec: Arc<PoolSpec>,
    /// Who brought it.
    pub who: Option<Caller>,
    /// What brought it.
    pub origin: String,
}

impl Desired {
    pub fn view(&self) -> ConfigView {
        ConfigView {
            generation: self.generation,
            text: self.text.clone(),
            path: self.path.clone(),
            spec: Some((*self.spec).clone()),
        }
    }

    pub fn stored(&self) -> StoredConfig {
        StoredConfig {
            generation: self.generation,
            time: crate::clock::now(),
            path: self.path.clone(),
            text: self.text.clone(),
            who: self.who.clone(),
            origin: self.origin.clone(),
        }
    }
}

/// Reads a config; the warnings come with it.
pub(crate) fn read(text: &str, path: &str) -> Result<(PoolSpec, Vec<String>), ConfigRefused> {
    match weal_config::parse(text, path, &machine()) {
        Ok(parsed) => Ok((parsed.spec, parsed.warnings.iter().map(ToString::to_string).collect())),
        Err(diagnostics) => {
            let first = diagnostics.first().map_or_else(|| format!("{path}: cannot be read"), ToString::to_string);
            let error = match diagnostics.len() {
                0 | 1 => first,
                count => format!("{first}, and {} more", count - 1),
            };
            Err(ConfigRefused { error, diagnostics: diagnostics.iter().map(|d| diagnostic(d, text)).collect() })
        }
    }
}

/// What differs, one sentence each.
pub(crate) fn changes(before: Option<&PoolSpec>, after: &PoolSpec) -> Vec<String> {
    match before {
        None => after.apps.keys().map(|app| format!("{app} is new")).collect(),
        Some(before) => weal_config::diff(before, after).into_iter().map(|change| change.text).collect(),
    }
}

fn diagnostic(found: &Diagnostic, text: &str) -> ConfigDiagnostic {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    ConfigDiagnostic {
        path: found.path.clone(),
        line: small(found.line),
        column: small(found.column),
        length: small(found.length),
        message: found.message.clone(),
        help: found.help.clone().unwrap_or_default(),
        rendered: found.render(text, false),
    }
}

/// What this machine has: its online cores and its memory.
pub fn machine() -> MachineSize {
    let memory = weal_host::Proc::system().memory().total;
    MachineSize { cpus: weal_host::machine::cpus().0, memory: memory.unwrap_or(Bytes::gib(1)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_config_is_refused_with_each_mistakes_place() {
        let refused = read("[pool]\nlisten = \"nowhere\"\n[app.a]\nrun = [\"a\"]\nmemry = \"1GiB\"\n", "weal.toml").unwrap_err();
        assert_eq!(refused.diagnostics.len(), 2, "{refused:?}");
        assert!(refused.error.starts_with("weal.toml:2:"), "{}", refused.error);
        assert!(refused.diagnostics.iter().any(|d| d.line == 5 && d.rendered.contains("memry")));
    }

    #[test]
    fn the_machine_is_read_from_the_system() {
        assert!(machine().cpus >= 1.0 && machine().memory > Bytes::mib(16));
    }
}
