//! Looking things up in what was unpacked, as a process in it would find them: its links lead to its own files.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2};
use rustix::io::Errno;

/// An image that was unpacked.
pub struct Rootfs(OwnedFd);

/// Why a program of an image cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// It is a folder.
    #[error("cannot run {path} of the image: it is a folder")]
    Folder {
        /// Where it is.
        path: String,
    },
    /// Nobody may execute it.
    #[error("cannot run {path} of the image: it is not executable")]
    NotExecutable {
        /// Where it is.
        path: String,
    },
    /// There is none.
    #[error("cannot run {path}: the image has no such file")]
    NoFile {
        /// Where it should be.
        path: String,
    },
    /// No folder of the search path holds it.
    #[error("cannot run `{program}`: the image has no such program in PATH ({path})")]
    NotInPath {
        /// Its name.
        program: String,
        /// The search path.
        path: String,
    },
}

impl Rootfs {
    /// The image that was unpacked to `path`.
    ///
    /// # Errors
    /// There is no such folder.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self(openat(CWD, path, flags, Mode::empty())?))
    }

    fn find(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
        openat2(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
    }

    fn look(&self, path: &str) -> Option<Stat> {
        fstat(self.find(path, OFlags::PATH).ok()?).ok()
    }

    /// The first `most` bytes of a file; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn text(&self, path: &str, most: u64) -> io::Result<Option<String>> {
        let file = match self.find(path, OFlags::RDONLY | OFlags::NONBLOCK) {
            Err(Errno::NOENT) => return Ok(None),
            file => file?,
        };
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        let mut text = String::new();
        File::from(file).take(most).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Whether it has a folder at `path`.
    pub fn has_folder(&self, path: &str) -> bool {
        self.look(path).is_some_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Directory)
    }

    /// The path of a program, as a shell in `cwd` would find it in `path`.
    ///
    /// # Errors
    /// There is none that can be run: says what is there instead.
    pub fn find_program(&self, program: &str, cwd: &str, path: &str) -> Result<String, NotFound> {
        let is_file = |found: &Stat| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile;
        let is_executable = |found: &Stat| is_file(found) && found.st_mode & 0o111 != 0;
        let below = |folder: &str, name: &str| Path::new("/").join(cwd).join(folder).join(name).display().to_string();
        if program.contains('/') {
            let path = below("", program);
            return match self.look(&path) {
                None => Err(NotFound::NoFile { path }),
                Some(found) if is_executable(&found) => Ok(path),
                Some(found) if is_file(&found) => Err(NotFound::NotExecutable { path }),
                Some(_) => Err(NotFound::Folder { path }),
            };
        }
        let mut candidates = path.split(':').map(|folder| below(folder, program));
        let found = candidates.find(|path| self.look(path).is_some_and(|found| is_executable(&found)));
        found.ok_or_else(|| NotFound::NotInPath { program: program.to_owned(), path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_lead_to_the_images_own_files_only() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = folder.path();
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("usr/bin/tool"), "").unwrap();
        fs::set_permissions(root.join("usr/bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(root.join("etc/plain"), "own").unwrap();
        symlink("/usr/bin", root.join("bin")).unwrap();
        symlink("../../../../../etc/plain", root.join("etc/passwd")).unwrap();
        fs::write(outside.path().join("secret"), "others'").unwrap();
        symlink(outside.path().join("secret"), root.join("etc/group")).unwrap();
        let image = Rootfs::open(root).unwrap();
        assert_eq!(image.find_program("tool", "/", "/nowhere:/bin"), Ok("/bin/tool".to_owned()));
        assert_eq!(image.find_program("./tool", "/usr/bin", ""), Ok("/usr/bin/./tool".to_owned()));
        assert_eq!(image.find_program("etc/plain", "/", ""), Err(NotFound::NotExecutable { path: "/etc/plain".to_owned() }));
        assert_eq!(image.find_program("/etc", "", ""), Err(NotFound::Folder { path: "/etc".to_owned() }));
        assert!(matches!(image.find_program("sh", "/", "/bin"), Err(NotFound::NotInPath { .. })));
        assert_eq!(image.text("etc/passwd", 100).unwrap().as_deref(), Some("own"));
        assert_eq!(image.text("etc/group", 100).unwrap(), None, "that is a file of the machine");
        assert_eq!(image.text("/etc/plain", 2).unwrap().as_deref(), Some("ow"));
        assert!(image.has_folder("/bin") && !image.has_folder("/etc/plain"));
    }
}
