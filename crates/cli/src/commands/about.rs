//! Commands about weal itself: version, completion, schema, reproduction.

use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use serde_json::json;

use crate::args::Cli;
use crate::completion;
use crate::output;

/// `weal version`.
pub fn version(json: bool) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    if json {
        return output::json(&json!({ "version": version }), false);
    }
    output::line(&format!("weal {version}"));
    Ok(())
}

/// `weal completion SHELL`.
pub fn completion(shell: clap_complete::Shell) -> anyhow::Result<()> {
    output::print(&completion::script(shell)?);
    Ok(())
}

/// `weal man DIR`.
///
/// # Errors
/// The folder cannot be made, or a page cannot be written.
pub fn man(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    clap_mangen::generate_to(Cli::command().disable_help_subcommand(true), folder)
        .with_context(|| format!("cannot write man pages in {}", folder.display()))
}

/// `weal schema`.
pub fn schema() -> anyhow::Result<()> {
    output::json(&weal_config::schema(), false)
}
