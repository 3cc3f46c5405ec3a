//! Becoming the user that an instance runs as, and what that user cannot get to.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{Gid, Uid};
use weal_host::users::User;

/// Makes this process `user`, for good, between fork and exec: no program that it starts gets more rights than it has.
///
/// `None` keeps the user, without the way up all the same.
pub fn become_user(user: Option<&User>) -> io::Result<()> {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
    if let Some(user) = user {
        let groups: Vec<Gid> = std::iter::once(user.gid).chain(user.groups.iter().copied()).map(Gid::from_raw).collect();
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        // The raw system calls, per thread: there is only one thread here.
        rustix::thread::set_thread_groups(&groups)?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    Ok(())
}

/// Keeps every descriptor beyond the first three from the program that comes next. It is not closed here: the standard library tells by one of
/// them that the program could not be started.
pub fn keep_descriptors_back() -> io::Result<()> {
    close_range(libc::CLOSE_RANGE_CLOEXEC)
}

/// Closes every descriptor beyond the first three: whoever started this process may have left some open.
pub fn close_descriptors() -> io::Result<()> {
    close_range(0)
}

fn close_range(flags: libc::c_uint) -> io::Result<()> {
    const FIRST: libc::c_uint = 3;
    // The raw system call, because not every C library has it.
    // SAFETY: it takes plain numbers. What is closed here was inherited, and nothing in this process has it as its own.
    let result = unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, flags) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What keeps a user from a file or a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Barrier {
    path: PathBuf,
    mode: u32,
    is_folder: bool,
    /// Whose bits of the mode count for the user, as chmod(1) writes them.
    class: char,
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A script must be read as well.
        let (verb, bits) = if self.is_folder { ("enter", "x") } else { ("run", "rx") };
        let path = self.path.display();
        write!(f, "may not {verb} {path} (mode {:04o}): chmod {}+{bits} {path}", self.mode, self.class)
    }
}

/// The first thing that keeps `user` from passing to `path` and using it, as far as owners and modes say.
pub fn barrier(path: &Path, user: &User) -> Option<Barrier> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // As it is written, then to where links lead.
    let ways = [path, real.as_path()].map(|way| way.ancestors().collect::<Vec<_>>());
    ways.iter().flat_map(|way| way.iter().rev()).find_map(|part| {
        let meta = fs::metadata(part).ok()?;
        let (class, bits) = bits_for(user, &meta);
        let barrier = || Barrier { path: part.to_path_buf(), mode: meta.mode() & 0o7777, is_folder: meta.is_dir(), class };
        (bits & 0o1 == 0).then(barrier)
    })
}

/// Which three bits of a mode count for `user`, as chmod(1) names them, and their value: 4 reads, 2 writes, 1 runs or enters.
fn bits_for(user: &User, meta: &fs::Metadata) -> (char, u32) {
    let (class, shift) = match () {
        () if meta.uid() == user.uid => ('u', 6),
        () if meta.gid() == user.gid || user.groups.contains(&meta.gid()) => ('g', 3),
        () => ('o', 0),
    };
    (class, meta.mode() >> shift & 0o7)
}

/// Whether owners and modes let `user` write to `path`, or to something that lies in it. What cannot be looked at counts as such.
pub fn may_write_in(path: &Path, user: &User) -> bool {
    let may_write = |meta: &fs::Metadata| bits_for(user, meta).1 & 0o2 != 0;
    let Ok(meta) = fs::metadata(path) else { return true };
    let entries = || fs::read_dir(path).into_iter().flatten().flatten().filter_map(|entry| fs::metadata(entry.path()).ok());
    may_write(&meta) || entries().any(|meta| may_write(&meta))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_folder_counts_as_written_if_something_in_it_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let stranger = User { name: "app".to_owned(), uid: 4_000_000, gid: 4_000_000, groups: Vec::new(), home: "/".into() };
        mode(folder.path(), 0o755);
        assert!(!may_write_in(folder.path(), &stranger));
        let pages = folder.path().join("pages");
        fs::create_dir(&pages).unwrap();
        mode(&pages, 0o755);
        assert!(!may_write_in(folder.path(), &stranger));
        mode(&pages, 0o777);
        assert!(may_write_in(folder.path(), &stranger));
        assert!(may_write_in(Path::new("/no/such/folder"), &stranger));
    }

    #[test]
    fn what_keeps_a_user_from_a_program_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a/b/program");
        fs::create_dir_all(program.parent().unwrap()).unwrap();
        fs::write(&program, "").unwrap();
        let mode = |path: &str, mode| fs::set_permissions(folder.path().join(path), fs::Permissions::from_mode(mode)).unwrap();
        let user = |uid, gid, groups| User { name: "app".to_owned(), uid, gid, groups, home: "/".into() };
        let stranger = user(4_000_000, 4_000_000, Vec::new());
        let found = |user: &User| barrier(&program, user).map(|barrier| barrier.to_string());
        for (path, bits) in [("", 0o711), ("a", 0o711), ("a/b", 0o700), ("a/b/program", 0o755)] {
            mode(path, bits);
        }
        let b = program.parent().unwrap();
        assert_eq!(found(&stranger), Some(format!("may not enter {0} (mode 0700): chmod o+x {0}", b.display())));
        mode("a/b", 0o711);
        assert_eq!(found(&stranger), None);
        mode("a/b/program", 0o750);
        assert_eq!(found(&stranger), Some(format!("may not run {0} (mode 0750): chmod o+rx {0}", program.display())));
        let own_group = fs::metadata(&program).unwrap().gid();
        assert_eq!(found(&user(4_000_000, 4_000_000, vec![own_group])), None);
    }
}
