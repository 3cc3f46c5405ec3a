//! Who runs of a pool, as the processes themselves say it. Records can be missing: a supervisor was killed before it wrote one, the disk was full,
//! the state directory was removed. Command lines say which role of which pool a process is, and the kernel says whose process it is.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Parser;
use weal_host::Proc;

use crate::args::{Cli, Command, PoolArgs, RoleCommand};
use crate::failure::{Exit, Failure};
use crate::process::ProcessId;
use crate::role_name::RoleName;
use crate::state::{DEFAULT_FILE, RoleRecord, StateDir, home};
use crate::users::{self, RoleUsers};

/// A longer command line is none of ours.
const LONGEST_COMMAND: usize = 16 << 10;

impl StateDir {
    /// The pool that a command is about: as [`StateDir::of`] where a state directory or a file is named or `weal.toml`
    /// is here, otherwise the only pool of this user that runs.
    ///
    /// # Errors
    /// There is none, there are several, or it belongs to another user.
    pub fn find(target: &PoolArgs) -> anyhow::Result<Self> {
        let file = target.file.clone().unwrap_or_else(|| DEFAULT_FILE.into());
        if target.state.is_some() || target.file.is_some() || file.exists() {
            let state = Self::of(target.state.as_deref(), &file)?;
            state.check_open()?;
            return Ok(state);
        }
        let mut running = Self::running()?;
        match running.len() {
            1 => Ok(running.remove(0)),
            0 => {
                Err(Failure::new(Exit::NotRunning, "no weal.toml here and no pool runs: name one with --file or --state").into())
            }
            _ => {
                let roots: Vec<_> = running.iter().map(|state| state.root.display().to_string()).collect();
                bail!("several pools run: name one with --state: {}", roots.join(", "))
            }
        }
    }

    /// # Errors
    /// Its record is kept from this user.
    fn check_open(&self) -> Result<(), Failure> {
        let record = File::open(self.root.join("supervisor.json"));
        if !record.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
            return Ok(());
        }
        let owner = std::fs::metadata(&self.root)
            .map_or_else(|_| "another user".to_owned(), |meta| format!("user {}", users::name_of(meta.uid())));
        let root = self.root.display();
        Err(Failure::new(Exit::Failed, format!("the pool in {root} belongs to {owner}: only that user and root may ask it")))
    }

    fn running() -> anyhow::Result<Vec<Self>> {
        let entries = std::fs::read_dir(home()?).into_iter().flatten();
        let recorded = entries.filter_map(|entry| Some(Self { root: entry.ok()?.path() }));
        let recorded = recorded.filter(|state| state.record().is_some_and(|record| record.supervisor.is_alive()));
        // One whose state directory was removed is known by its processes.
        let roots: BTreeSet<PathBuf> = recorded.map(|state| state.root).chain(pools()).collect();
        Ok(roots.into_iter().map(|root| Self { root }).collect())
    }
}

/// Every living process that is a role of the pool in `state`, oldest first.
pub fn roles(state: &StateDir) -> Vec<RoleRecord> {
    living().into_iter().filter(|(root, _)| is_same(root, &state.root)).map(|(_, role)| role).collect()
}

/// The state directory of each pool that has a living role of this user's. A gateway that somebody has taken over could name any folder, and have
/// root take what lies there for a pool of its own.
pub fn pools() -> BTreeSet<PathBuf> {
    let own = rustix::process::geteuid().as_raw();
    living().into_iter().filter(|(_, role)| role.process.runs_as(own)).map(|(root, _)| root).collect()
}

/// The living supervisor of the pool in `state`: the one that the record names, that holds the lock, or that started a living role.
pub fn supervisor(state: &StateDir) -> Option<ProcessId> {
    let recorded = state.record().map(|record| record.supervisor).filter(|process| process.is_alive());
    // Whoever owns the folder could write any process down, and have root end it.
    let owner = std::fs::metadata(&state.root).ok().map(|meta| meta.uid());
    let recorded = recorded.filter(|process| owner.is_some_and(|owner| process.runs_as(owner)));
    recorded.or_else(|| holder(&state.root.join("lock"))).or_else(|| roles(state).iter().find_map(|role| parent(role.process)))
}

