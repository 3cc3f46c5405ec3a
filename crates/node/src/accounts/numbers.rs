//! Users of the applications' own: numbers that no account has.
//!
//! An application whose config names no user gets a number of systemd's range for dynamic users, as a unit with `DynamicUser=` does. The number
//! stays the application's, because its files carry it: `users.json` in the agent's folder keeps it. A number is taken when an account has it,
//! when systemd gave it to a unit, when another application of this machine holds it, or, before it is first given, when a process runs as it.
//!
//! Jobs of one name are an application here, and whoever submits jobs chooses their names. So jobs have a part of the range only, and the number
//! of a name is given to another once none of its jobs has a folder or a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use weal_host::Proc;
use weal_host::users::{APPLICATION_UIDS, Users};
use weal_model::AppName;
use weal_model::naming::{account_in, is_job_account};

use crate::files::{at, read_json, write_json};
use crate::hash::hash;

/// Which application has which number, in the agent's folder.
pub const NUMBERS_FILE: &str = "users.json";
/// Numbers of the jobs of one pool: a quarter of the range. Names of jobs that are all under way, or whose results somebody may still want, are
/// fewer.
const MOST_OF_JOBS: usize = 1000;
/// Where systemd writes down the numbers that it gave to units.
const OF_SYSTEMD: &str = "run/systemd/dynamic-uid";

/// Why an application gets no number.
#[derive(Debug, thiserror::Error)]
pub enum NoNumber {
    /// The list of them cannot be read or written.
    #[error("its user cannot be made: {0}")]
    System(#[from] io::Error),
    /// Every number of the range is taken.
    #[error("its user cannot be made: all numbers from {} to {} are taken; name a user with `user`", .range.start(), .range.end())]
    AllTaken {
        /// The range.
        range: RangeInclusive<u32>,
    },
    /// Too many names of jobs have one.
    #[error("its user cannot be made: jobs of {MOST_OF_JOBS} other names have folders here; jobs of one name share a user")]
    ManyJobs,
}

/// Gives numbers to applications.
#[derive(Debug)]
pub struct Numbers {
    /// `/`, or a folder that stands for it.
    root: PathBuf,
    /// The pool's state directory.
    state: PathBuf,
    /// Claims of all pools of this machine, a file each.
    claims: PathBuf,
    range: RangeInclusive<u32>,
    most_of_jobs: usize,
    turn: Mutex<()>,
}

impl Numbers {
    /// For the pool whose state directory is `state`, on the machine whose files are below `root`.
    pub fn new(root: &Path, state: &Path) -> Self {
        Self {
            root: root.to_owned(),
            state: state.canonicalize().unwrap_or_else(|_| state.to_owned()),
            claims: root.join("run/weal/users"),
            range: APPLICATION_UIDS,
            most_of_jobs: MOST_OF_JOBS,
            turn: Mutex::default(),
        }
    }

    /// The numbers that applications of this pool have.
    pub fn given(state: &Path) -> io::Result<BTreeMap<AppName, u32>> {
        Ok(read_json(&state.join("node").join(NUMBERS_FILE))?.unwrap_or_default())
    }

    /// The numbers that applications of this pool have and that no other pool of this machine has claimed since. Where the pool's own list was
    /// removed, its claims tell, but for those that somebody else has by now.
    pub fn held(&self) -> io::Result<BTreeSet<u32>> {
        let given = Self::given(&self.state)?;
        let is_mine = |(app, number): &(AppName, u32)| self.holder(*number).is_ok_and(|holder| holder == self.mine(app));
        let mut held: BTreeSet<u32> = given.into_iter().filter(is_mine).map(|(_, number)| number).collect();
        let users = Users::read(&self.root.join("etc"))?;
        let is_of_pool = |number: &u32| {
            let holder = self.holder(*number).unwrap_or_default();
            holder.lines().next().is_some_and(|state| Path::new(state) == self.state) && !self.is_elsewhere(&users, *number)
        };
        held.extend(self.claimed().filter(is_of_pool));
        Ok(held)
    }

    /// The numbers that pools of this machine have claimed.
    fn claimed(&self) -> impl Iterator<Item = u32> {
        let claims = fs::read_dir(&self.claims).into_iter().flatten().flatten();
        claims.filter_map(|claim| claim.file_name().to_str()?.parse().ok())
    }

