//! What the compiler does not check: floors, purity, dependencies that nothing uses, sizes, circles between files, text that is read back, and
//! documents that name things and are easy to read.

mod baseline;
mod circles;
mod dependencies;
pub mod documents;
mod entries;
mod files;
mod finding;
mod floors;
mod functions;
pub mod markdown;
mod modules;
mod names;
mod prose;
mod sentences;
mod sources;
mod summary;
mod tokens;

use std::path::Path;

use anyhow::Result;

use files::Files;

/// Runs all checks on the repository at `root` and prints every finding that the baseline does not list; false when there is one.
pub fn run(root: &Path) -> Result<bool> {
    let files = Files::tracked(root)?;
    let crates = modules::crates(&files)?;
    let mut findings = floors::check(root, &files)?;
    findings.extend(dependencies::check(root, &files)?);
    findings.extend(sources::check(&files));
    findings.extend(circles::check(&crates));
    findings.extend(prose::check(&crates));
    findings.extend(documents::check(&files));
    findings.extend(entries::check(&files));
    findings.extend(summary::check(&files));
    findings.extend(names::check(&files, &crates));
    findings.extend(sentences::check(&files));
    let findings = baseline::apply(findings, files.text(baseline::FILE).unwrap_or_default());
    for finding in &findings {
        println!("tidy: {}", finding.text);
    }
    if findings.is_empty() {
        let (functions, lines) = functions::median(&crates);
        println!("tidy: {} files, no findings; half of {functions} functions have at most {lines} lines", files.len());
    }
    Ok(findings.is_empty())
}
