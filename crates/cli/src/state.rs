//! The state directory: where it is, who owns what in it, who holds it, and the record of the processes.
//!
//! ```text
//! lock              held (flock) by the living supervisor
//! run/ROLE.lock     held by each process of a role: node agent and controller hold it alone
//! supervisor.json   the record: supervisor and roles by pid and start time
//! inner.json        where applications that others need are reached at the gateway
//! permits.json      what each application of root's config may be: written by root, read by the node agent
//! run/*.sock        the roles' sockets, 0600, owned by whoever calls them
//! gateway/          the gateway's own, 0700
//! controller/       the controller's own, 0700
//! node/             the node agent's own, 0711: instances reach their files through it
//! data/APP/         $DATA of an application
//! logs/*.log        what the roles write
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, Mode};
use serde::{Deserialize, Serialize};
use weal_host::users::User;
use weal_node::folder::{Folder, Owner};

use crate::process::ProcessId;
use crate::role_name::RoleName;
use crate::trust;
use crate::users::{self, RoleUsers};

/// The file that is meant when none is named.
pub const DEFAULT_FILE: &str = "weal.toml";

/// A pool's state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir {
    /// Absolute.
    pub root: PathBuf,
}

impl StateDir {
    /// The one that `--state` names, or that belongs to `config`. It does not depend on what the config file says, so
    /// that a pool is found even while its config file is broken.
    pub fn of(state: Option<&Path>, config: &Path) -> anyhow::Result<Self> {
        if let Some(state) = state {
            return Ok(Self { root: std::path::absolute(state)? });
        }
        let config = absolute_config(config)?;
        let folder = config.parent().and_then(Path::file_name).map_or("pool".into(), |name| name.to_string_lossy());
        let name: String = folder.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        let hash = fingerprint(config.as_os_str().as_encoded_bytes()) & 0xffff;
        Ok(Self { root: home()?.join(format!("{name}-{hash:04x}")) })
    }

    /// Where `role` answers calls.
    pub fn socket(&self, role: RoleName) -> PathBuf {
        self.root.join("run").join(format!("{}.sock", role.name()))
    }

    /// Where the node agent answers who asks for an application that sleeps, and nothing else.
    pub fn wake_socket(&self) -> PathBuf {
        self.root.join("run/wake.sock")
    }

    /// Where the gateway is handed the sockets of ports.
    pub fn ports_socket(&self) -> PathBuf {
        self.root.join("run/ports.sock")
    }

    /// Where each application that others need is reached at the gateway.
    pub fn inner_addresses(&self) -> PathBuf {
        self.root.join("inner.json")
    }

    /// Private keys that weal made, which only the supervisor reads.
    pub fn tls(&self) -> PathBuf {
        self.root.join("tls")
    }

    /// Where `name` (a role, or `supervisor`) writes.
    pub fn log(&self, name: &str) -> PathBuf {
        self.root.join("logs").join(format!("{name}.log"))
    }

    /// Makes what is missing, with the right owners and modes: `users` own what gateway and controller write. What an earlier version left to
    /// another user goes over to them.
    ///
    /// # Errors
    /// A folder cannot be made, others could change it, or those users cannot get to it.
    pub fn prepare(&self, users: Option<&RoleUsers>) -> anyhow::Result<()> {
        trust::check_way(&self.root).context("the state directory cannot be used")?;
        make_all(&self.root)
            .with_context(|| format!("cannot make the state directory {}: name another with --state", self.root.display()))?;
        trust::check(&self.root).context("the state directory cannot be used")?;
        let owner = |user: Option<&User>| user.map_or(Owner::ROOT, |user| Owner { uid: user.uid, gid: user.gid });
        let through = if users.is_some() { 0o711 } else { 0o700 };
        let root = Folder::open(&self.root)?;
        root.set_mode(through)?;
        for (name, mode, user) in [
            ("run", through, None),
            ("gateway", 0o700, users.map(|users| &users.gateway)),
            ("controller", 0o700, users.map(|users| &users.controller)),
            ("node", 0o711, None),
            ("data", 0o711, None),
            ("logs", 0o700, None),
            ("tls", 0o700, None),
        ] {
            let folder = root.make(name, mode)?;
            folder.set_mode(mode)?;
            if users::is_root() {
                folder.give(owner(user))?;
            }
        }
        users.map_or(Ok(()), |users| {
            [&users.gateway, &users.controller].into_iter().try_for_each(|user| check_reachable(&self.root, user))
        })
    }

