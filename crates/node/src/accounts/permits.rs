//! Which applications may run as which users, and how far their sandboxes are open.
//!
//! The agent takes orders from the controller, which is not root. A controller that somebody has taken over must not start programs as
//! whomever it likes. So root writes down which users its config names, in a file that nobody else can write, and the agent starts programs as
//! these users and as the applications' own numbers only. As root it starts exactly what the config says, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use serde::{Deserialize, Serialize};
use weal_model::{AppName, AppSpec, HealthProbe, PoolSpec, ProcessSpec, SandboxSpec, naming};
use weal_protocol::Refusal;
use weal_protocol::node::InstanceSpec;

use crate::files::{at, read_own, write_json};

/// Where the list is, in the state directory.
pub const PERMITS_FILE: &str = "permits.json";
/// The longest list that is read. A permit takes some hundred bytes.
const LONGEST: u64 = 16 << 20;

/// What each application of a config of root's may be: its user, its sandbox, and what it starts.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Permits(Vec<Permit>);

/// One application may run as one user, in one sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Permit {
    app: AppName,
    /// The application whose folder and user it has, where that is not its own.
    #[serde(default)]
    step_of: Option<AppName>,
    /// `None` is a user of its own.
    user: Option<String>,
    #[serde(default)]
    sandbox: SandboxSpec,
    /// What it starts: all that it may start as root.
    program: Program,
}

/// What an application starts, with all that decides what that does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Program {
    run: Vec<String>,
    cwd: String,
    env: BTreeMap<String, String>,
    needs: BTreeSet<AppName>,
    probe: HealthProbe,
    on_resume: Vec<String>,
    #[serde(default)]
    process: ProcessSpec,
    #[serde(default)]
    pass_socket: bool,
}

impl Permits {
    /// What `pool` allows.
    pub fn of(pool: &PoolSpec) -> Self {
        Self(pool.apps.values().map(Permit::of).collect())
    }

    /// What either allows: while one config takes the place of another, instances of both run.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        let more: Vec<Permit> = other.0.into_iter().filter(|permit| !self.0.contains(permit)).collect();
        self.0.extend(more);
        self
    }

    /// The list in the state directory `state`; without a file it is empty.
    ///
    /// # Errors
    /// It cannot be read, or somebody else than the user of this process could have written it.
    pub fn read(state: &Path) -> io::Result<Self> {
        let path = state.join(PERMITS_FILE);
        match read_own(&path, LONGEST)? {
            None => Ok(Self::default()),
            Some(text) => serde_json::from_slice(&text).map_err(|error| at(&path)(error.into())),
        }
    }

    /// Puts the list in place of that in the state directory `state`.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, state: &Path) -> io::Result<()> {
        let path = state.join(PERMITS_FILE);
        write_json(&path, self).map_err(at(&path))
    }

    /// The users that it names.
    pub fn users(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|permit| permit.user.as_deref())
    }

    /// The images that it names.
    pub fn images(&self) -> BTreeSet<String> {
        self.0.iter().filter_map(|permit| permit.program.process.image.clone()).collect()
    }

    /// Whether `spec` may run as the user that it names, which is root when `is_root`.
    ///
    /// # Errors
    /// Root has not allowed it.
    pub fn check(&self, spec: &InstanceSpec, user: &str, is_root: bool) -> Result<(), Refusal> {
        let mut permits = self.0.iter().filter(|permit| permit.is_for(spec) && permit.user.as_deref() == Some(user)).peekable();
        if permits.peek().is_none() {
            return Err(Refusal::UserNotAllowed { app: spec.app.clone(), user: user.to_owned() });
        }
        if is_root && !permits.any(|permit| permit.program.is_that_of(spec)) {
            return Err(Refusal::OtherProgramAsRoot { app: spec.app.clone() });
        }
        Ok(())
    }

    /// Whether `spec` may be confined as it says: strictly always, less as the config says.
    ///
    /// # Errors
    /// Root has not allowed it.
    pub fn check_sandbox(&self, spec: &InstanceSpec) -> Result<(), Refusal> {
        let is_permitted = |permit: &Permit| permit.is_for(spec) && permit.user == spec.user && permit.sandbox == spec.sandbox;
        if spec.sandbox == SandboxSpec::default() || self.0.iter().any(is_permitted) {
            return Ok(());
        }
        Err(Refusal::SandboxNotAllowed { app: spec.app.clone() })
    }

    /// Whether `spec` may have what not every application may: it gets secrets, another group, more of a resource and an image only when it starts
    /// what the config says.
    ///
    /// # Errors
    /// Root has not allowed it.
    pub fn check_process(&self, spec: &InstanceSpec) -> Result<(), Refusal> {
        let is_permitted = |permit: &Permit| permit.is_for(spec) && permit.user == spec.user && permit.program.is_that_of(spec);
        if !spec.process.is_privileged() || self.0.iter().any(is_permitted) {
            return Ok(());
        }
        Err(Refusal::ProcessNotAllowed { app: spec.app.clone() })
    }

    /// Whether `spec` may have the folder and the user of its owner. What an application reads that runs as root, or that has secrets, nothing else
    /// may write; and no other program may look into its processes. `is_root` tells which names of users are root's.
    ///
    /// # Errors
    /// The owner is such an application, and root's config says something else.
    pub fn check_owner(&self, spec: &InstanceSpec, is_root: impl Fn(&str) -> bool) -> Result<(), Refusal> {
        let is_guarded = |permit: &Permit| {
            permit.owner() == spec.owner()
                && (permit.program.process.is_confidential() || permit.user.as_deref().is_some_and(&is_root))
        };
        let is_permitted = |permit: &Permit| permit.is_for(spec) && permit.user == spec.user && permit.program.is_that_of(spec);
        if !self.0.iter().any(is_guarded) || self.0.iter().any(is_permitted) {
            return Ok(());
        }
        Err(Refusal::FolderNotAllowed { app: spec.app.clone(), owner: spec.owner().clone() })
    }
}

