//! Users: who runs weal, and whom its unprivileged roles run as.

use std::path::Path;
use std::process::Command;

use anyhow::bail;
use weal_host::users::{CONTROLLER_UID, GATEWAY_UID, UnknownUser, User, Users};

use crate::role_name::RoleName;

/// Whether this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Looks `name` (or a number) up in `/etc/passwd`, and by `getent` where users come from elsewhere.
pub fn find(name: &str) -> anyhow::Result<User> {
    if let Some(user) = Users::read(Path::new("/etc")).ok().and_then(|users| users.find(name).ok()) {
        return Ok(user);
    }
    let elsewhere = Command::new("getent").args(["passwd", name]).output().ok();
    let text = elsewhere.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    match Users::of_passwd(&text).find(name) {
        Ok(user) => Ok(user),
        Err(_) => bail!("there is no user `{name}` here: create it (useradd --system {name}) or leave `user` out"),
    }
}

/// The name of the user with this number; the number where there is none.
pub fn name_of(uid: u32) -> String {
    let user = Users::read(Path::new("/etc")).ok().and_then(|users| users.by_uid(uid));
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

/// Whom the gateway and the controller run as when root starts weal. The node agent stays root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleUsers {
    /// Faces clients, so it may do nothing but pass requests on.
    pub gateway: User,
    /// Decides, and gives the node agent orders.
    pub controller: User,
}

impl RoleUsers {
    /// Those of this machine; `None` when weal is not started by root, so that all run as one user.
    ///
    /// # Errors
    /// There are no accounts for them, and somebody else has the numbers that stand in.
    pub fn of_this_machine() -> anyhow::Result<Option<Self>> {
        if !is_root() {
            return Ok(None);
        }
        Self::among(&Users::read(Path::new("/etc"))?).map(Some)
    }

    fn among(users: &Users) -> anyhow::Result<Self> {
        Ok(Self {
            gateway: account(users, "weal-gateway", GATEWAY_UID)?,
            controller: account(users, "weal-controller", CONTROLLER_UID)?,
        })
    }

    /// Whom `role` runs as; `None` stays root.
    pub fn of(&self, role: RoleName) -> Option<&User> {
        match role {
            RoleName::Gateway => Some(&self.gateway),
            RoleName::Controller => Some(&self.controller),
            RoleName::Node => None,
        }
    }
}

/// The account `name`, which weal's package makes, or else a number that no account has.
fn account(users: &Users, name: &str, number: u32) -> anyhow::Result<User> {
    match users.by_name(name) {
        Ok(user) if user.uid == 0 => bail!("the account {name} is root: give it a number of its own"),
        // Groups of the account would give a role more than it needs.
        Ok(user) => return Ok(User { groups: Vec::new(), ..user }),
        Err(UnknownUser::BadEntry { .. }) => bail!("the entry of {name} in /etc/passwd cannot be read"),
        Err(UnknownUser::NoEntry { .. }) => {}
    }
    if let Some(other) = users.by_uid(number) {
        bail!("the number {number} belongs to the account {}: create {name} (useradd --system {name})", other.name);
    }
    Ok(User { name: name.to_owned(), uid: number, gid: number, groups: Vec::new(), home: "/".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_have_accounts_of_their_own_or_numbers_that_nobody_has() {
        let made = "weal-gateway:x:990:991::/:/bin/false\n";
        let users = RoleUsers::among(&Users::of_passwd(made)).unwrap();
        assert_eq!((users.gateway.uid, users.gateway.gid), (990, 991));
        assert_eq!((users.controller.uid, users.controller.name.as_str()), (CONTROLLER_UID, "weal-controller"));
        assert_eq!((users.of(RoleName::Gateway), users.of(RoleName::Node)), (Some(&users.gateway), None));
        let taken = format!("bob:x:{GATEWAY_UID}:1::/:/bin/sh\n");
        let error = RoleUsers::among(&Users::of_passwd(&taken)).unwrap_err().to_string();
        assert!(error.contains("belongs to the account bob: create weal-gateway"), "{error}");
        let root = RoleUsers::among(&Users::of_passwd("weal-controller:x:0:0::/:/bin/sh\n"));
        assert!(root.unwrap_err().to_string().contains("weal-controller is root"));
    }
}