    /// The number of `app`: that which it has, as long as nobody else took it, or a new one.
    pub fn of(&self, app: &AppName) -> Result<u32, NoNumber> {
        let _turn = self.turn.lock().expect("nothing panics while it is held");
        let users = Users::read(&self.root.join("etc"))?;
        let mut given = Self::given(&self.state)?;
        let _others = self.lock_claims()?;
        if let Some(number) = given.get(app).copied()
            && !self.is_elsewhere(&users, number)
            && self.claim(number, app)?
        {
            return Ok(number);
        }
        given.remove(app);
        let busy = self.in_use();
        if is_job_account(app) {
            self.make_room(&mut given, &busy)?;
        }
        let mut candidates = self.candidates(app).filter(|number| {
            !given.values().any(|taken| taken == number) && !busy.contains(number) && !self.is_elsewhere(&users, *number)
        });
        let number = loop {
            let candidate = candidates.next().ok_or_else(|| NoNumber::AllTaken { range: self.range.clone() })?;
            if self.claim(candidate, app)? {
                break candidate;
            }
        };
        given.insert(app.clone(), number);
        write_json(&self.state.join("node").join(NUMBERS_FILE), &given)?;
        Ok(number)
    }

    /// Takes the numbers back of names whose jobs are gone, once jobs have as many as they may have.
    fn make_room(&self, given: &mut BTreeMap<AppName, u32>, busy: &BTreeSet<u32>) -> Result<(), NoNumber> {
        let count = |given: &BTreeMap<AppName, u32>| given.keys().filter(|app| is_job_account(app)).count();
        if count(given) < self.most_of_jobs {
            return Ok(());
        }
        let folders = names_of_jobs(&self.state.join("data"))?;
        let gone = |app: &AppName, number: &u32| is_job_account(app) && !folders.contains(app) && !busy.contains(number);
        let freed: Vec<(AppName, u32)> = given.extract_if(.., |app, number| gone(app, number)).collect();
        for (app, number) in
            freed.iter().filter(|(app, number)| self.holder(*number).is_ok_and(|holder| holder == self.mine(app)))
        {
            tracing::debug!(%app, number, "no job of this name is left: its number is free again");
            fs::remove_file(self.claims.join(number.to_string()))?;
        }
        if count(given) < self.most_of_jobs { Ok(()) } else { Err(NoNumber::ManyJobs) }
    }

    /// All of the range, beginning somewhere in it, so that two pools rarely try the same.
    fn candidates(&self, app: &AppName) -> impl Iterator<Item = u32> {
        let (first, last) = (*self.range.start(), *self.range.end());
        let length = u64::from(last - first) + 1;
        let begin = first + u32::try_from(hash(&self.state.join(app.as_str())) % length).unwrap_or(0);
        (begin..=last).chain(first..begin)
    }

    /// True when an account, a group or a unit of systemd's has the number.
    fn is_elsewhere(&self, users: &Users, number: u32) -> bool {
        users.by_uid(number).is_some()
            || users.has_group(number)
            || self.root.join(OF_SYSTEMD).join(number.to_string()).symlink_metadata().is_ok()
    }

    /// The users that processes run as.
    fn in_use(&self) -> BTreeSet<u32> {
        let proc = Proc::new(self.root.join("proc"));
        proc.pids().into_iter().flat_map(|pid| proc.users(pid)).collect()
    }

    fn lock_claims(&self) -> io::Result<File> {
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&self.claims).map_err(at(&self.claims))?;
        let folder = File::open(&self.claims)?;
        folder.lock()?;
        Ok(folder)
    }

    /// How a claim of `app` reads.
    fn mine(&self, app: &AppName) -> String {
        format!("{}\n{app}\n", self.state.display())
    }

    /// Who has claimed the number.
    fn holder(&self, number: u32) -> io::Result<String> {
        fs::read_to_string(self.claims.join(number.to_string()))
    }

    /// Claims the number among all pools of this machine; false when another application holds it. The claim of a pool whose state directory is
    /// gone counts no more.
    fn claim(&self, number: u32, app: &AppName) -> io::Result<bool> {
        let (path, mine) = (self.claims.join(number.to_string()), self.mine(app));
        match self.holder(number) {
            Ok(holder) if holder == mine => return Ok(true),
            Ok(holder) if holder.lines().next().is_some_and(|state| Path::new(state).is_dir()) => return Ok(false),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path)(error)),
            _ => {}
        }
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&path).map_err(at(&path))?;
        file.write_all(mine.as_bytes()).map_err(at(&path))?;
        Ok(true)
    }
}

