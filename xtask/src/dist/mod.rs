//! `cargo xtask dist`: a static program, packages for Debian and RPM, and an OCI image.

mod cross;
mod image;
mod packages;
mod program;
mod tree;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::ValueEnum;

use packages::Packager;
use program::Program;

/// `cargo xtask dist`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Where everything is written
    #[arg(long, value_name = "DIR", default_value = "target/dist")]
    to: PathBuf,
    /// Only these
    #[arg(long = "format", value_name = "FORMAT", value_delimiter = ',', default_values = ["deb", "rpm", "oci"])]
    formats: Vec<Format>,
    /// What to build for, such as x86_64-unknown-linux-musl [default: this machine, with its C library linked in]
    #[arg(long, value_name = "TRIPLE", conflicts_with = "program")]
    target: Option<String>,
    /// Build without optimising, to try packages
    #[arg(long, conflicts_with = "program")]
    debug: bool,
    /// A weal that is built already
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// The packages' version
    #[arg(long = "package-version", value_name = "VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    version: String,
}

/// What can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A package of Debian's
    Deb,
    /// An RPM package
    Rpm,
    /// An OCI image: a layout in a tar archive, as `podman load` and `skopeo` take it
    Oci,
}

/// Makes what is asked for and prints where each lies; always true when it gets to its end.
///
/// # Errors
/// Something cannot be built, run or written.
pub fn run(arguments: &Arguments) -> Result<bool> {
    let program = match &arguments.program {
        Some(path) => Program::read(path)?,
        None => Program::build(arguments.target.as_deref(), arguments.debug)?,
    };
    if !program.is_static {
        eprintln!("note: {} is not static: it runs only where the C library is as new as here", program.path.display());
    }
    let to = std::path::absolute(&arguments.to)?;
    fs::create_dir_all(&to).with_context(|| format!("cannot make {}", to.display()))?;
    for format in &arguments.formats {
        let made = match format {
            Format::Deb => packages::make(Packager::Deb, &program, &arguments.version, &to)?,
            Format::Rpm => packages::make(Packager::Rpm, &program, &arguments.version, &to)?,
            Format::Oci => image::make(&program, &arguments.version, &to)?,
        };
        println!("{}", made.display());
    }
    Ok(true)
}
