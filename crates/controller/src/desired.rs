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

/// Why a config is not taken.
#[derive(Debug)]
pub(crate) struct Refused {
    /// For everybody: events and the status need no token, so it quotes no value.
    pub outline: String,
    /// For whoever ordered it.
    pub answer: ConfigRefused,
}

/// Reads a config; the warnings come with it.
pub(crate) fn read(text: &str, path: &str) -> Result<(PoolSpec, Vec<String>), Refused> {
    match weal_config::parse(text, path, &machine()) {
        Ok(parsed) => Ok((parsed.spec, parsed.warnings.iter().map(ToString::to_string).collect())),
        Err(found) => {
            let in_one_line = |show: &dyn Fn(&Diagnostic) -> String| {
                let first = found.first().map_or_else(|| format!("{path}: cannot be read"), show);
                let more = found.len().saturating_sub(1);
                if more == 0 { first } else { format!("{first}, and {more} more") }
            };
            let outline = in_one_line(&|found| found.outline(text));
            let error = in_one_line(&ToString::to_string);
            let diagnostics = found.iter().map(|found| diagnostic(found, text)).collect();
            Err(Refused { outline, answer: ConfigRefused { error, diagnostics } })
        }
    }
}

/// What differs between two configs.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// For everybody: which keys of what, without their values.
    pub outlines: Vec<String>,
    /// One sentence each, for whoever ordered it.
    pub texts: Vec<String>,
}

pub(crate) fn changes(before: Option<&PoolSpec>, after: &PoolSpec) -> Changes {
    let Some(before) = before else {
        let texts: Vec<String> = after.apps.keys().map(|app| format!("{app} is new")).collect();
        return Changes { outlines: texts.clone(), texts };
    };
    let (outlines, texts) = weal_config::diff(before, after).into_iter().map(|change| (change.outline(), change.text)).unzip();
    Changes { outlines, texts }
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
        let Refused { outline, answer: refused } = refused;
        assert_eq!(refused.diagnostics.len(), 2, "{refused:?}");
        assert!(refused.error.starts_with("weal.toml:2:") && refused.error.contains("nowhere"), "{}", refused.error);
        assert_eq!(outline, "weal.toml:2:10: `…` is not an address, and 1 more", "its value is for whoever ordered it");
        assert!(refused.diagnostics.iter().any(|d| d.line == 5 && d.rendered.contains("memry")));
    }

    #[test]
    fn the_machine_is_read_from_the_system() {
        assert!(machine().cpus >= 1.0 && machine().memory > Bytes::mib(16));
    }
}
