//! A command for a receiver: the message on its standard input and in its environment.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Gid, Uid};
use tokio::io::AsyncWriteExt;

use super::message::{DeliveryError, Message};

/// What one attempt may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// The account and the group `nobody`. When root runs weal, a command is nobody: what it may do, its own programs and files say.
const NOBODY: u32 = 65_534;
/// All that a command inherits.
const INHERITED: [&str; 4] = ["PATH", "LANG", "LC_ALL", "TZ"];

/// Runs `argv` once.
///
/// # Errors
/// It does not start, does not end in time (and is killed), or fails.
pub async fn run(argv: &[String], message: &Message, body: &[u8]) -> Result<(), DeliveryError> {
    let mut child =
        tokio::process::Command::from(command(argv, message)).kill_on_drop(true).spawn().map_err(DeliveryError::NotStarted)?;
    let running = async {
        if let Some(mut input) = child.stdin.take() {
            // It need not read it.
            let _ = input.write_all(body).await;
        }
        child.wait().await.map_err(DeliveryError::NotStarted)
    };
    let status = tokio::time::timeout(PATIENCE, running).await.map_err(|_| DeliveryError::TooSlow(PATIENCE))??;
    if status.success() { Ok(()) } else { Err(DeliveryError::Failed(status)) }
}

fn command(argv: &[String], message: &Message) -> std::process::Command {
    let mut command = std::process::Command::new(argv.first().map_or("", String::as_str));
    command.args(argv.iter().skip(1)).env_clear().current_dir("/");
    command.envs(INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    command.env("WEAL_EVENT", message.event.as_str()).env("WEAL_POOL", &message.pool);
    command.env("WEAL_SUBJECT", &message.subject).env("WEAL_TEXT", &message.text);
    command.env("WEAL_SINCE", &message.since).env("WEAL_RESOLVED", if message.resolved { "1" } else { "0" });
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    if rustix::process::geteuid().is_root() {
        // SAFETY: the closure makes system calls only; it allocates nothing and takes no lock.
        unsafe { command.pre_exec(become_nobody) };
    }
    command
}

fn become_nobody() -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(rustix::thread::set_no_new_privs(true)?)
}
