//! What somebody does to an instance without the agent: a command beside it (`weal exec`), and its reload signal (`weal reload`).
//!
//! Whoever may read the folder of an instance does it. So nobody can do more by it than before, and a command has the terminal of whoever
//! started it.

use std::io;
use std::path::Path;

use weal_host::Proc;
use weal_model::{AppName, InstanceId, ProcessSignal};

use crate::agent::is_safe_name;
use crate::files::read_json;
use crate::probe::{BadAnswer, Beside, first_folder, joining};
use crate::shim::{PID_FILE, Record, SPEC_FILE, Started};
use crate::signals;

/// Why an instance cannot be reached.
#[derive(Debug, thiserror::Error)]
pub enum ExecError {
    /// There is nothing to run.
    #[error("there is no command to run")]
    NoCommand,
    /// Its folder is closed to this user.
    #[error("only root, or the user that runs the pool, may reach {instance}")]
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
    let (record, started) = found(state_dir, app, instance)?;
    let launch = &record.launch;
    let beside = Beside { launch, main: Some(started.main) };
    let join = joining(beside).map_err(|source| ExecError::System { instance: instance.clone(), source })?;
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).env_clear().envs(&launch.env).current_dir(first_folder(launch)).kill_on_drop(true);
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

/// Sends `signal` to the main process of an `instance` of `app` of the pool in `state_dir`. One that is frozen takes it when it wakes.
///
/// # Errors
/// See [`ExecError`].
pub fn signal_instance(state_dir: &Path, app: &AppName, instance: &InstanceId, signal: ProcessSignal) -> Result<(), ExecError> {
    let (_, started) = found(state_dir, app, instance)?;
    let main = Proc::system().open(started.main).ok_or_else(|| ExecError::NotRunning { instance: instance.clone() })?;
    signals::send(main, signals::number(signal)).map_err(|source| match source.kind() {
        io::ErrorKind::PermissionDenied => ExecError::NoRights { instance: instance.clone() },
        _ => ExecError::System { instance: instance.clone(), source: source.into() },
    })
}

/// What an `instance` of `app` was started from, and its processes.
fn found(state_dir: &Path, app: &AppName, instance: &InstanceId) -> Result<(Record, Started), ExecError> {
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
    Ok((record, started))
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

    #[test]
    fn a_signal_goes_to_the_main_process_of_an_instance_and_never_to_its_number_alone() {
        use std::os::unix::process::ExitStatusExt;
        let state = tempfile::tempdir().unwrap();
        let dir = state.path().join("node/instances/shop-1");
        std::fs::create_dir_all(&dir).unwrap();
        let record = first_record(InstanceSpec::of(&AppSpec::example("shop"), "shop-1".into(), "n1".into()), 1);
        write_json(&dir.join(SPEC_FILE), &record).unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let main = Proc::system().identity(child.id()).unwrap();
        let send = |main| {
            write_json(&dir.join(PID_FILE), &Started { main, shim: main, session: 1 }).unwrap();
            signal_instance(state.path(), &"shop".into(), &"shop-1".into(), ProcessSignal::Usr1)
        };
        let former = weal_host::Identity { start_ticks: main.start_ticks - 1, ..main };
        assert_eq!(send(former).unwrap_err().to_string(), "shop-1 does not run");
        assert!(child.try_wait().unwrap().is_none(), "another process of that number is left alone");
        send(main).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(rustix::process::Signal::USR1.as_raw()));
        assert_eq!(send(main).unwrap_err().to_string(), "shop-1 does not run");
    }
}