/// All roles of all pools, with their state directories.
fn living() -> Vec<(PathBuf, RoleRecord)> {
    let proc = Proc::system();
    let users = RoleUsers::of_this_machine().ok().flatten();
    let mut stats: Vec<_> = proc.all().into_iter().filter(weal_host::Stat::is_alive).map(|stat| stat.identity()).collect();
    stats.sort_by_key(|identity| (identity.start_ticks, identity.pid));
    let role = |pid: u32| {
        let process = ProcessId::of(pid)?;
        let (root, role) = of_command(&command_line(pid)?, process)?;
        let runs_as = proc.users(pid);
        (process.is_alive() && is_credible(role.role, &runs_as, users.as_ref())).then_some((root, role))
    };
    stats.into_iter().filter_map(|identity| role(identity.pid)).collect()
}

/// Whether a process with the command line of `role` is one, by the users that it runs as. Anybody can write a command line, a gateway that somebody
/// has taken over also that of a node agent: what is believed is what the role's own user says, and this one.
fn is_credible(role: RoleName, runs_as: &[u32], users: Option<&RoleUsers>) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let of_role = users.and_then(|users| users.of(role)).map(|user| user.uid);
    let is_only = |uid: u32| !runs_as.is_empty() && runs_as.iter().all(|one| *one == uid);
    is_only(own) || of_role.is_some_and(is_only)
}

fn command_line(pid: u32) -> Option<Vec<u8>> {
    std::fs::read(Proc::system().path(pid, "cmdline")).ok().filter(|line| line.len() <= LONGEST_COMMAND)
}

/// The role that this command line starts, read as the role itself reads it.
fn of_command(line: &[u8], process: ProcessId) -> Option<(PathBuf, RoleRecord)> {
    let words: Vec<String> = words(line).collect();
    if words.first().map(String::as_str) != Some("weal") || words.get(1).map(String::as_str) != Some("role") {
        return None;
    }
    let Command::Role { role } = Cli::try_parse_from(&words).ok()?.command else { return None };
    let record = |role, tcp_fd, unix_fd, wake_fd| RoleRecord {
        role,
        process,
        tcp_fd,
        tls_fd: None,
        unix_fd,
        wake_fd,
        ports_fd: None,
        seats_fd: None,
    };
    Some(match role {
        RoleCommand::Gateway { state, clients_fd, tls_fd, ports_fd, seats_fd, rpc_fd, .. } => {
            (state, RoleRecord { tls_fd, ports_fd, seats_fd, ..record(RoleName::Gateway, Some(clients_fd), rpc_fd, None) })
        }
        RoleCommand::Controller { state, api_fd, local_fd, .. } => {
            (state, record(RoleName::Controller, Some(api_fd), local_fd, None))
        }
        RoleCommand::Node { state, rpc_fd, wake_fd, .. } => (state, record(RoleName::Node, None, rpc_fd, Some(wake_fd))),
    })
}

fn words(line: &[u8]) -> impl Iterator<Item = String> {
    line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(|word| String::from_utf8_lossy(word).into_owned())
}

