//! Users: who runs weal, and whom its unprivileged roles run as.

use std::process::Command;

use anyhow::{Context, bail};

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// Its first group.
    pub gid: u32,
}

/// Whether this process may do everything.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Looks `name` (or a number) up in `/etc/passwd`, and by `getent` where users come from elsewhere.
pub fn find(name: &str) -> anyhow::Result<User> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    if let Some(user) = search(&passwd, name) {
        return Ok(user);
    }
    let elsewhere = Command::new("getent").args(["passwd", name]).output().ok();
    let text = elsewhere.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    match search(&text, name) {
        Some(user) => Ok(user),
        None => bail!("there is no user `{name}` here: create it (useradd --system {name}) or name another in [pool] user"),
    }
}

fn search(passwd: &str, name: &str) -> Option<User> {
    let fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut matching = fields.filter(|fields| fields.len() >= 4 && (fields[0] == name || fields[2] == name));
    let entry = matching.next()?;
    Some(User { name: entry[0].to_owned(), uid: entry[2].parse().ok()?, gid: entry[3].parse().ok()? })
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
        let passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/:/bin/false\n";
        let web = Some(User { name: "web".to_owned(), uid: 33, gid: 34 });
        assert_eq!(search(passwd, "web"), web);
        assert_eq!(search(passwd, "33"), web);
        assert_eq!(search(passwd, "nobody"), None);
    }
}
