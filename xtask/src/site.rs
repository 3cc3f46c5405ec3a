//! `cargo xtask site`: every page of the repository as one site, built by mdBook. No link of it leads nowhere.
//!
//! mdBook renders what lies in one folder. Our pages lie where they belong, so those that `docs/SUMMARY.md` lists are laid out in a
//! folder of their own, with the files that they link to, each at its path from the root.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs::{root, target};
use crate::tidy::documents::local;
use crate::tidy::markdown;

/// Marks a link that is rewritten already, so that it is not taken for another page's.
const ROOT: &str = "\u{0}";
/// The list of all pages.
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// Builds it and prints where it lies; false when a link of it is dead.
///
/// # Errors
/// mdBook cannot be run or fails, or a file cannot be read or written.
pub fn run() -> Result<bool> {
    let site = target().join("site");
    let source = site.join("source");
    if site.exists() {
        fs::remove_dir_all(&site)?;
    }
    for path in lay_pages(&root(), &source)? {
        put(&source.join(&path), &fs::read(root().join(&path)).with_context(|| format!("cannot read {path}"))?)?;
    }
    fs::copy(root().join("docs/book.toml"), site.join("book.toml"))?;
    let built = Command::new("mdbook").arg("build").arg(&site).output();
    let built = built.context("cannot run mdbook: `scripts/bootstrap docs` installs it")?;
    ensure!(built.status.success(), "mdbook: {}", String::from_utf8_lossy(&built.stderr).trim());
    let html = site.join("html");
    let dead = dead_links(&html)?;
    dead.iter().for_each(|link| println!("dead link: {link}"));
    println!("{}", html.join("index.html").display());
    Ok(dead.is_empty())
}

/// Lays the pages and their list into `source`. Returns the other files that pages link to, by their paths from the root.
fn lay_pages(root: &Path, source: &Path) -> Result<BTreeSet<String>> {
    let read = |path: &str| fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let summary = read(SUMMARY)?;
    let pages: Vec<String> = targets(SUMMARY, &summary).collect();
    let mut files = BTreeSet::new();
    for page in &pages {
        let text = read(page)?;
        files.extend(targets(page, &text).filter(|path| !path.ends_with(".md") && root.join(path).is_file()));
        put(&source.join(page), with_indices(&text).as_bytes())?;
    }
    let mut list = summary.clone();
    for (link, _) in markdown::read(&summary).links {
        let path = local(SUMMARY, &link).context("the summary lists pages of this repository only")?;
        list = list.replace(&format!("]({link})"), &format!("]({ROOT}{path})"));
    }
    put(&source.join("SUMMARY.md"), list.replace(ROOT, "").as_bytes())?;
    Ok(files)
}

/// Where the links of the page `file` lead within the repository.
fn targets(file: &str, text: &str) -> impl Iterator<Item = String> {
    markdown::read(text).links.into_iter().filter_map(move |(link, _)| local(file, &link)).filter(|path| !path.is_empty())
}

/// mdBook makes the index of a folder from its README, and links have to name that.
fn with_indices(text: &str) -> String {
    text.replace("README.md)", "index.md)").replace("README.md#", "index.md#")
}

fn put(path: &Path, content: &[u8]) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

/// Links of the pages below `html` to files that are not there.
fn dead_links(html: &Path) -> Result<Vec<String>> {
    let mut dead = Vec::new();
    for page in pages_below(html)? {
        let text = fs::read_to_string(&page)?;
        let folder = page.parent().unwrap_or(html);
        let links = text.split("href=\"").skip(1).filter_map(|rest| rest.split('"').next());
        let paths = links.map(|link| link.split(['#', '?']).next().unwrap_or(link));
        let paths: BTreeSet<&str> = paths.filter(|path| !path.is_empty() && !path.contains(':')).collect();
        let missing = paths.into_iter().filter(|path| !folder.join(path).exists());
        dead.extend(missing.map(|path| format!("{} leads to {path}", page.display())));
    }
    Ok(dead)
}

/// The pages that mdBook made; reports are copied as they were.
fn pages_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(pages_below(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "html") && !path.ends_with("404.html") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_laid_out_at_their_paths_with_the_files_that_they_link_to() {
        let folder = tempfile::tempdir().unwrap();
        let (root, source) = (folder.path().join("root"), folder.path().join("source"));
        put(&root.join("README.md"), b"[doc](docs/page.md#x), ![image](docs/a.png), [out](https://example.org)").unwrap();
        put(&root.join("docs/page.md"), b"[home](../README.md)").unwrap();
        put(&root.join("docs/a.png"), b"png").unwrap();
        put(&root.join(SUMMARY), b"[weal](../README.md)\n\n- [Page](page.md)\n").unwrap();
        assert_eq!(lay_pages(&root, &source).unwrap(), BTreeSet::from(["docs/a.png".to_owned()]));
        let read = |path: &str| fs::read_to_string(source.join(path)).unwrap();
        assert_eq!(read("SUMMARY.md"), "[weal](README.md)\n\n- [Page](docs/page.md)\n");
        assert_eq!(read("docs/page.md"), "[home](../index.md)");
    }

    #[test]
    fn a_link_to_nothing_is_found() {
        let folder = tempfile::tempdir().unwrap();
        put(&folder.path().join("a/index.html"), br##"<a href="../b.html#x">b</a><a href="c.html"><a href="#here">"##).unwrap();
        put(&folder.path().join("b.html"), br#"<a href="https://example.org/d">"#).unwrap();
        let dead = dead_links(folder.path()).unwrap();
        assert_eq!(dead.len(), 1, "{dead:?}");
        assert!(dead[0].ends_with("leads to c.html"), "{dead:?}");
    }
}
