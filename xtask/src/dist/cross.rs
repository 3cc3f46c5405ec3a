//! What it takes to build for another target: Rust's library for it, and a C compiler for the libraries that weal brings in C (SQLite,
//! zstd, ring).
//!
//! A program for musl needs no linker of that system. Rust's library for it has musl's objects, and the linker that comes with Rust puts
//! them together. The C compiler is one for musl that is there, or else zig's, which is one package for every architecture.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs::{python_with, target};

/// The zig whose C compiler is taken (MIT licence), as its authors publish it for Python.
const ZIG: &str = "ziglang==0.17.0";
/// The linker in the folder of rustc's own programs.
const LINKER: &str = "rust-lld";

/// Lets `cargo` build for `triple`.
///
/// # Errors
/// Something is missing here; says what, and how to get it.
pub fn prepare(triple: &str, cargo: &mut Command) -> Result<()> {
    let library = PathBuf::from(printed_by_rustc(&["--print", "target-libdir", "--target", triple])?);
    ensure!(library.exists(), "Rust's library for {triple} is not here: `rustup target add {triple}` brings it");
    let Some(machine) = triple.strip_suffix("-unknown-linux-musl") else { return Ok(()) };
    let linker = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase().replace('-', "_"));
    let compiler = format!("CC_{}", triple.replace('-', "_"));
    if std::env::var_os(&linker).is_none() {
        cargo.env(&linker, LINKER);
    }
    if std::env::var_os(&compiler).is_none() && !compilers(machine).iter().any(|name| weal_emulated::in_path(name).is_some()) {
        let folder = target().join("zig");
        let python = python_with(&folder, &[ZIG]).with_context(|| format!("there is no C compiler for {triple}"))?;
        for (variable, tool) in [(compiler, "cc"), (format!("AR_{}", triple.replace('-', "_")), "ar")] {
            let wrapper = std::path::absolute(folder.join(format!("{machine}-{tool}")))?;
            write_program(&wrapper, &wrapper_of(&python, tool, machine))?;
            cargo.env(variable, wrapper);
        }
    }
    Ok(())
}

/// The names under which the crate `cc` finds a C compiler for musl by itself.
fn compilers(machine: &str) -> Vec<String> {
    let cross = format!("{machine}-linux-musl-gcc");
    if machine == std::env::consts::ARCH { vec![cross, "musl-gcc".to_owned()] } else { vec![cross] }
}

/// A script that is zig's `tool` for musl on `machine`. Clang's name of the target is not zig's, so that is left out; and so are checks that need
/// a library of zig's at run time.
fn wrapper_of(python: &Path, tool: &str, machine: &str) -> String {
    let options = if tool == "cc" { format!(" -target {machine}-linux-musl -fno-sanitize=all") } else { String::new() };
    format!(
        "#!/bin/sh\nfor word do\n    shift\n    case $word in --target=*) ;; *) set -- \"$@\" \"$word\" ;; esac\ndone\nexec '{}' -m ziglang {tool}{options} \"$@\"\n",
        python.display()
    )
}

fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

fn printed_by_rustc(arguments: &[&str]) -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(arguments).output().context("cannot run rustc")?;
    ensure!(output.status.success(), "rustc: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the script for `tool` hands to a `python` that prints its words.
    fn handed_on(tool: &str, words: &[&str]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let (python, script) = (folder.path().join("python"), folder.path().join("script"));
        write_program(&python, "#!/bin/sh\nfor word do echo \"$word\"; done\n").unwrap();
        write_program(&script, &wrapper_of(&python, tool, "aarch64")).unwrap();
        let output = Command::new("sh").arg(&script).args(words).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>().join("|")
    }

    #[test]
    fn zig_gets_every_word_but_the_name_that_it_does_not_know() {
        let words = ["-O3", "--target=aarch64-unknown-linux-musl", "-DNAME=\"a b\"", "x.c"];
        let expected = "-m|ziglang|cc|-target|aarch64-linux-musl|-fno-sanitize=all|-O3|-DNAME=\"a b\"|x.c";
        assert_eq!(handed_on("cc", &words), expected);
        assert_eq!(handed_on("ar", &["cq", "x.a"]), "-m|ziglang|ar|cq|x.a");
    }

    #[test]
    fn a_target_whose_library_is_not_here_is_named_with_what_brings_it() {
        let error = prepare("riscv64gc-unknown-linux-musl", &mut Command::new("true")).unwrap_err().to_string();
        assert!(error.contains("rustup target add riscv64gc-unknown-linux-musl"), "{error}");
    }
}