    /// Whether nothing of it was removed that a running pool needs.
    pub fn is_whole(&self) -> bool {
        let sockets = RoleName::ALL.map(|role| self.socket(role)).into_iter().chain([self.wake_socket()]);
        let others = ["lock", "gateway", "controller", "node", "data", "logs"].map(|name| self.root.join(name));
        sockets.chain(others).all(|path| path.exists())
    }

    /// Whether there is a record.
    pub fn has_record(&self) -> bool {
        self.root.join("supervisor.json").exists()
    }

    /// Whether the lock that a supervisor holds is still there for others to see.
    pub fn has_lock(&self) -> bool {
        self.root.join("lock").exists()
    }

    /// Takes the directory for this process.
    ///
    /// # Errors
    /// Another supervisor holds it.
    pub fn lock(&self) -> anyhow::Result<Lock> {
        let path = self.root.join("lock");
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let pid = self.record().map_or_else(String::new, |record| format!(" as pid {}", record.supervisor.pid()));
                bail!("this pool already runs{pid}: see weal status, or stop it with weal down ({})", self.root.display())
            }
            Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// The lock that a process of `role` holds for as long as it lives: it inherits it, so there is no moment without. A gateway that finishes
    /// its requests shares it with the next one; a controller or a node agent holds it alone. `None` while another one lives.
    ///
    /// # Errors
    /// The lock cannot be opened.
    pub fn lock_role(&self, role: RoleName) -> anyhow::Result<Option<File>> {
        let operation = match role {
            RoleName::Gateway => FlockOperation::NonBlockingLockShared,
            RoleName::Controller | RoleName::Node => FlockOperation::NonBlockingLockExclusive,
        };
        self.try_lock(role, operation)
    }

    /// Whether a process of `role` holds its lock, also one that was just being started.
    pub fn is_role_held(&self, role: RoleName) -> bool {
        matches!(self.try_lock(role, FlockOperation::NonBlockingLockExclusive), Ok(None))
    }

