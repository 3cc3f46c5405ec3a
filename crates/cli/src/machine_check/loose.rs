//! What a config relies on and others may read or change: files of secrets, and what runs as root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use weal_model::{AppSpec, HealthProbe, SecretSource};

use super::found::{Found, found, program};
use crate::trust::{self, Untrusted};
use crate::users;

/// What is loose about an application.
pub(super) fn of_app(app: &AppSpec) -> Vec<Found> {
    let env_files = app.process.env_files.iter().filter_map(|file| exposed("env-file".to_owned(), Path::new(&file.path)));
    let secrets = app.process.secrets.iter().filter_map(|(name, secret)| match &secret.from {
        SecretSource::File(path) => exposed(format!("secrets.{name}"), Path::new(path)),
        SecretSource::Variable(_) | SecretSource::Credential(_) => None,
    });
    let is_root = app.user.as_deref().is_some_and(|user| users::find(user).is_ok_and(|user| user.uid == 0));
    let of_root = is_root.then(|| of_root(app)).into_iter().flatten();
    env_files.chain(secrets).chain(of_root).collect()
}

/// Whether others may read or change what is secret. A folder on the way that they may not enter keeps them from it. A group is somebody's
/// choice as long as it only reads.
fn exposed(key: String, path: &Path) -> Option<Found> {
    let (mode, real) = (fs::metadata(path).ok()?.mode() & 0o7777, path.canonicalize().ok()?);
    let may_pass = |folder: &Path| fs::metadata(folder).is_ok_and(|folder| folder.mode() & 0o001 != 0);
    let of_others = if real.ancestors().skip(1).all(may_pass) { mode & 0o006 } else { 0 };
    let may = match of_others {
        0 if mode & 0o020 == 0 => return None,
        0 => "the group may change",
        4 => "others may read",
        2 => "others may change",
        _ => "others may read and change",
    };
    let (path, message) = (path.display(), format!("{may} {} (mode {mode:04o}), which holds what is secret", path.display()));
    Some(found(key, message, format!("chmod 600 {path}")))
}

/// What an application of root's runs and others could change: programs, scripts, and the folder in which it runs.
fn of_root(app: &AppSpec) -> Vec<Found> {
    let health = match &app.health.probe {
        HealthProbe::Command { argv } => argv.as_slice(),
        _ => &[],
    };
    let mut paths = vec![("cwd".to_owned(), app.cwd.clone())];
    paths.extend(program(app).ok().map(|program| ("run.0".to_owned(), program)));
    for (key, words) in [("run", app.run.as_slice()), ("health.command", health), ("on-resume", app.on_resume.as_slice())] {
        let files = words.iter().enumerate().map(|(index, word)| (index, Path::new(&app.cwd).join(word)));
        let files = files.filter(|(_, path)| path.is_file());
        paths.extend(files.map(|(index, path)| (format!("{key}.{index}"), path.display().to_string())));
    }
    let mut all: Vec<Found> = Vec::new();
    for one in paths.into_iter().filter_map(|(key, path)| changeable(key, Path::new(&path))) {
        // A folder above several of them is told of once.
        if all.iter().all(|before| before.message != one.message) {
            all.push(one);
        }
    }
    all
}

fn changeable(key: String, path: &Path) -> Option<Found> {
    let other = "or give the application a `user` of its own";
    match trust::check_of_root(path).err()? {
        Untrusted::Owner { path, uid } => {
            let (path, user) = (path.display(), users::name_of(uid));
            Some(found(key, format!("{path} belongs to user {user}, and root runs it"), format!("chown root {path}, {other}")))
        }
        Untrusted::Writable { path, mode } => {
            let path = path.display();
            let message = format!("others may write to {path} (mode {mode:04o}), and root runs it");
            Some(found(key, message, format!("chmod go-w {path}, {other}")))
        }
        Untrusted::Link { path, uid } => {
            let (path, user) = (path.display(), users::name_of(uid));
            let message = format!("{path} is a link of user {user}'s, on the way to what root runs");
            Some(found(key, message, format!("name the place itself, {other}")))
        }
        // What is missing is told of as such.
        Untrusted::Unseen { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown};

    use weal_model::Secret;

    use super::*;

    const STRANGER: u32 = 61_204;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_file_of_secrets_that_others_may_read_or_change_is_named_with_its_mode() {
        let place = tempfile::tempdir().unwrap();
        let (folder, path) = (place.path().join("secrets"), place.path().join("secrets/db"));
        fs::create_dir(&folder).unwrap();
        fs::write(&path, "hunter2").unwrap();
        mode(place.path(), 0o755);
        mode(&folder, 0o755);
        let mut app = AppSpec::example("shop");
        let secret = Secret { from: SecretSource::File(path.display().to_string()), as_file: false };
        app.process.secrets.insert("PASSWORD".to_owned(), secret);
        let said = |with: u32| {
            mode(&path, with);
            of_app(&app).into_iter().map(|one| (one.key, one.message, one.help)).collect::<Vec<_>>()
        };
        for (with, may) in [
            (0o666, "others may read and change"),
            (0o644, "others may read"),
            (0o602, "others may change"),
            (0o620, "the group may change"),
        ] {
            let (shown, found) = (path.display(), said(with));
            let message = format!("{may} {shown} (mode {with:04o}), which holds what is secret");
            assert_eq!(found, [("secrets.PASSWORD".to_owned(), message, format!("chmod 600 {shown}"))]);
        }
        assert_eq!((said(0o600), said(0o640)), (Vec::new(), Vec::new()));
        mode(&folder, 0o700);
        assert_eq!(said(0o644), [], "nobody else gets there");
    }

    #[test]
    fn what_root_runs_and_others_could_change_is_named() {
        if !users::is_root() {
            return weal_testing::skip("only root can make files of others");
        }
        let place = tempfile::tempdir().unwrap();
        mode(place.path(), 0o755);
        for name in ["server", "job.py", "check"] {
            fs::write(place.path().join(name), "#!/bin/sh\n").unwrap();
            mode(&place.path().join(name), 0o755);
        }
        let run = ["./server", "job.py", "--verbose"].map(str::to_owned).to_vec();
        let mut app = AppSpec { run, cwd: place.path().display().to_string(), ..AppSpec::example("mighty") };
        app.on_resume = vec!["./check".to_owned()];
        let said = |app: &AppSpec| of_app(app).into_iter().map(|one| (one.key, one.message)).collect::<Vec<_>>();
        app.user = Some("root".to_owned());
        assert_eq!(said(&app), []);
        chown(place.path().join("server"), Some(STRANGER), None).unwrap();
        mode(&place.path().join("job.py"), 0o777);
        chown(place.path().join("check"), Some(STRANGER), None).unwrap();
        let path = |name: &str| place.path().join(name).display().to_string();
        let expected = [
            ("run.0", format!("{} belongs to user {STRANGER}, and root runs it", path("server"))),
            ("run.1", format!("others may write to {} (mode 0777), and root runs it", path("job.py"))),
            ("on-resume.0", format!("{} belongs to user {STRANGER}, and root runs it", path("check"))),
        ];
        assert_eq!(said(&app), expected.map(|(key, message)| (key.to_owned(), message)));
        mode(place.path(), 0o777);
        let whole = said(&app);
        assert!(whole[0].0 == "cwd" && whole[0].1.contains("(mode 0777)"), "{whole:?}");
        app.user = None;
        assert_eq!(said(&app), [], "one with a user of its own does no more than that user may");
    }
}
