//! Whom instances run as.
//!
//! | config | agent is root | agent is not root |
//! | --- | --- | --- |
//! | no `user` | a [number](numbers) of the application's own | the agent's user |
//! | `user = "NAME"` | that user, if root's config [allows](permits) it and it is none of weal's own | that user, if it is the agent's |
//! | `user = "root"` | root, if root's config allows exactly this program | refused |

pub mod numbers;
pub mod permits;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use weal_host::users::{UnknownGroup, UnknownUser, User, Users};
use weal_protocol::Refusal;
use weal_protocol::node::InstanceSpec;

use numbers::{NoNumber, Numbers};
use permits::Permits;

use crate::confidential::Confidential;
use crate::folder::Owner;

/// Why an instance gets no user.
#[derive(Debug, thiserror::Error)]
pub enum NoAccount {
    /// There is no such user.
    #[error(transparent)]
    NoUser(#[from] UnknownUser),
    /// There is no such group.
    #[error(transparent)]
    NoGroup(#[from] UnknownGroup),
    /// It cannot be told which users there are, or which of them are allowed.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Only root may run programs as others.
    #[error("`user = \"{user}\"` needs a weal that root started: start weal as root, or leave `user` out")]
    NotRoot {
        /// Whom it is to run as.
        user: String,
    },
    /// Who stays who they are keep their group.
    #[error("`group = \"{group}\"` needs a weal that root started, and a `user` other than root")]
    GroupOfOwn {
        /// The group.
        group: String,
    },
    /// It may not run as this user.
    #[error(transparent)]
    NotAllowed(#[from] Refusal),
    /// It gets no number.
    #[error(transparent)]
    NoNumber(#[from] NoNumber),
}

impl From<NoAccount> for Refusal {
    /// Why an instance may not run as it was asked for.
    fn from(error: NoAccount) -> Self {
        match error {
            NoAccount::NotAllowed(refusal) => refusal,
            error => Self::StartFailed { detail: error.to_string() },
        }
    }
}

/// Whom an instance runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Account {
    /// The agent's own user, if it has an entry.
    Own(Option<User>),
    /// Another one.
    Other(User),
}

impl Account {
    /// Whom the instance's process has to become.
    pub fn to_become(&self) -> Option<&User> {
        match self {
            Self::Own(_) => None,
            Self::Other(user) => Some(user),
        }
    }

    /// Whose its files are; `None` where the agent cannot give them away.
    pub fn owner(&self) -> Option<Owner> {
        match self {
            Self::Own(_) => rustix::process::geteuid().is_root().then_some(Owner::ROOT),
            Self::Other(user) => Some(Owner { uid: user.uid, gid: user.gid }),
        }
    }

    /// What its environment says.
    pub fn person(&self) -> Option<&User> {
        match self {
            Self::Own(user) => user.as_ref(),
            Self::Other(user) => Some(user),
        }
    }
}

/// The users of this machine, as far as instances may run as them.
#[derive(Debug)]
pub struct Accounts {
    /// `/`, or a folder that stands for it.
    root: PathBuf,
    state: PathBuf,
    numbers: Numbers,
    /// Users of weal's own roles.
    roles: BTreeSet<u32>,
    own: u32,
}

impl Accounts {
    /// Those of the machine whose files are below `root`, for the pool whose state directory is `state` and whose roles run as `roles`.
    pub fn new(root: &Path, state: &Path, roles: BTreeSet<u32>) -> Self {
        let own = rustix::process::geteuid().as_raw();
        Self { root: root.to_owned(), state: state.to_owned(), numbers: Numbers::new(root, state), roles, own }
    }

    /// Whom an instance from `spec`, with its data in `data`, runs as.
    pub fn of(&self, spec: &InstanceSpec, data: &Path) -> Result<Account, NoAccount> {
        let account = self.without_group(spec, data)?;
        let Some(group) = &spec.process.group else { return Ok(account) };
        match account {
            Account::Other(user) => Ok(Account::Other(User { gid: self.users()?.group_id(group)?, ..user })),
            Account::Own(_) => Err(NoAccount::GroupOfOwn { group: group.clone() }),
        }
    }

    fn without_group(&self, spec: &InstanceSpec, data: &Path) -> Result<Account, NoAccount> {
        self.check(spec)?;
        match &spec.user {
            Some(name) => self.named(spec, name),
            None if self.own == 0 => {
                let number = self.numbers.of(spec.owner())?;
                let name = format!("weal-{}", spec.owner());
                Ok(Account::Other(User { name, uid: number, gid: number, groups: Vec::new(), home: data.to_owned() }))
            }
            // Without an entry it runs all the same.
            None => Ok(Account::Own(self.users().ok().and_then(|users| users.by_uid(self.own)))),
        }
    }

    /// Whether root allows what `spec` asks for: its user, its sandbox, what else its processes get, and whose folder.
    pub fn check(&self, spec: &InstanceSpec) -> Result<(), NoAccount> {
        spec.user.as_ref().map_or(Ok(()), |name| self.named(spec, name).map(drop))?;
        // Whoever orders from an agent that is not root is its own user, and could start the program without it.
        if self.own != 0 {
            return Ok(());
        }
        let (permits, users) = (Permits::read(&self.state)?, self.users()?);
        permits.check_sandbox(spec)?;
        permits.check_process(spec)?;
        Ok(permits.check_owner(spec, |name| users.find(name).is_ok_and(|user| user.uid == 0))?)
    }

    fn named(&self, spec: &InstanceSpec, name: &str) -> Result<Account, NoAccount> {
        let user = self.users()?.find(name)?;
        if self.own != 0 {
            let is_own = user.uid == self.own;
            return if is_own { Ok(Account::Own(Some(user))) } else { Err(NoAccount::NotRoot { user: user.name }) };
        }
        if self.roles.contains(&user.uid) {
            return Err(Refusal::UserOfWeal { app: spec.app.clone(), user: user.name }.into());
        }
        let is_root = user.uid == 0;
        Permits::read(&self.state)?.check(spec, name, is_root)?;
        Ok(if is_root { Account::Own(Some(user)) } else { Account::Other(user) })
    }

    /// What applications are told and nobody else is.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn confidential(&self) -> io::Result<Confidential> {
        Confidential::read(&self.state)
    }

    /// The images that root's config names.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn images(&self) -> io::Result<BTreeSet<String>> {
        Ok(Permits::read(&self.state)?.images())
    }

    fn users(&self) -> io::Result<Users> {
        Users::read(&self.root.join("etc"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weal_model::{AppSpec, PoolSpec};

    use super::*;

    /// What an instance of `app` is started from.
    pub fn spec_of(app: &AppSpec) -> InstanceSpec {
        InstanceSpec::of(app, format!("{}-1", app.name).as_str().into(), "n1".into())
    }

    /// An agent of this user on a machine with a few accounts.
    fn accounts(own: u32) -> (tempfile::TempDir, Accounts) {
        let root = tempfile::tempdir().unwrap();
        for folder in ["etc", "proc", "state/node"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let passwd = "root:x:0:0::/root:/bin/sh\nweb:x:33:34::/srv:/bin/false\nweal-gateway:x:999:999::/:/bin/false\n";
        std::fs::write(root.path().join("etc/passwd"), passwd).unwrap();
        let state = root.path().join("state");
        let pool = |user: &str| {
            let app = AppSpec { user: Some(user.to_owned()), ..AppSpec::example("shop") };
            PoolSpec { apps: BTreeMap::from([(app.name.clone(), app)]), ..PoolSpec::example() }
        };
        let all = ["web", "weal-gateway", "root"].map(|user| Permits::of(&pool(user)));
        all.into_iter().fold(Permits::default(), Permits::and).write(&state).unwrap();
        let accounts = Accounts { own, ..Accounts::new(root.path(), &state, BTreeSet::from([999])) };
        (root, accounts)
    }

    fn shop(user: Option<&str>) -> InstanceSpec {
        spec_of(&AppSpec { user: user.map(str::to_owned), ..AppSpec::example("shop") })
    }

    #[test]
    fn a_root_agent_gives_an_application_without_a_user_one_of_its_own() {
        let (_root, accounts) = accounts(0);
        let free = spec_of(&AppSpec::example("free"));
        let Account::Other(user) = accounts.of(&free, Path::new("/data/free")).unwrap() else { panic!("it runs as root") };
        assert_eq!((user.name.as_str(), user.gid, user.groups.len()), ("weal-free", user.uid, 0));
        assert_eq!(user.home, Path::new("/data/free"));
    }

    #[test]
    fn no_application_runs_as_a_user_of_weals_own() {
        let (_root, accounts) = accounts(0);
        let error = accounts.check(&shop(Some("weal-gateway"))).unwrap_err();
        let refusal = Refusal::UserOfWeal { app: "shop".into(), user: "weal-gateway".to_owned() };
        assert!(matches!(&error, NoAccount::NotAllowed(refused) if *refused == refusal), "{error}");
    }

    #[test]
    fn root_and_others_are_become_where_roots_config_names_them() {
        let (_root, accounts) = accounts(0);
        let account = |user: &str| accounts.of(&shop(Some(user)), Path::new("/d"));
        assert!(matches!(account("web"), Ok(Account::Other(user)) if user.uid == 33));
        assert!(matches!(account("root"), Ok(Account::Own(Some(user))) if user.uid == 0));
        assert!(matches!(account("33"), Err(NoAccount::NotAllowed(Refusal::UserNotAllowed { .. }))));
        assert!(matches!(account("nope"), Err(NoAccount::NoUser(_))));
    }

    #[test]
    fn an_agent_that_is_not_root_runs_everything_as_itself() {
        let (_root, accounts) = accounts(33);
        let account = |user: Option<&str>| accounts.of(&shop(user), Path::new("/d"));
        assert!(matches!(account(None), Ok(Account::Own(Some(user))) if user.name == "web"));
        assert!(matches!(account(Some("web")), Ok(Account::Own(_))));
        assert!(matches!(account(Some("root")), Err(NoAccount::NotRoot { .. })));
    }
}