/// Two spellings of one folder are the same; one that was removed is known by its name.
fn is_same(a: &Path, b: &Path) -> bool {
    a == b || matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// The process that holds the lock on `file`, if it is a supervisor.
fn holder(file: &Path) -> Option<ProcessId> {
    let file = file_number(&std::fs::metadata(file).ok()?);
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    table.lines().filter_map(|line| lock_holder(line, &file)).filter_map(ProcessId::of).find(|process| is_supervisor(*process))
}

/// A file as `/proc/locks` names it. Its number alone would not do: each small disk counts from one.
fn file_number(meta: &std::fs::Metadata) -> String {
    let (device, inode) = (meta.dev(), meta.ino());
    format!("{:02x}:{:02x}:{inode}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// The process of one line of `/proc/locks` that is about `file`: `1: FLOCK  ADVISORY  WRITE 812 fd:00:4711 0 EOF`.
fn lock_holder(line: &str, file: &str) -> Option<u32> {
    let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK").skip(3);
    let pid = words.next()?.parse().ok()?;
    (words.next()? == file).then_some(pid)
}

fn parent(process: ProcessId) -> Option<ProcessId> {
    let stat = Proc::system().stat(process.pid())?;
    ProcessId::of(stat.parent).filter(|parent| is_supervisor(*parent))
}

fn is_supervisor(process: ProcessId) -> bool {
    let own = rustix::process::geteuid().as_raw();
    process.runs_as(own) && command_line(process.pid()).is_some_and(|line| words(&line).any(|word| word == "up"))
}

#[cfg(test)]
mod tests {
    use weal_host::users::User;

    use super::*;

    #[test]
    fn a_role_says_by_its_command_line_which_it_is_and_under_which_numbers_it_holds_its_sockets() {
        let me = ProcessId::me().unwrap();
        let line =
            b"weal\x00role\x00gateway\x00--state\x00/var/lib/weal/a-1\x00--name\x00gw\x00--clients-fd\x009\x00--rpc-fd\x0010\x00--ports-fd\x0011\x00--seats-fd\x0012\x00--controller-uid\x008\x00";
        let (root, role) = of_command(line, me).unwrap();
        assert_eq!(root, Path::new("/var/lib/weal/a-1"));
        assert_eq!(
            role,
            RoleRecord {
                role: RoleName::Gateway,
                process: me,
                tcp_fd: Some(9),
                tls_fd: None,
                unix_fd: 10,
                wake_fd: None,
                ports_fd: Some(11),
                seats_fd: Some(12)
            }
        );
        let line = b"weal\x00role\x00node\x00--state\x00/s\x00--rpc-fd\x005\x00--wake-fd\x006\x00";
        let (_, role) = of_command(line, me).unwrap();
        assert_eq!(
            role,
            RoleRecord {
                role: RoleName::Node,
                process: me,
                tcp_fd: None,
                tls_fd: None,
                unix_fd: 5,
                wake_fd: Some(6),
                ports_fd: None,
                seats_fd: None
            }
        );
        assert!(of_command(b"weal\x00up\x00--state\x00/s\x00", me).is_none());
        assert!(of_command(b"", me).is_none());
    }

    #[test]
    fn a_role_is_believed_only_when_it_runs_as_that_roles_user() {
        let own = rustix::process::geteuid().as_raw();
        let user = |uid| User { name: "role".to_owned(), uid, gid: uid, groups: Vec::new(), home: "/".into() };
        let users = RoleUsers { gateway: user(own + 1), controller: user(own + 2) };
        let believed = |role, runs_as: &[u32]| is_credible(role, runs_as, Some(&users));
        assert!(believed(RoleName::Node, &[own; 4]) && believed(RoleName::Gateway, &[own + 1; 4]));
        assert!(believed(RoleName::Controller, &[own + 2; 4]) && believed(RoleName::Gateway, &[own; 4]));
        for role in [RoleName::Node, RoleName::Controller] {
            assert!(!believed(role, &[own + 1; 4]), "a gateway says that it is the {}", role.name());
        }
        assert!(!believed(RoleName::Node, &[own + 2; 4]) && !believed(RoleName::Gateway, &[own + 2; 4]));
        assert!(!believed(RoleName::Node, &[own, own, own + 1, own]) && !believed(RoleName::Node, &[]));
        assert!(!is_credible(RoleName::Gateway, &[own + 1; 4], None), "all run as one user");
    }

    #[test]
    fn the_holder_of_a_lock_is_read_from_the_kernels_table() {
        let line = "12: FLOCK  ADVISORY  WRITE 812 fd:00:4711 0 EOF";
        assert_eq!(lock_holder(line, "fd:00:4711"), Some(812));
        assert_eq!(lock_holder(line, "fd:01:4711"), None, "another disk");
        assert_eq!(lock_holder("3: POSIX  ADVISORY  READ 9 fd:00:4711 0 EOF", "fd:00:4711"), None);
        let locked = tempfile::tempfile().unwrap();
        rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
        let file = file_number(&locked.metadata().unwrap());
        let table = std::fs::read_to_string("/proc/locks").unwrap();
        assert_eq!(table.lines().find_map(|line| lock_holder(line, &file)), Some(std::process::id()));
    }

    #[test]
    fn a_record_names_no_process_of_somebody_else() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir { root: folder.path().to_owned() };
        let me = ProcessId::me().unwrap();
        let (config, version) = (folder.path().join("weal.toml"), "1".to_owned());
        state.write_record(&crate::state::Record { supervisor: me, config, version, program: None, roles: Vec::new() }).unwrap();
        assert_eq!(supervisor(&state), Some(me));
        if users::is_root() {
            std::os::unix::fs::chown(folder.path(), Some(61_205), None).unwrap();
            assert_eq!(supervisor(&state), None, "its owner could have written down any process");
        }
    }

    #[test]
    fn nobody_runs_a_pool_where_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir { root: folder.path().to_owned() };
        assert_eq!((roles(&state), supervisor(&state)), (Vec::new(), None));
    }
}
