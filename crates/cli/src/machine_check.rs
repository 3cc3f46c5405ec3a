//! What a config names and this machine does not have: programs, folders, users, files. A config may be written before they are there, so these are
//! warnings; the application's start would fail. What is there, and others may read or change, is warned of as well.

mod found;
mod image;
mod loose;

use std::path::Path;

use weal_config::{Diagnostic, Parsed};
use weal_host::users::{APPLICATION_UIDS, User, Users};
use weal_model::AppSpec;
use weal_node::barrier;

use crate::confidential;
use crate::users;
use found::{Found, found, nearest, program};

/// One warning for each thing that is missing or loose, in the order of the applications. `file` is the text and how it is named.
pub fn check(parsed: &Parsed, file: (&str, &str)) -> Vec<Diagnostic> {
    let found = parsed.spec.apps.values().flat_map(|app| {
        of_app(app)
            .into_iter()
            .chain(loose::of_app(app))
            .map(move |one| parsed.warning(file, &format!("app.{}.{}", app.name, one.key), one.message, one.help))
    });
    found.collect()
}

fn of_app(app: &AppSpec) -> Vec<Found> {
    let user = app.user.as_deref().map(users::find).transpose();
    let mut all: Vec<Found> = match app.process.image {
        Some(_) => image::of_app(app),
        None => of_program(app, user.as_ref().ok().and_then(Option::as_ref)),
    };
    all.extend(user.err().map(|error| found("user", error, "a number needs no account")));
    all.extend(group(app));
    all.extend(files(app));
    all
}

/// Its folder and its program, and what keeps `user` from them.
fn of_program(app: &AppSpec, user: Option<&User>) -> Vec<Found> {
    let program = program(app);
    let no_program = program.as_ref().err().and_then(Option::as_ref).map(|text| found("run.0", text, program_help(app)));
    let is_unknown = app.user.is_some() && user.is_none();
    let closed = if is_unknown { None } else { closed(app, user, program.as_ref().ok().map(String::as_str)) };
    folder(app).into_iter().chain(no_program).chain(closed).collect()
}

fn folder(app: &AppSpec) -> Option<Found> {
    let cwd = Path::new(&app.cwd);
    (!cwd.is_dir()).then(|| found("cwd", format!("there is no folder {}", cwd.display()), nearest(cwd)))
}

fn program_help(app: &AppSpec) -> String {
    let program = Path::new(&app.cwd).join(app.run.first().map_or("", String::as_str));
    nearest(&program)
}

/// What keeps the user of its instances from its folder or its program. Only root starts them as somebody else.
fn closed(app: &AppSpec, user: Option<&User>, program: Option<&str>) -> Option<Found> {
    if !users::is_root() || app.user.as_deref() == Some("root") {
        return None;
    }
    let uid = *APPLICATION_UIDS.start();
    let own = User { name: format!("weal-{}", app.name), uid, gid: uid, groups: Vec::new(), home: "/".into() };
    let user = user.unwrap_or(&own);
    let ways = [("cwd", Some(app.cwd.as_str())), ("run.0", program)];
    ways.into_iter().find_map(|(key, path)| {
        let barrier = barrier(Path::new(path?), user)?;
        Some(found(key, format!("user {} {barrier}", user.name), "or keep it elsewhere, such as in /srv"))
    })
}

fn group(app: &AppSpec) -> Option<Found> {
    let group = app.process.group.as_ref()?;
    let error = Users::read(Path::new("/etc")).ok()?.group_id(group).err()?;
    Some(found("group", error, "a number needs no entry"))
}

fn files(app: &AppSpec) -> Vec<Found> {
    let process = &app.process;
    let of_env = process.env_files.iter().filter_map(|file| {
        let error = confidential::variables(file).err()?;
        Some(found("env-file", error, "a dash before the path allows that it is missing"))
    });
    let of_secrets = process.secrets.iter().filter_map(|(name, secret)| {
        let error = confidential::value(secret, None).err()?;
        Some(found(format!("secrets.{name}"), error, ""))
    });
    let stdin = process.stdin.iter().filter(|path| !Path::new(path).exists());
    let of_stdin = stdin.map(|path| found("stdin", format!("there is no file {path}"), nearest(Path::new(path))));
    of_env.chain(of_secrets).chain(of_stdin).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("server.py"), "").unwrap();
        let cwd = folder.path().display().to_string();
        let app = AppSpec { run: vec!["./sever.py".to_owned()], cwd: cwd.clone(), ..AppSpec::example("shop") };
        let found = of_app(&app);
        let program = found.iter().find(|one| one.key == "run.0").unwrap();
        assert!(program.message.contains("there is no such file"), "{program:?}");
        assert!(program.help.contains("holds server.py"), "{program:?}");
        let gone = AppSpec { cwd: format!("{cwd}/nowhere"), user: Some("no-such-user".to_owned()), ..app };
        let keys: Vec<String> = of_app(&gone).into_iter().map(|one| one.key).collect();
        assert_eq!(keys, ["cwd", "user"]);
        let there = AppSpec { run: vec!["sh".to_owned()], cwd: "/".to_owned(), ..AppSpec::example("shop") };
        assert_eq!(of_app(&there), []);
    }
}
