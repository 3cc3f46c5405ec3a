//! `weal service install|uninstall`: a pool as a service of systemd, where no package made one.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::json;

use crate::args::PoolArgs;
use crate::args::service::{ServiceAction, TargetSystem};
use crate::config_file::load_trusted;
use crate::output::{self, Stream, Tone, paint};
use crate::state::{DEFAULT_FILE, absolute_config};
use crate::users;

/// Where units of the administrator lie.
const UNITS: &str = "etc/systemd/system";
/// `weal up` ends each application in its own time; then systemd waits no longer.
const STOP_TIMEOUT_S: u32 = 150;

/// Runs it.
///
/// # Errors
/// The config is not valid, the unit cannot be written, or systemd refuses it.
pub fn run(action: &ServiceAction, json: bool) -> anyhow::Result<()> {
    match action {
        ServiceAction::Install { target, place, no_start } => install(target, place, *no_start, json),
        ServiceAction::Unit { target, program } => unit(target, program.as_deref()),
        ServiceAction::Uninstall { target, place } => uninstall(target, place, json),
    }
}

fn install(target: &PoolArgs, place: &TargetSystem, no_start: bool, json: bool) -> anyhow::Result<()> {
    let file = target.file.clone().unwrap_or_else(|| DEFAULT_FILE.into());
    let loaded = load_trusted(&file)?;
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let unit = unit_path(&loaded.path, &place.root)?;
    write(&unit, &unit_text(&program, &loaded.path, target.state.as_deref()))?;
    let name = name_of(&unit);
    if place.is_this_machine() {
        systemctl(&["daemon-reload"])?;
        systemctl(&if no_start { vec!["enable", &name] } else { vec!["enable", "--now", &name] })?;
    }
    if json {
        return output::json(&json!({ "unit": unit, "enabled": place.is_this_machine() }), false);
    }
    output::line(&format!("{} {}", paint("written:", Tone::Good, Stream::Out), unit.display()));
    output::line(&format!("systemctl status {name} shows it, systemctl reload {name} takes a changed config"));
    Ok(())
}

fn unit(target: &PoolArgs, program: Option<&Path>) -> anyhow::Result<()> {
    let config = absolute_config(target.file.as_deref().unwrap_or(DEFAULT_FILE.as_ref()))?;
    let own = std::env::current_exe().context("cannot find the path of this program")?;
    output::print(&unit_text(program.unwrap_or(&own), &config, target.state.as_deref()));
    Ok(())
}

fn uninstall(target: &PoolArgs, place: &TargetSystem, json: bool) -> anyhow::Result<()> {
    let file = target.file.clone().unwrap_or_else(|| DEFAULT_FILE.into());
    let unit = unit_path(&absolute_config(&file)?, &place.root)?;
    if !unit.exists() {
        bail!("there is no service of this pool: {} is not there", unit.display());
    }
    let name = name_of(&unit);
    if place.is_this_machine() {
        systemctl(&["disable", "--now", &name])?;
    }
    fs::remove_file(&unit).with_context(|| format!("cannot remove {}", unit.display()))?;
    if place.is_this_machine() {
        systemctl(&["daemon-reload"])?;
    }
    if json {
        return output::json(&json!({ "removed": unit }), false);
    }
    output::line(&format!(
        "{} {}; its state directory and its data are left",
        paint("removed:", Tone::Good, Stream::Out),
        unit.display()
    ));
    Ok(())
}

/// The pool's unit is called as the folder of its config.
fn unit_path(config: &Path, root: &Path) -> anyhow::Result<PathBuf> {
    let folder =
        config.parent().and_then(Path::file_name).context("the config lies in no folder")?.to_string_lossy().into_owned();
    let plain: String = folder.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '-' }).collect();
    Ok(root.join(UNITS).join(format!("weal-{plain}.service")))
}

fn name_of(unit: &Path) -> String {
    unit.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What holds here holds for every application too. So nothing stands here that a program may need: each has a sandbox of its own.
fn unit_text(program: &Path, config: &Path, state: Option<&Path>) -> String {
    let state = state.map_or_else(String::new, |state| format!(" --state {}", quoted(state)));
    let (program, file) = (quoted(program), quoted(config));
    // Taken as it is, but for specifiers.
    let folder = config.parent().unwrap_or(Path::new("/")).display().to_string().replace('%', "%%");
    format!(
        "# Made by weal service.\n\
         [Unit]\n\
         Description=weal: the applications of {folder}\n\
         After=network-online.target\n\
         Wants=network-online.target\n\
         \n\
         [Service]\n\
         ExecStart={program} up --file {file}{state}\n\
         ExecReload=/bin/kill -HUP $MAINPID\n\
         WorkingDirectory={folder}\n\
         Restart=on-failure\n\
         RestartSec=1\n\
         # weal ends its applications one after the other, each before those that it needs.\n\
         KillMode=mixed\n\
         TimeoutStopSec={STOP_TIMEOUT_S}\n\
         # It makes a control group for each application.\n\
         Delegate=yes\n\
         OOMPolicy=continue\n\
         TasksMax=infinity\n\
         LimitNOFILE=1048576\n\
         KeyringMode=private\n\
         LockPersonality=yes\n\
         ProtectClock=yes\n\
         ProtectHostname=yes\n\
         ProtectKernelLogs=yes\n\
         ProtectKernelModules=yes\n\
         RestrictSUIDSGID=yes\n\
         SystemCallArchitectures=native\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

/// A path as a word of a unit: `%` begins a specifier and `$` a variable there.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    if text.contains([' ', '"', '\'', '\\']) { format!("\"{text}\"") } else { text }
}

fn write(unit: &Path, text: &str) -> anyhow::Result<()> {
    let folder = unit.parent().context("the unit lies in no folder")?;
    if !users::is_root() && folder.starts_with("/etc") {
        bail!("only root may write {}: run it with sudo, or name another --root", folder.display());
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(unit);
    file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| format!("cannot write {}", unit.display()))
}

fn systemctl(arguments: &[&str]) -> anyhow::Result<()> {
    let output =
        Command::new("systemctl").args(arguments).output().context("cannot run systemctl: is this a machine with systemd?")?;
    if !output.status.success() {
        bail!("systemctl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_is_called_as_the_configs_folder_and_paths_in_it_are_words() {
        let unit = unit_path(Path::new("/srv/my shop/weal.toml"), Path::new("/tmp/root")).unwrap();
        assert_eq!(unit, Path::new("/tmp/root/etc/systemd/system/weal-my-shop.service"));
        let text = unit_text(Path::new("/usr/bin/weal"), Path::new("/srv/my shop/100%/weal.toml"), Some(Path::new("/var/lib/s")));
        assert!(
            text.contains("ExecStart=/usr/bin/weal up --file \"/srv/my shop/100%%/weal.toml\" --state /var/lib/s\n"),
            "{text}"
        );
        assert!(text.contains("\nDelegate=yes\n"));
    }
}
