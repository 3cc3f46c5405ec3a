//! Users and their groups, from `passwd` and `group`. Only local users are known, not those of a directory service.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::read::{LIST, text};

/// Numbers that systemd keeps for users without accounts (`DynamicUser=`): packages and administrators give none of them away.
pub const DYNAMIC_UIDS: RangeInclusive<u32> = 61_184..=65_519;
/// Those that applications get, one each.
pub const APPLICATION_UIDS: RangeInclusive<u32> = 61_184..=65_517;
/// That of the gateway where there is no account `weal-gateway`.
pub const GATEWAY_UID: u32 = 65_518;
/// That of the controller where there is no account `weal-controller`.
pub const CONTROLLER_UID: u32 = 65_519;

/// A user with all its groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// Its main group.
    pub gid: u32,
    /// Its other groups.
    pub groups: Vec<u32>,
    /// Its home; empty where none is named.
    pub home: PathBuf,
}

/// Why there is no such user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownUser {
    /// Nobody has that name.
    #[error("there is no user `{name}` on this machine")]
    NoEntry {
        /// The name.
        name: String,
    },
    /// Its line has no numbers where they should be.
    #[error("the entry of `{name}` in passwd cannot be read")]
    BadEntry {
        /// The name.
        name: String,
    },
}

/// There is no such group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no group `{name}` on this machine")]
pub struct UnknownGroup {
    /// The name.
    pub name: String,
}

/// The users that `etc` lists.
#[derive(Debug, Clone)]
pub struct Users {
    passwd: String,
    group: String,
}

impl Users {
    /// Reads `passwd` and `group` in `etc`.
    ///
    /// # Errors
    /// `passwd` cannot be read. Without `group`, users have their main group only.
    pub fn read(etc: &Path) -> io::Result<Self> {
        let group = text(&etc.join("group"), LIST).unwrap_or_default();
        Ok(Self { passwd: text(&etc.join("passwd"), LIST)?, group })
    }

    /// The users in lines of the form of `passwd`, without their other groups.
    pub fn of_passwd(passwd: &str) -> Self {
        Self { passwd: passwd.to_owned(), group: String::new() }
    }

    /// The users in the texts of a `passwd` and a `group`.
    pub fn of(passwd: String, group: String) -> Self {
        Self { passwd, group }
    }

    /// The user with this name.
    ///
    /// # Errors
    /// There is none, or its entry cannot be read.
    pub fn by_name(&self, name: &str) -> Result<User, UnknownUser> {
        let fields = entries(&self.passwd).find(|fields| fields.first() == Some(&name));
        let fields = fields.ok_or_else(|| UnknownUser::NoEntry { name: name.to_owned() })?;
        self.user(&fields).ok_or_else(|| UnknownUser::BadEntry { name: name.to_owned() })
    }

    /// The first user with this number.
    pub fn by_uid(&self, uid: u32) -> Option<User> {
        self.user(&entries(&self.passwd).find(|fields| fields.get(2).and_then(|text| text.parse().ok()) == Some(uid))?)
    }

    /// The user with this name, or else with this number. A number needs no account, unless it is one that systemd or weal gives away.
    ///
    /// # Errors
    /// There is none, or its entry cannot be read.
    pub fn find(&self, name: &str) -> Result<User, UnknownUser> {
        self.by_name(name).or_else(|error| name.parse().ok().and_then(|uid| self.by_number(uid)).ok_or(error))
    }

    fn by_number(&self, uid: u32) -> Option<User> {
        let is_free = uid != 0 && uid != u32::MAX && !DYNAMIC_UIDS.contains(&uid);
        let bare = || User { name: uid.to_string(), uid, gid: uid, groups: Vec::new(), home: "/".into() };
        self.by_uid(uid).or_else(|| is_free.then(bare))
    }

    /// The number of the group with this name, or else the number that `name` is.
    ///
    /// # Errors
    /// There is no such group.
    pub fn group_id(&self, name: &str) -> Result<u32, UnknownGroup> {
        let named = entries(&self.group).find(|fields| fields.first() == Some(&name));
        let number = named.and_then(|fields| fields.get(2)?.parse().ok()).or_else(|| name.parse().ok());
        number.ok_or_else(|| UnknownGroup { name: name.to_owned() })
    }

    /// True when a group has this number.
    pub fn has_group(&self, gid: u32) -> bool {
        let number = |fields: &Vec<&str>, index: usize| fields.get(index).and_then(|text| text.parse().ok());
        entries(&self.group).any(|fields| number(&fields, 2) == Some(gid))
            || entries(&self.passwd).any(|fields| number(&fields, 3) == Some(gid))
    }

    fn user(&self, fields: &[&str]) -> Option<User> {
        let number = |index: usize| fields.get(index)?.parse::<u32>().ok();
        let (name, uid, gid) = (*fields.first()?, number(2)?, number(3)?);
        let home = PathBuf::from(fields.get(5).copied().unwrap_or_default());
        let is_member = |fields: &Vec<&str>| fields.get(3).is_some_and(|members| members.split(',').any(|one| one == name));
        let groups = entries(&self.group).filter(is_member).filter_map(|fields| fields.get(2)?.parse().ok()).collect();
        Some(User { name: name.to_owned(), uid, gid, groups, home })
    }
}

fn entries(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_user_comes_with_all_its_groups() {
        let etc = tempfile::tempdir().unwrap();
        let passwd = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:w:/srv/web:/bin/false\nbad:x:no:1::/:\n";
        fs::write(etc.path().join("passwd"), passwd).unwrap();
        fs::write(etc.path().join("group"), "web:x:34:\nssl:x:110:other,web\nmail:x:8:website\n").unwrap();
        let users = Users::read(etc.path()).unwrap();
        let web = users.by_name("web").unwrap();
        assert_eq!((web.uid, web.gid, &web.groups, &web.home), (33, 34, &vec![110], &PathBuf::from("/srv/web")));
        assert_eq!(users.by_uid(33), Some(web.clone()));
        assert_eq!((users.find("web"), users.find("33")), (Ok(web.clone()), Ok(web)));
        assert!(users.has_group(110) && users.has_group(34) && !users.has_group(33));
        let unknown = |name: &str| UnknownUser::NoEntry { name: name.to_owned() };
        assert_eq!((users.by_name("nope"), users.by_name("33")), (Err(unknown("nope")), Err(unknown("33"))));
        assert_eq!(users.by_name("bad"), Err(UnknownUser::BadEntry { name: "bad".to_owned() }));
        assert!(Users::read(&etc.path().join("none")).is_err());
    }
}
