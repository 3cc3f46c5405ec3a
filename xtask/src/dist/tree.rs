//! The files of a package besides the program: what it prints of itself, and what lies in `packaging`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};

use super::program::Program;
use crate::programs::root;

/// The pool of a package. Only the administrator changes it.
pub const CONFIG: &str = "/etc/weal/weal.toml";

/// Lays the sources that `packaging/nfpm.yaml` names into `folder`.
///
/// # Errors
/// The program prints them not, or they cannot be written.
pub fn lay(program: &Program, folder: &Path) -> Result<()> {
    let packaging = root().join("packaging");
    copy(&program.path, &folder.join("weal"))?;
    copy(&root().join("LICENSE"), &folder.join("LICENSE"))?;
    for name in ["weal.toml", "weal.sysusers"] {
        copy(&packaging.join(name), &folder.join(name))?;
    }
    let scripts = folder.join("scripts");
    fs::create_dir(&scripts)?;
    for name in ["postinstall", "preremove", "postremove"] {
        copy(&packaging.join("scripts").join(name), &scripts.join(name))?;
    }
    let unit = printed(program, &["service", "unit", "--file", CONFIG, "--program", "/usr/bin/weal"])?;
    fs::write(folder.join("weal.service"), unit)?;
    for shell in ["bash", "zsh", "fish"] {
        fs::write(folder.join(format!("weal.{shell}")), printed(program, &["completion", shell])?)?;
    }
    man_pages(program, &folder.join("man"))
}

fn man_pages(program: &Program, folder: &Path) -> Result<()> {
    fs::create_dir(folder)?;
    printed(program, &["man", &folder.display().to_string()])?;
    let pages: Vec<PathBuf> = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    for page in pages {
        let mut name = page.clone().into_os_string();
        name.push(".gz");
        // Without a time in it: the same page is the same file.
        let mut packed = GzBuilder::new().mtime(0).write(fs::File::create(name)?, Compression::best());
        std::io::copy(&mut fs::File::open(&page)?, &mut packed)?;
        packed.finish()?;
        fs::remove_file(page)?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn printed(program: &Program, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = program.command().args(arguments).output();
    let output = output.with_context(|| format!("packages hold what weal prints of itself: cannot run {}", program.needs()))?;
    ensure!(output.status.success(), "weal {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}
