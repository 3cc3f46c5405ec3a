//! A command that somebody runs beside an instance: `weal exec`.
//!
//! Whoever may read the folder of an instance starts the command, without the agent. So nobody can do more by it than before, and the
//! command has the terminal of whoever started it.

use std::io;
use std::path::Path;

use weal_model::{AppName, InstanceId};

use crate::agent::is_safe_name;
use crate::files::read_json;
use crate::probe::{BadAnswer, Beside, joining};
use crate::shim::{PID_FILE, Record, SPEC_FILE, Started};

/// Why no command can be run beside an instance.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// There is nothing to run.
    #[error("there is no command to run")]
    NoCommand,
    /// Its folder is closed to this user.
    #[error("only root, or the user that runs the pool, may run something beside {instance}")]
    NoRights {
        /// The instance.
        instance: InstanceId,
    },
    /// It does not run.
    #[error("{instance} does not run")]
    NotRunning {
        /// The instance.
        instance: InstanceId,
    },
    /// It is another application's, or there is no such instance. The controller has named it, and may be somebody else's by now.
    #[error("{instance} is no instance of {app}")]
    OfAnother {
        /// The instance.
        instance: InstanceId,
        /// The application.
        app: AppName,
    },
    /// The system refused it.
    #[error("cannot join {instance}: {source}")]
    System {
        /// The instance.
        instance: InstanceId,
        /// What it said.
        source: BadAnswer,
    },
}

/// `argv` as a command with the environment, the folder, the user, the limits and the sandbox of an `instance` of `app` of the pool in
/// `state_dir`. It begins a session of its own, so that it cannot write into the terminal of whoever starts it. Nothing in `argv` is filled in.
///
/// # Errors
/// See [`ExecError`].
pub fn command_beside(
    state_dir: &Path,
    app: &AppName,
    instance: &InstanceId,
    argv: &[String],
) -> Result<tokio::process::Command, ExecError> {
    let (program, arguments) = argv.split_first().ok_or(ExecError::NoCommand)?;
    let of_another = || ExecError::OfAnother { instance: instance.clone(), app: app.clone() };
    if !is_safe_name(instance.as_str()) {
        return Err(of_another());
    }
    let dir = state_dir.join("node/instances").join(instance.as_str());
    let of_file = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => ExecError::NoRights { instance: instance.clone() },
        _ => ExecError::System { instance: instance.clone(), source: error.into() },
    };
    let gone = || ExecError::NotRunning { instance: instance.clone() };
    let record = read_json::<Record>(&dir.join(SPEC_FILE)).map_err(of_file)?.ok_or_else(gone)?;
    if record.spec.app != *app {
        return Err(of_another());
    }
    let started = read_json::<Started>(&dir.join(PID_FILE)).map_err(of_file)?.ok_or_else(gone)?;
    let launch = &record.launch;
    let beside = Beside { launch, main: Some(started.main) };
    let join = joining(beside).map_err(|source| ExecError::System { instance: instance.clone(), source })?;
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).env_clear().envs(&launch.env).current_dir(&launch.cwd).kill_on_drop(true);
    if let Some(term) = std::env::var_os("TERM") {
        command.env("TERM", term);
    }
    let prepare = move || {
        rustix::process::setsid()?;
        join()
    };
    // SAFETY: only system calls are made between fork and exec; what they need was allocated before, except for one small list, and no lock
    // of the allocator is held then: glibc and musl restore theirs in the forked child.
    unsafe { command.pre_exec(prepare) };
    Ok(command)
}

#[cfg(test)]
mod tests {
    use weal_model::AppSpec;
    use weal_protocol::node::InstanceSpec;

    use super::*;
    use crate::files::write_json;
    use crate::instance::first_record;

    #[test]
    fn nothing_is_run_beside_what_is_no_instance_of_the_application() {
        let (state, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let record = first_record(InstanceSpec::of(&AppSpec::example("admin"), "admin-1".into(), "n1".into()), 1);
        let dir = state.path().join("node/instances/admin-1");
        for dir in [&dir, elsewhere.path()] {
            std::fs::create_dir_all(dir).unwrap();
            write_json(&dir.join(SPEC_FILE), &record).unwrap();
        }
        let refusal = |app: &str, instance: &str| {
            command_beside(state.path(), &app.into(), &instance.into(), &["id".to_owned()]).unwrap_err().to_string()
        };
        assert_eq!(refusal("shop", "admin-1"), "admin-1 is no instance of shop");
        let path = format!("../../..{}", elsewhere.path().display());
        assert_eq!(refusal("admin", &path), format!("{path} is no instance of admin"), "it leads elsewhere");
        assert_eq!(refusal("admin", "admin-1"), "admin-1 does not run");
    }
}