/// The names of the jobs that have a folder in `data`, as their numbers are given to them: `job.NAME` for the folder `job.NAME-4`.
fn names_of_jobs(data: &Path) -> io::Result<BTreeSet<AppName>> {
    let entries = match fs::read_dir(data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let folder = entry?.file_name().to_string_lossy().into_owned();
        names.insert(account_in(&folder));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with one account, and the state directories of two pools.
    fn machine() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let root = tempfile::tempdir().unwrap();
        for folder in ["etc", "proc", "run/systemd/dynamic-uid", "one/node", "two/node"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        fs::write(root.path().join("etc/passwd"), "root:x:0:0:root:/root:/bin/sh\n").unwrap();
        let (one, two) = (root.path().join("one"), root.path().join("two"));
        (root, one, two)
    }

    #[test]
    fn an_application_keeps_its_number_and_no_other_gets_it() {
        let (root, one, two) = machine();
        let pool = Numbers::new(root.path(), &one);
        let (shop, feed) = (pool.of(&"shop".into()).unwrap(), pool.of(&"feed".into()).unwrap());
        assert!(APPLICATION_UIDS.contains(&shop) && APPLICATION_UIDS.contains(&feed) && shop != feed);
        assert_eq!(Numbers::new(root.path(), &one).of(&"shop".into()).unwrap(), shop);
        assert_eq!(Numbers::given(&one).unwrap(), BTreeMap::from([("shop".into(), shop), ("feed".into(), feed)]));
        assert_eq!(pool.held().unwrap(), BTreeSet::from([shop, feed]));
        let narrow = |state: &Path| Numbers { range: shop..=shop, ..Numbers::new(root.path(), state) };
        let error = narrow(&two).of(&"shop".into()).unwrap_err();
        assert!(matches!(error, NoNumber::AllTaken { .. }), "{error}");
        fs::remove_dir_all(&one).unwrap();
        assert_eq!(narrow(&two).of(&"shop".into()).unwrap(), shop, "the first pool is gone");
    }

    #[test]
    fn the_numbers_of_a_pool_whose_list_was_removed_are_known_by_their_claims() {
        let (root, one, two) = machine();
        let pool = Numbers::new(root.path(), &one);
        let (shop, feed) = (pool.of(&"shop".into()).unwrap(), pool.of(&"feed".into()).unwrap());
        Numbers::new(root.path(), &two).of(&"other".into()).unwrap();
        fs::remove_file(one.join("node").join(NUMBERS_FILE)).unwrap();
        assert_eq!(pool.held().unwrap(), BTreeSet::from([shop, feed]));
        fs::write(root.path().join("etc/passwd"), format!("late:x:{feed}:1::/:/bin/false\n")).unwrap();
        assert_eq!(pool.held().unwrap(), BTreeSet::from([shop]), "an account has the other one by now");
    }

    #[test]
    fn a_number_that_an_account_a_unit_or_a_process_has_is_left_alone() {
        let (root, one, _) = machine();
        let first = *APPLICATION_UIDS.start();
        let pool = Numbers { range: first..=first + 3, ..Numbers::new(root.path(), &one) };
        fs::write(root.path().join("etc/passwd"), format!("web:x:{first}:1::/:/bin/false\n")).unwrap();
        fs::write(root.path().join("run/systemd/dynamic-uid").join((first + 1).to_string()), "unit\n").unwrap();
        fs::create_dir(root.path().join("proc/7")).unwrap();
        fs::write(root.path().join("proc/7/status"), format!("Name:\tx\nUid:\t{0}\t{0}\t{0}\t{0}\n", first + 2)).unwrap();
        assert_eq!(pool.of(&"shop".into()).unwrap(), first + 3);
    }

    #[test]
    fn jobs_take_a_part_of_the_range_and_names_whose_jobs_are_gone_make_room() {
        let (root, one, _) = machine();
        let pool = Numbers { most_of_jobs: 2, ..Numbers::new(root.path(), &one) };
        fs::create_dir_all(one.join("data/job.build-7")).unwrap();
        let build = pool.of(&"job.build".into()).unwrap();
        let test = pool.of(&"job.test".into()).unwrap();
        fs::create_dir(one.join("data/job.lint-1")).unwrap();
        pool.of(&"job.lint".into()).unwrap();
        assert!(!Numbers::given(&one).unwrap().contains_key(&AppName::from("job.test")), "none of its jobs is left");
        assert!(!root.path().join("run/weal/users").join(test.to_string()).exists());
        assert!(matches!(pool.of(&"job.third".into()), Err(NoNumber::ManyJobs)));
        assert_eq!(pool.of(&"job.build".into()).unwrap(), build, "who has one keeps it");
        assert!(pool.of(&"shop".into()).is_ok(), "applications have theirs");
    }

    #[test]
    fn a_number_that_an_account_got_later_is_given_up() {
        let (root, one, _) = machine();
        let pool = Numbers::new(root.path(), &one);
        let before = pool.of(&"shop".into()).unwrap();
        fs::write(root.path().join("etc/passwd"), format!("late:x:{before}:1::/:/bin/false\n")).unwrap();
        assert_ne!(pool.of(&"shop".into()).unwrap(), before);
    }
}
