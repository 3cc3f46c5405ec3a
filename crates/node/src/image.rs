//! What an instance gets from its image: files, a command, an environment, a user in its own eyes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use weal_host::users::{User, Users};
use weal_image::{ImageError, NotFound, Rootfs, Settings, Unpacked};
use weal_model::{ProcessSignal, ProcessSpec};
use weal_sandbox::{OtherRoot, SandboxPlan, SeenAs};

use crate::files::read_json;
use crate::folder::{Folder, remove_tree};
use crate::shim::{Record, SPEC_FILE};
use crate::site::Site;

/// Where places for mounts are made, in an instance's folder.
const PLACES: &str = "places";
/// The longest `passwd` and `group` that are read.
const LONGEST_LIST: u64 = 1 << 20;

/// Why an instance cannot have its image.
#[derive(Debug, thiserror::Error)]
pub enum NoImage {
    /// The agent cannot mount for others.
    #[error("`image` needs mounts of its own for each instance: start weal as root, outside of a container")]
    NoMounts,
    /// The image cannot be used.
    #[error("its image {path}: {source}")]
    Unusable {
        /// Where it is.
        path: String,
        /// Why.
        source: ImageError,
    },
    /// It has no such user or group.
    #[error("its image runs as `{user}`, which its own passwd and group do not know")]
    NoUser {
        /// The user and group, as the image writes them.
        user: String,
    },
    /// Its command cannot be found.
    #[error(transparent)]
    NoProgram(#[from] NotFound),
    /// Its files cannot be read.
    #[error("its image: {0}")]
    System(#[from] io::Error),
}

/// An image that an instance is about to be started from.
pub struct Inside {
    root: PathBuf,
    files: Rootfs,
    settings: Settings,
    /// Whom it runs as in its own eyes; `None` for root, which it is not.
    user: Option<User>,
}

impl Inside {
    /// The image that `process` names, unpacked; `None` where it names none. That may take as long as a large archive takes to be read.
    ///
    /// # Errors
    /// See [`NoImage`].
    pub fn provide(site: &Site, process: &ProcessSpec) -> Result<Option<Self>, NoImage> {
        let Some(path) = &process.image else { return Ok(None) };
        if !site.confinement.mounts {
            return Err(NoImage::NoMounts);
        }
        let provided = site.images.provide(Path::new(path));
        let unpacked = provided.map_err(|source| NoImage::Unusable { path: path.clone(), source })?;
        if unpacked.is_new {
            tracing::info!(image = path, id = %unpacked.id, "an image is unpacked");
            sweep(site);
        }
        Self::new(unpacked).map(Some)
    }

    fn new(unpacked: Unpacked) -> Result<Self, NoImage> {
        let files = Rootfs::open(&unpacked.root)?;
        let user = user(&files, &unpacked.settings.user)?;
        Ok(Self { root: unpacked.root, files, settings: unpacked.settings, user })
    }

    /// The environment that its program begins with, before weal and the config add theirs. Without a home of its own it is at home in `data`.
    pub fn environment(&self, data: &Path, path: &str) -> BTreeMap<String, String> {
        let mut env = self.settings.env.clone();
        let home = self.user.as_ref().map(|user| user.home.as_path()).filter(|home| !home.as_os_str().is_empty());
        env.entry("HOME".to_owned()).or_insert_with(|| home.unwrap_or(data).display().to_string());
        env.entry("PATH".to_owned()).or_insert_with(|| path.to_owned());
        env
    }

    /// Whether a variable is what the image says, and nothing else has replaced it.
    pub fn gave(&self, name: &str, value: &str) -> bool {
        self.settings.env.get(name).is_some_and(|said| said == value)
    }

    /// Its command, where the config replaces the entry point by `entrypoint` and says `run` behind it.
    pub fn command(&self, entrypoint: Option<&[String]>, run: &[String]) -> Vec<String> {
        self.settings.command(entrypoint, run)
    }

    /// Its working directory, unless the config names one.
    pub fn cwd<'i>(&'i self, said: &'i str) -> &'i str {
        [said, self.settings.cwd.as_str(), "/"].into_iter().find(|folder| !folder.is_empty()).unwrap_or("/")
    }

    /// Where its program is.
    ///
    /// # Errors
    /// It has none.
    pub fn find_program(&self, program: &str, cwd: &str, path: &str) -> Result<String, NoImage> {
        Ok(self.files.find_program(program, cwd, path)?)
    }

    /// The signal that asks it to end.
    pub fn stop_signal(&self) -> Option<ProcessSignal> {
        self.settings.stop_signal.as_deref().and_then(ProcessSignal::from_image)
    }

    /// `plan` with its files in the place of the machine's, for the instance in `dir`.
    ///
    /// # Errors
    /// The folder of places cannot be made.
    pub fn confine(&self, plan: SandboxPlan, dir: &Path) -> Result<SandboxPlan, NoImage> {
        // Places of a former start would hide files of the image.
        remove_tree(&dir.join(PLACES))?;
        Folder::open(dir)?.make(PLACES, 0o755)?.set_mode(0o755)?;
        let root = OtherRoot { files: self.root.clone(), places: dir.join(PLACES) };
        let seen_as = self.user.as_ref().map(|user| SeenAs { uid: user.uid, gid: user.gid });
        plan.with_root(root, seen_as).ok_or(NoImage::NoMounts)
    }
}

/// The user that an image names, by its own `passwd` and `group`. A bare number needs no entry, and its group is root's, as with Docker. Root is
/// nobody: the program has none of root's rights, and is not to think so.
fn user(files: &Rootfs, said: &str) -> Result<Option<User>, NoImage> {
    let list = |path: &str| Ok::<_, io::Error>(files.text(path, LONGEST_LIST)?.unwrap_or_default());
    let users = Users::of(list("etc/passwd")?, list("etc/group")?);
    let none = || NoImage::NoUser { user: said.to_owned() };
    let (name, group) = said.split_once(':').map_or((said, None), |(name, group)| (name, Some(group)));
    if name.is_empty() {
        return Ok(None);
    }
    let by_number = |uid: u32| users.by_uid(uid).unwrap_or_else(|| bare(uid));
    let mut user = match users.by_name(name) {
        Ok(user) => user,
        Err(_) => by_number(name.parse().map_err(|_| none())?),
    };
    if let Some(group) = group {
        user.gid = users.group_id(group).map_err(|_| none())?;
    }
    Ok(Some(user).filter(|user| user.uid != 0))
}

fn bare(uid: u32) -> User {
    User { name: uid.to_string(), uid, gid: 0, groups: Vec::new(), home: PathBuf::new() }
}

/// Removes the images that no instance has and that root's config does not name.
pub fn sweep(site: &Site) {
    let swept = site.accounts.images().and_then(|named| site.images.sweep(&in_use(&site.instances)?, &named));
    match swept {
        Ok(0) => {}
        Ok(count) => tracing::info!(count, "images that nobody needs are removed"),
        Err(error) => tracing::warn!(%error, "images that nobody needs cannot be removed"),
    }
}

/// The files of all instances that have an image.
fn in_use(instances: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(instances)? {
        // What cannot be read may have any.
        let record: Option<Record> = read_json(&entry?.path().join(SPEC_FILE))?;
        let root = record.and_then(|record| record.launch.sandbox.mounts?.root);
        found.extend(root.map(|root| root.files));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_looked_up_in_the_image_and_root_is_nobody() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("etc")).unwrap();
        fs::write(root.path().join("etc/passwd"), "root:x:0:0::/root:\napp:x:101:102::/srv/app:\n").unwrap();
        fs::write(root.path().join("etc/group"), "staff:x:50:\n").unwrap();
        let files = Rootfs::open(root.path()).unwrap();
        let found =
            |said: &str| user(&files, said).map(|user| user.map(|user| (user.uid, user.gid))).map_err(|error| error.to_string());
        assert_eq!((found(""), found("root"), found("0:50")), (Ok(None), Ok(None), Ok(None)));
        assert_eq!((found("app"), found("101")), (Ok(Some((101, 102))), Ok(Some((101, 102)))));
        assert_eq!(
            (found("app:staff"), found("app:7"), found("4711")),
            (Ok(Some((101, 50))), Ok(Some((101, 7))), Ok(Some((4711, 0))))
        );
        let error = "its image runs as `nobody`, which its own passwd and group do not know";
        assert_eq!(found("nobody"), Err(error.to_owned()));
        assert!(found("app:none").is_err() && found("-1").is_err());
        assert_eq!(user(&files, "app").unwrap().unwrap().home, Path::new("/srv/app"));
    }

    #[test]
    fn what_the_config_and_weal_add_wins_over_the_image() {
        let root = tempfile::tempdir().unwrap();
        let env = BTreeMap::from([("MODE".to_owned(), "fast".to_owned())]);
        let settings = Settings { env, cwd: "/srv".to_owned(), stop_signal: Some("3".to_owned()), ..Settings::default() };
        let files = Rootfs::open(root.path()).unwrap();
        let image = Inside { root: root.path().to_owned(), files, settings, user: None };
        let env = image.environment(Path::new("/data/shop"), "/bin");
        assert_eq!((env["MODE"].as_str(), env["HOME"].as_str(), env["PATH"].as_str()), ("fast", "/data/shop", "/bin"));
        assert!(image.gave("MODE", "fast") && !image.gave("MODE", "slow") && !image.gave("PATH", "/bin"));
        assert_eq!((image.cwd(""), image.cwd("/other")), ("/srv", "/other"));
        assert_eq!(image.stop_signal(), Some(ProcessSignal::Quit));
    }
}
