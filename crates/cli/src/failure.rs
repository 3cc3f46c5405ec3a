//! How a command fails: a message, an exit code, and what programs may want to know.

use serde::Serialize;
use weal_model::written::UnitError;

use crate::output;
use crate::terminal;
use crate::values::ValueError;

/// Documented in `docs/cli.md`; 2 is clap's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Something did not work.
    Failed = 1,
    /// The command line asks for what does not exist.
    Usage = 2,
    /// The config file is not valid.
    ConfigInvalid = 3,
    /// No pool runs there.
    NotRunning = 4,
    /// It took too long.
    TimedOut = 5,
}

/// A failure with an exit code of its own; anything else that goes wrong exits with 1.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// A fragment: what, where, and what to do.
    pub message: String,
    /// For people, printed as it is before the message; may be empty.
    pub rendered: String,
    /// For programs: the config's diagnostics; may be empty.
    pub diagnostics: Vec<serde_json::Value>,
}

impl Failure {
    /// A failure without diagnostics.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), rendered: String::new(), diagnostics: Vec::new() }
    }
}

/// What `-o json` prints on standard error.
#[derive(Serialize)]
struct Shape<'a> {
    error: String,
    exit: u8,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    diagnostics: &'a [serde_json::Value],
}

/// Prints `error` and gives its exit code.
pub fn report(error: &anyhow::Error, json: bool) -> u8 {
    let failure = error.downcast_ref::<Failure>();
    let exit = exit_of(error) as u8;
    if json {
        let diagnostics = failure.map_or(&[][..], |failure| &failure.diagnostics);
        let shape = Shape { error: format!("{error:#}"), exit, diagnostics };
        let text = serde_json::to_string(&shape).unwrap_or_else(|_| terminal::visible(&shape.error).into_owned());
        output::complain(&terminal::json(&text));
    } else {
        if let Some(failure) = failure.filter(|failure| !failure.rendered.is_empty()) {
            output::complain(failure.rendered.trim_end());
        }
        let mark = output::paint("error:", output::Tone::Bad, output::Stream::Err);
        output::complain(&format!("{mark} {}", terminal::visible(&format!("{error:#}"))));
    }
    exit
}

fn exit_of(error: &anyhow::Error) -> Exit {
    match error.downcast_ref::<Failure>() {
        Some(failure) => failure.exit,
        None if error.is::<ValueError>() || error.is::<UnitError>() => Exit::Usage,
        None => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_value_that_cannot_be_used_is_wrong_usage_also_with_context() {
        let error = Err::<(), _>(ValueError::Factor("much".to_owned())).context("cannot change the load").unwrap_err();
        assert_eq!(exit_of(&error), Exit::Usage);
        assert_eq!(exit_of(&weal_model::written::parse_size("64").unwrap_err().into()), Exit::Usage);
        assert_eq!(exit_of(&anyhow::anyhow!("a full disk")), Exit::Failed);
    }
}