impl Permit {
    fn of(app: &AppSpec) -> Self {
        Self {
            app: app.name.clone(),
            step_of: app.step_of.clone(),
            user: app.user.clone(),
            sandbox: app.sandbox.clone(),
            program: Program::of(app),
        }
    }

    /// The application whose folder and user it has.
    fn owner(&self) -> &AppName {
        self.step_of.as_ref().unwrap_or(&self.app)
    }

    /// Whether it is about this application, in the folder that the config gives it: a controller could name another one in `step_of`, and so get
    /// at the folder, the number and the secrets of that.
    fn is_for(&self, spec: &InstanceSpec) -> bool {
        self.app == spec.app && self.step_of == spec.step_of
    }
}

impl Program {
    fn of(app: &AppSpec) -> Self {
        Self {
            run: app.run.clone(),
            cwd: app.cwd.clone(),
            env: app.env.clone(),
            needs: app.needs.clone(),
            probe: app.health.probe.clone(),
            on_resume: app.on_resume.clone(),
            process: app.process.clone(),
            pass_socket: app.pass_socket,
        }
    }

    /// True when `spec` starts this. It may add nothing to the environment but the addresses of what the application needs. No config names a
    /// run of a job, which has commands of its own and files that are copied.
    fn is_that_of(&self, spec: &InstanceSpec) -> bool {
        let same =
            self.run == spec.run && self.cwd == spec.cwd && self.on_resume == spec.on_resume && self.process == spec.process;
        let same = same && self.pass_socket == spec.pass_socket && spec.job.is_none();
        let is_known = |(name, value): (&String, &String)| self.env.get(name) == Some(value) || self.is_address(name, value);
        let has_all = self.env.keys().all(|name| spec.env.contains_key(name));
        same && self.probe == spec.health.probe && has_all && spec.env.iter().all(is_known)
    }

