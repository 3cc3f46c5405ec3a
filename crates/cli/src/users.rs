//! Users: who runs weal, and whom its unprivileged roles run as.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use weal_host::users::{User, Users};

/// Whether this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Looks `name` (or a number) up in `/etc/passwd`, and by `getent` where users come from elsewhere.
pub fn find(name: &str) -> anyhow::Result<User> {
    if let Some(user) = Users::read(Path::new("/etc")).ok().and_then(|users| search(&users, name)) {
        return Ok(user);
    }
    let elsewhere = Command::new("getent").args(["passwd", name]).output().ok();
    let text = elsewhere.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    match search(&Users::of_passwd(&text), name) {
        Some(user) => Ok(user),
        None => bail!("there is no user `{name}` here: create it (useradd --system {name}) or name another in [pool] user"),
    }
}

fn search(users: &Users, name: &str) -> Option<User> {
    users.by_name(name).ok().or_else(|| users.by_uid(name.parse().ok()?))
}

/// The user that gateway and controller run as: `name` when root starts weal, otherwise whoever does (`None`).
pub fn unprivileged(name: &str) -> anyhow::Result<Option<User>> {
    if !is_root() {
        return Ok(None);
    }
    let user = find(name).context("cannot give up privileges")?;
    Ok((user.uid != 0).then_some(user))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_name_and_by_number() {
        let users = Users::of_passwd("root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:w:/:/bin/false\n");
        let found = |name: &str| search(&users, name).map(|user| (user.name, user.uid, user.gid));
        assert_eq!(found("web"), Some(("web".to_owned(), 33, 34)));
        assert_eq!(found("33"), found("web"));
        assert_eq!(found("nobody"), None);
    }
}