    fn try_lock(&self, role: RoleName, operation: FlockOperation) -> anyhow::Result<Option<File>> {
        let path = self.root.join("run").join(format!("{}.lock", role.name()));
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        match rustix::fs::flock(&file, operation) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// The last record; `None` without one that can be read.
    pub fn record(&self) -> Option<Record> {
        serde_json::from_slice(&std::fs::read(self.root.join("supervisor.json")).ok()?).ok()
    }

    /// Writes the record, whole or not at all.
    pub fn write_record(&self, record: &Record) -> anyhow::Result<()> {
        let path = self.root.join("supervisor.json");
        let new = self.root.join("supervisor.json.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        std::fs::rename(&new, &path).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Forgets the record, after the end of everything that it names.
    pub fn forget_record(&self) {
        // Nothing depends on it: a record that is left over names processes that live no more.
        let _ = std::fs::remove_file(self.root.join("supervisor.json"));
    }
}

/// While it lives, no other supervisor takes the directory. The system lets go of it when the process dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// Who runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The supervisor.
    #[serde(flatten)]
    pub supervisor: ProcessId,
    /// The config file, absolute.
    pub config: PathBuf,
    /// weal's version.
    pub version: String,
    /// The file that the supervisor was started from, and becomes anew by `weal upgrade`; `None` where it cannot.
    #[serde(default)]
    pub program: Option<PathBuf>,
    /// The roles.
    pub roles: Vec<RoleRecord>,
}

/// One role's process, with the descriptors under which it holds its listening sockets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleRecord {
    /// Which.
    pub role: RoleName,
    /// Its process.
    #[serde(flatten)]
    pub process: ProcessId,
    /// The TCP socket, if it has one.
    pub tcp_fd: Option<i32>,
    /// The TCP socket for TLS, if it has one.
    #[serde(default)]
    pub tls_fd: Option<i32>,
    /// The Unix socket.
    pub unix_fd: i32,
    /// The node agent's socket for wakes.
    #[serde(default)]
    pub wake_fd: Option<i32>,
    /// The gateway's socket through which it gets those of ports.
    #[serde(default)]
    pub ports_fd: Option<i32>,
    /// The memory in which gateways share seats.
    #[serde(default)]
    pub seats_fd: Option<i32>,
}

/// `file` as an absolute path with the links of its folder resolved, so that one file has one state directory.
pub fn absolute_config(file: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(file)?;
    let resolved = path.parent().and_then(|folder| folder.canonicalize().ok());
    Ok(match (resolved, path.file_name()) {
        (Some(folder), Some(name)) => folder.join(name),
        _ => path,
    })
}

/// Where the state directories of this user's pools are, unless named.
pub fn home() -> anyhow::Result<PathBuf> {
    if users::is_root() {
        return Ok("/var/lib/weal".into());
    }
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    Ok(base.context("neither XDG_STATE_HOME nor HOME is set: name a state directory with --state")?.join("weal"))
}

/// FNV-1a: a name, not a defence.
fn fingerprint(bytes: &[u8]) -> u64 {
    let hash =
        bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    hash ^ (hash >> 32)
}

/// Makes `folder` with those above it. The roles pass through them, so the mask that keeps all else closed does not count here.
pub fn make_all(folder: &Path) -> std::io::Result<()> {
    let mask = rustix::process::umask(Mode::from_raw_mode(0o022));
    let made = DirBuilder::new().recursive(true).mode(0o711).create(folder);
    rustix::process::umask(mask);
    made
}

/// Every folder above must let `user` through, or gateway and controller cannot open their own files.
fn check_reachable(root: &Path, user: &User) -> anyhow::Result<()> {
    for folder in root.ancestors() {
        let Ok(meta) = folder.metadata() else { continue };
        let (mode, owner, group) = (meta.mode(), meta.uid(), meta.gid());
        let may_pass = if owner == user.uid {
            mode & 0o100
        } else if group == user.gid {
            mode & 0o010
        } else {
            mode & 0o001
        };
        if may_pass == 0 {
            bail!(
                "user {} cannot pass through {}: choose another place with --state, or chmod o+x that folder",
                user.name,
                folder.display()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn one_config_file_has_one_state_directory_however_it_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weal.toml");
        let other = folder.path().join(".").join("weal.toml");
        assert_eq!(StateDir::of(None, &file).unwrap(), StateDir::of(None, &other).unwrap());
        assert_ne!(StateDir::of(None, &file).unwrap(), StateDir::of(None, &folder.path().join("two.toml")).unwrap());
    }

    #[test]
    fn a_second_supervisor_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir { root: folder.path().join("state") };
        state.prepare(None).unwrap();
        let held = state.lock().unwrap();
        assert!(state.lock().unwrap_err().to_string().contains("already runs"));
        drop(held);
        state.lock().unwrap();
    }

    #[test]
    fn a_record_comes_back_as_written() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateDir { root: folder.path().to_owned() };
        let me = ProcessId::me().unwrap();
        let role = RoleRecord {
            role: RoleName::Gateway,
            process: me,
            tcp_fd: Some(5),
            tls_fd: Some(7),
            unix_fd: 6,
            wake_fd: None,
            ports_fd: None,
            seats_fd: None,
        };
        let record =
            Record { supervisor: me, config: "/a/weal.toml".into(), version: "1".into(), program: None, roles: vec![role] };
        state.write_record(&record).unwrap();
        assert_eq!(state.record(), Some(record));
        state.forget_record();
        assert_eq!(state.record(), None);
    }

    #[test]
    fn a_folder_that_the_unprivileged_user_cannot_pass_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        let stranger = User { name: "stranger".into(), uid: 4_000_000, gid: 4_000_000, groups: Vec::new(), home: "/".into() };
        let error = check_reachable(folder.path(), &stranger).unwrap_err().to_string();
        assert!(
            error.contains("user stranger cannot pass through") && error.contains(folder.path().to_str().unwrap()),
            "{error}"
        );
    }
}