    fn is_address(&self, name: &str, value: &str) -> bool {
        !self.env.contains_key(name)
            && self.needs.iter().any(|needed| {
                let is = |part: &str| naming::variable(needed, part) == name;
                (is("ADDR") && value.parse::<SocketAddr>().is_ok())
                    || (is("HOST") && value.parse::<IpAddr>().is_ok())
                    || (is("PORT") && value.parse::<u16>().is_ok())
            })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use weal_model::{JobFiles, Secret, SecretSource};
    use weal_protocol::node::JobRun;

    use super::*;
    use crate::accounts::tests::spec_of;

    fn run_of_a_job() -> JobRun {
        let checkpoint = vec!["sh".to_owned()];
        JobRun { job: "x-1".into(), attempt: 1, task: 0, addresses: Vec::new(), files: JobFiles::default(), checkpoint }
    }

    fn pool(apps: &[(&str, Option<&str>)]) -> PoolSpec {
        let app = |(name, user): &(&str, Option<&str>)| {
            let needs = BTreeSet::from(["db".into()]);
            let env = BTreeMap::from([("MODE".to_owned(), "fast".to_owned())]);
            let app = AppSpec { user: user.map(str::to_owned), needs, env, ..AppSpec::example(name) };
            (app.name.clone(), app)
        };
        PoolSpec { apps: apps.iter().map(app).collect(), ..PoolSpec::example() }
    }

    #[test]
    fn an_application_runs_as_its_own_user_of_the_config_and_not_as_that_of_another() {
        let pool = pool(&[("shop", Some("www-data")), ("db", Some("postgres")), ("free", None)]);
        let permits = Permits::of(&pool);
        let shop = spec_of(&pool.apps[&AppName::from("shop")]);
        assert_eq!(permits.check(&shop, "www-data", false), Ok(()));
        let refused = |app: &str, user: &str| Err(Refusal::UserNotAllowed { app: app.into(), user: user.to_owned() });
        assert_eq!(permits.check(&shop, "postgres", false), refused("shop", "postgres"));
        assert_eq!(permits.check(&shop, "root", true), refused("shop", "root"));
        let free = spec_of(&pool.apps[&AppName::from("free")]);
        assert_eq!(permits.check(&free, "www-data", false), refused("free", "www-data"));
    }

    #[test]
    fn a_sandbox_is_open_only_as_far_as_the_config_says() {
        let mut pool = pool(&[("shop", None), ("wiki", Some("www-data")), ("free", None)]);
        let open = SandboxSpec { write: ["/srv/wiki".to_owned()].into(), ..SandboxSpec::default() };
        for app in ["wiki", "free"] {
            pool.apps.get_mut(&AppName::from(app)).unwrap().sandbox =
                if app == "wiki" { open.clone() } else { SandboxSpec::off() };
        }
        let permits = Permits::of(&pool);
        let with = |app: &str, sandbox: &SandboxSpec| {
            let spec = spec_of(&pool.apps[&AppName::from(app)]);
            permits.check_sandbox(&InstanceSpec { sandbox: sandbox.clone(), ..spec })
        };
        let refused = |app: &str| Err(Refusal::SandboxNotAllowed { app: app.into() });
        assert_eq!(with("wiki", &open), Ok(()));
        assert_eq!(with("free", &SandboxSpec::off()), Ok(()));
        assert_eq!(with("wiki", &SandboxSpec::default()), Ok(()), "stricter is always allowed");
        assert_eq!(with("wiki", &SandboxSpec::off()), refused("wiki"));
        assert_eq!(with("shop", &SandboxSpec::off()), refused("shop"));
        assert_eq!(with("shop", &open), refused("shop"), "that of another application");
        assert_eq!(with("shop", &SandboxSpec { processes: 100_000, ..SandboxSpec::default() }), refused("shop"));
    }

    #[test]
    fn as_root_nothing_runs_but_what_the_config_says() {
        let pool = pool(&[("shop", Some("root"))]);
        let permits = Permits::of(&pool);
        let spec = spec_of(&pool.apps[&AppName::from("shop")]);
        let with = |change: &dyn Fn(&mut InstanceSpec)| {
            let mut other = spec.clone();
            change(&mut other);
            permits.check(&other, "root", true)
        };
        let refused = Err(Refusal::OtherProgramAsRoot { app: "shop".into() });
        assert_eq!(with(&|_| {}), Ok(()));
        assert_eq!(with(&|spec| spec.run.push("--evil".into())), refused);
        assert_eq!(with(&|spec| spec.cwd = "/tmp".into()), refused);
        assert_eq!(with(&|spec| spec.on_resume = vec!["sh".into()]), refused);
        assert_eq!(with(&|spec| spec.pass_socket = true), refused);
        assert_eq!(with(&|spec| spec.job = Some(run_of_a_job())), refused, "it would bring a command that saves its state");
        assert_eq!(with(&|spec| spec.health.probe = HealthProbe::Command { argv: vec!["sh".into()] }), refused);
        let set = |name: &str, value: &str| with(&|spec| drop(spec.env.insert(name.into(), value.into())));
        assert_eq!(set("LD_PRELOAD", "/tmp/evil.so"), refused);
        assert_eq!(set("MODE", "slow"), refused);
        assert_eq!(set("DB_ADDR", "127.0.0.1:5432"), Ok(()));
        assert_eq!(set("DB_ADDR", "$(evil)"), refused);
        assert_eq!(with(&|spec| drop(spec.env.remove("MODE"))), refused);
    }

    #[test]
    fn what_an_application_may_it_may_not_in_the_folder_of_another() {
        let mut pool = pool(&[("shop", Some("www-data")), ("shop-release", Some("www-data"))]);
        pool.apps.get_mut(&AppName::from("shop-release")).unwrap().step_of = Some("shop".into());
        let permits = Permits::of(&pool);
        let with = |app: &str, step_of: Option<&str>| {
            let spec = spec_of(&pool.apps[&AppName::from(app)]);
            permits.check(&InstanceSpec { step_of: step_of.map(AppName::from), ..spec }, "www-data", false)
        };
        let refused = |app: &str| Err(Refusal::UserNotAllowed { app: app.into(), user: "www-data".to_owned() });
        assert_eq!((with("shop", None), with("shop-release", Some("shop"))), (Ok(()), Ok(())));
        assert_eq!(with("shop", Some("wiki")), refused("shop"));
        assert_eq!(with("shop-release", Some("wiki")), refused("shop-release"));
    }

    #[test]
    fn what_runs_as_root_or_has_secrets_shares_its_folder_and_its_user_with_nothing_else() {
        let mut pool = pool(&[("admin", Some("root")), ("keeper", None), ("free", None)]);
        let secret = Secret { from: SecretSource::Variable("KEY".to_owned()), as_file: false };
        pool.apps.get_mut(&AppName::from("keeper")).unwrap().process.secrets = [("KEY".to_owned(), secret)].into();
        let permits = Permits::of(&pool);
        let with = |app: &str, change: &dyn Fn(&mut InstanceSpec)| {
            let mut spec = spec_of(&pool.apps[&AppName::from(app)]);
            change(&mut spec);
            permits.check_owner(&spec, |user| user == "root")
        };
        for owner in ["admin", "keeper"] {
            let refused = |app: &str| Err(Refusal::FolderNotAllowed { app: app.into(), owner: owner.into() });
            assert_eq!(with(owner, &|_| {}), Ok(()));
            assert_eq!(with(owner, &|spec| spec.run = vec!["sh".into()]), refused(owner));
            assert_eq!(with(owner, &|spec| spec.user = Some("www-data".into())), refused(owner));
            assert_eq!(with(owner, &|spec| spec.process = ProcessSpec::default()).is_ok(), owner == "admin");
            assert_eq!(with(owner, &|spec| spec.job = Some(run_of_a_job())), refused(owner));
            assert_eq!(with("free", &|spec| spec.step_of = Some(owner.into())), refused("free"));
        }
        assert_eq!(with("free", &|spec| spec.run = vec!["sh".into()]), Ok(()));
        let mut later = pool.clone();
        later.apps.get_mut(&AppName::from("admin")).unwrap().user = None;
        let (ordinary, both) = (spec_of(&later.apps[&AppName::from("admin")]), permits.clone().and(Permits::of(&later)));
        assert_eq!(both.check_owner(&ordinary, |user| user == "root"), Ok(()), "a config takes the place of another");
    }

    #[test]
    fn a_list_that_others_could_have_written_is_not_taken() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Permits::read(folder.path()).unwrap(), Permits::default());
        let permits = Permits::of(&pool(&[("shop", Some("www-data"))]));
        permits.write(folder.path()).unwrap();
        assert_eq!(Permits::read(folder.path()).unwrap(), permits);
        let file = folder.path().join(PERMITS_FILE);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(Permits::read(folder.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        std::fs::rename(&file, folder.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", &file).unwrap();
        assert!(Permits::read(folder.path()).is_err(), "a link leads to what somebody else wrote");
    }

    #[test]
    fn while_a_config_takes_the_place_of_another_both_are_allowed() {
        let (before, after) = (pool(&[("shop", Some("old"))]), pool(&[("shop", Some("new"))]));
        let both = Permits::of(&before).and(Permits::of(&after));
        let spec = spec_of(&after.apps[&AppName::from("shop")]);
        assert_eq!((both.check(&spec, "old", false), both.check(&spec, "new", false)), (Ok(()), Ok(())));
        assert_eq!(both.clone().and(Permits::of(&after)), both);
    }
}
