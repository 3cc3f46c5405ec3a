//! Users, and becoming one of them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Uid};
use serde::{Deserialize, Serialize};

/// A user with all its groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// Its main group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
    /// Its home.
    pub home: PathBuf,
}

/// The user `name`, from `passwd` and `group` in `etc`. Only local users are known, not those of a directory service.
pub fn find_user(etc: &Path, name: &str) -> Result<Identity, String> {
    let passwd = fs::read_to_string(etc.join("passwd")).map_err(|error| format!("{}/passwd: {error}", etc.display()))?;
    let by_name = |fields: &Vec<&str>| fields.first() == Some(&name);
    let fields = entries(&passwd).find(by_name).ok_or_else(|| format!("there is no user `{name}` on this machine"))?;
    let number = |index: usize| fields.get(index).and_then(|text| text.parse::<u32>().ok());
    let (Some(uid), Some(gid), Some(home)) = (number(2), number(3), fields.get(5)) else {
        return Err(format!("the entry of `{name}` in {}/passwd cannot be read", etc.display()));
    };
    let group = fs::read_to_string(etc.join("group")).unwrap_or_default();
    let is_member = |fields: &Vec<&str>| fields.get(3).is_some_and(|members| members.split(',').any(|member| member == name));
    let groups = entries(&group).filter(is_member).filter_map(|fields| fields.get(2)?.parse().ok()).collect();
    Ok(Identity { name: name.to_owned(), uid, gid, groups, home: PathBuf::from(home) })
}

/// The name and home of the user with number `uid`.
pub fn name_and_home(etc: &Path, uid: u32) -> Option<(String, PathBuf)> {
    let passwd = fs::read_to_string(etc.join("passwd")).ok()?;
    let fields = entries(&passwd).find(|fields| fields.get(2).is_some_and(|text| *text == uid.to_string()))?;
    Some(((*fields.first()?).to_owned(), PathBuf::from(fields.get(5)?)))
}

fn entries(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

/// Makes this process `user`, for good, between fork and exec: no program that it starts gets more rights than it has.
///
/// `None` keeps the user, without the way up all the same.
pub fn become_user(user: Option<&Identity>) -> io::Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(user) = user {
        let groups: Vec<Gid> = std::iter::once(user.gid).chain(user.groups.iter().copied()).map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        // The raw system calls, per thread: there is only one thread here.
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_comes_with_all_its_groups() {
        let etc = tempfile::tempdir().unwrap();
        fs::write(etc.path().join("passwd"), "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:w:/srv/web:/bin/false\n").unwrap();
        fs::write(etc.path().join("group"), "web:x:34:\nssl:x:110:other,web\nmail:x:8:website\n").unwrap();
        let user = find_user(etc.path(), "web").unwrap();
        assert_eq!((user.uid, user.gid, user.groups, user.home), (33, 34, vec![110], PathBuf::from("/srv/web")));
        assert_eq!(find_user(etc.path(), "nope").unwrap_err(), "there is no user `nope` on this machine");
        assert_eq!(name_and_home(etc.path(), 33).unwrap().0, "web");
    }
}
