//! Pages from files, which are said instead of the gateway's own errors.
//!
//! The gateway reads them as its own user when a config comes in, and again when they have changed by the next one. A page that cannot be
//! read is logged, and the gateway's own line of text is said.

use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;

/// The longest page. It is kept in memory, and an error page that is larger is no error page.
const LONGEST: u64 = 64 << 10;

/// A page, as clients get it.
#[derive(Debug)]
pub(crate) struct Page {
    pub content_type: HeaderValue,
    pub text: Bytes,
}

/// The pages that were read.
#[derive(Debug)]
pub(super) struct Pages {
    /// The folder in which no page is: what the gateway keeps in it is not for clients.
    own: PathBuf,
    /// By path: what the file was when it was read, and what was in it.
    read: HashMap<String, (Version, Option<Arc<Page>>)>,
    /// Those that the config named so far.
    named: Vec<String>,
}

/// Differs when a file has changed. `None`: there is none that can be read.
type Version = Option<(u64, u64, i64, i64)>;

impl Pages {
    /// None read yet; none is in the state directory `own`.
    pub fn beside(own: &Path) -> Self {
        let own = own.canonicalize().unwrap_or_else(|_| own.to_owned());
        Self { own, read: HashMap::new(), named: Vec::new() }
    }

    /// A config comes in: pages that the last one did not name are forgotten.
    pub fn begin(&mut self) {
        let named = std::mem::take(&mut self.named);
        self.read.retain(|path, _| named.contains(path));
    }

    /// The page in a file; `None` when it cannot be read.
    pub fn page(&mut self, path: &str) -> Option<Arc<Page>> {
        self.named.push(path.to_owned());
        let opened = open(Path::new(path), &self.own);
        let version = opened.as_ref().ok().map(|(_, found)| (found.ino(), found.len(), found.mtime(), found.mtime_nsec()));
        if let Some((known, page)) = self.read.get(path)
            && *known == version
        {
            return page.clone();
        }
        let page = opened.and_then(|(file, _)| read(path, file)).map(Arc::new);
        if let Err(error) = &page {
            tracing::warn!(path, %error, "cannot read an error page: clients get one line of text instead");
        }
        let page = page.ok();
        self.read.insert(path.to_owned(), (version, page.clone()));
        page
    }
}

/// Opens a regular file outside of `own`; another kind could keep the gateway waiting. What the gateway may read as itself only is no page,
/// whatever name or link leads there: a config of somebody who holds a token would give it to every client.
fn open(path: &Path, own: &Path) -> io::Result<(File, Metadata)> {
    let file = OpenOptions::new().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
    }
    let place = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if place.starts_with("/proc") || place.starts_with(own) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "what weal or the kernel keeps there is not for clients"));
    }
    Ok((file, found))
}

fn read(path: &str, file: File) -> io::Result<Page> {
    let mut text = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LONGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is larger than {LONGEST} bytes")));
    }
    Ok(Page { content_type: HeaderValue::from_static(content_type(path)), text: text.into() })
}

fn content_type(path: &str) -> &'static str {
    match Path::new(path).extension().and_then(|extension| extension.to_str()) {
        Some("html" | "htm") => "text/html; charset=utf-8",
        Some("json") => "application/json",
        Some("xml") => "application/xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_again_when_it_has_changed_and_never_a_large_or_strange_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let mut pages = Pages::beside(Path::new("/var/lib/weal"));
        let sorry = file("sorry.html", b"<p>sorry");
        let page = pages.page(&sorry).unwrap();
        assert_eq!((page.content_type.as_bytes(), &page.text[..]), (&b"text/html; charset=utf-8"[..], &b"<p>sorry"[..]));
        assert!(Arc::ptr_eq(&page, &pages.page(&sorry).unwrap()));
        file("sorry.html", b"<p>sorry again");
        assert_eq!(&pages.page(&sorry).unwrap().text[..], b"<p>sorry again");
        let large = file("large.txt", &vec![b'x'; LONGEST as usize + 1]);
        assert!(pages.page(&large).is_none());
        assert!(pages.page(folder.path().to_str().unwrap()).is_none());
        assert!(pages.page("/dev/zero").is_none());
        assert!(pages.page("/nowhere/at/all").is_none());
    }

    #[test]
    fn what_the_gateway_keeps_for_itself_is_no_page() {
        let folder = tempfile::tempdir().unwrap();
        let (state, link) = (folder.path().join("state"), folder.path().join("link.html"));
        std::fs::create_dir(&state).unwrap();
        let (key, page) = (state.join("affinity.key"), folder.path().join("page.html"));
        [&key, &page].into_iter().for_each(|file| std::fs::write(file, "text").unwrap());
        std::os::unix::fs::symlink(&key, &link).unwrap();
        let mut pages = Pages::beside(&state);
        assert!(pages.page(page.to_str().unwrap()).is_some());
        assert!([&key, &link].into_iter().all(|file| pages.page(file.to_str().unwrap()).is_none()));
        assert!(pages.page("/proc/self/environ").is_none());
    }
}
