//! Files that a former version names and that are not there any more.

use std::path::{Path, PathBuf};

use weal_model::{AppSpec, PoolSpec};

/// One sentence for each.
pub fn files(spec: &PoolSpec) -> Vec<String> {
    spec.apps.values().filter_map(missing).collect()
}

fn missing(app: &AppSpec) -> Option<String> {
    let tell = |what: &str, path: &Path| format!("{what} of {}, {}", app.name, path.display());
    if let Some(image) = &app.process.image {
        return Some(Path::new(image)).filter(|image| !image.exists()).map(|image| tell("the image", image));
    }
    let folder = Path::new(&app.cwd);
    if !folder.is_dir() {
        return Some(tell("the folder", folder));
    }
    program(app).filter(|program| !program.exists()).map(|program| tell("the program", &program))
}

/// The program where it is named by its path; others are looked for in `PATH` when they start.
fn program(app: &AppSpec) -> Option<PathBuf> {
    let named = app.run.first().filter(|name| name.contains('/') && !name.contains('$'))?;
    Some(Path::new(&app.cwd).join(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_or_folder_that_is_gone_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let cwd = folder.path().to_string_lossy().into_owned();
        let app = |run: &str, cwd: &str| AppSpec { run: vec![run.to_owned()], cwd: cwd.to_owned(), ..AppSpec::example("shop") };
        std::fs::write(folder.path().join("here"), "").unwrap();
        assert_eq!(missing(&app("./here", &cwd)), None);
        assert_eq!(missing(&app("sh", &cwd)), None, "found in PATH or not when it starts");
        assert!(missing(&app("./gone", &cwd)).unwrap().starts_with("the program of shop, /"));
        assert_eq!(missing(&app("sh", "/no/such/folder")).unwrap(), "the folder of shop, /no/such/folder");
        let mut boxed = app("--port", "");
        boxed.process.image = Some(format!("{cwd}/here"));
        assert_eq!(missing(&boxed), None, "its program and its folder are in the image");
        boxed.process.image = Some("/no/such/image.tar".to_owned());
        assert_eq!(missing(&boxed).unwrap(), "the image of shop, /no/such/image.tar");
    }
}
