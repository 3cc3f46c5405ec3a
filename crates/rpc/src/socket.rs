//! Local sockets whose paths may be longer than the 107 bytes that the kernel takes.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

/// The longest path that fits `sockaddr_un`.
const LONGEST_PATH: usize = 107;

/// Listens at `path`, readable and writable for its owner only, in place of a socket that was left there.
///
/// The caller makes sure that no live process listens there (the supervisor holds a lock).
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    remove_left(path)?;
    let short = ShortPath::new(path)?;
    let listener = UnixListener::bind(&short.path)?;
    own_only(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Removes a socket that was left at `path`.
pub(crate) fn remove_left(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Keeps everybody but the owner from the socket at `path`.
pub(crate) fn own_only(path: &Path) -> io::Result<()> {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
}

/// Connects to the socket at `path`.
pub async fn connect(path: &Path) -> io::Result<UnixStream> {
    let short = ShortPath::new(path)?;
    UnixStream::connect(&short.path).await
}

/// The user on the other side.
pub fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    Ok(stream.peer_cred()?.uid())
}

/// A path to the same place that fits: through the open directory where the real one is too long.
pub(crate) struct ShortPath {
    path: PathBuf,
    _directory: Option<std::fs::File>,
}

impl ShortPath {
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        if path.as_os_str().len() <= LONGEST_PATH {
            return Ok(Self { path: path.to_owned(), _directory: None });
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a socket needs a folder and a name"));
        };
        const O_PATH: i32 = 0o10_000_000;
        let directory = std::fs::OpenOptions::new().read(true).custom_flags(O_PATH).open(parent)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
        Ok(Self { path, _directory: Some(directory) })
    }

    /// Valid as long as this lives.
    pub(crate) fn as_path(&self) -> &Path {
        &self.path
    }
}
