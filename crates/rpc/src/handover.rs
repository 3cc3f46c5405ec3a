//! Open sockets that one process hands to another beside a message (`SCM_RIGHTS`, unix(7)).
//!
//! A message names all sockets that come with it, in their order; what they are for is the caller's matter. It waits in the kernel until
//! the other side reads it, so that side may be started later. It takes what its own user and root sent, by the kernel's word, and the mode of the
//! socket's path keeps others from sending at all.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;

use crate::socket::{ShortPath, remove_left};

/// Sockets of one message: the kernel's own limit (`SCM_MAX_FD`).
pub const MOST_SOCKETS: usize = 253;
/// Bytes of one message.
const LONGEST: usize = 64 << 10;
/// Bytes of control data with as many sockets as there may be, and with who sent them.
const CONTROL: usize = rustix::cmsg_space!(ScmRights(MOST_SOCKETS), ScmCredentials(1));

/// Takes messages at `path`, in place of a socket that was left there.
///
/// # Errors
/// The path cannot be had.
pub fn bind_handover(path: &Path) -> io::Result<UnixDatagram> {
    remove_left(path)?;
    let socket = UnixDatagram::bind(ShortPath::new(path)?.as_path())?;
    crate::socket::own_only(path)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Sends `message` with its sockets to whoever reads at `path`.
///
/// # Errors
/// Nobody has the path, too much waits there, or there are more than [`MOST_SOCKETS`].
pub fn hand_over<M: Serialize>(path: &Path, message: &M, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if sockets.len() > MOST_SOCKETS || text.len() > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("more than {MOST_SOCKETS} sockets")));
    }
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    // The kernel notes the sender when one of both sides asks for it, and the other one may be of a version that does not.
    rustix::net::sockopt::set_socket_passcred(&socket, true)?;
    socket.connect(ShortPath::new(path)?.as_path())?;
    let mut space = [MaybeUninit::uninit(); CONTROL];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !sockets.is_empty() && !control.push(SendAncillaryMessage::ScmRights(sockets)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(&socket, &[IoSlice::new(&text)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message with its sockets; waits for it.
///
/// # Errors
/// The socket is broken, or a message cannot be read; its sockets are closed then.
pub async fn receive_handed_over<M: DeserializeOwned>(socket: &tokio::net::UnixDatagram) -> io::Result<(M, Vec<OwnedFd>)> {
    loop {
        match socket.async_io(Interest::READABLE, || receive(socket)).await {
            Err(error) if is_of_stranger(&error) => tracing::warn!(%error, "sockets are not taken"),
            received => {
                let (text, sockets) = received?;
                return Ok((serde_json::from_slice(&text)?, sockets));
            }
        }
    }
}

/// Forgets what nobody has read.
pub fn discard_handed_over(socket: &UnixDatagram) {
    while receive(socket).map_or_else(|error| is_of_stranger(&error), |_| true) {}
}

fn is_of_stranger(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// A message of this user's or of root's; an error of the kind `PermissionDenied` for that of anybody else, which is gone then.
fn receive(socket: impl std::os::fd::AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    rustix::net::sockopt::set_socket_passcred(&socket, true)?;
    let mut text = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); CONTROL];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
    let (mut sockets, mut sender) = (Vec::new(), None);
    for part in control.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(came) => sockets.extend(came),
            RecvAncillaryMessage::ScmCredentials(who) => sender = Some(who.uid),
            _ => {}
        }
    }
    if !sender.is_some_and(|sender| sender.is_root() || sender == rustix::process::geteuid()) {
        let who = sender.map_or_else(|| "nobody knows who".to_owned(), |uid| format!("user {}", uid.as_raw()));
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{who} sent them")));
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut"));
    }
    text.truncate(received.bytes);
    Ok((text, sockets))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn sockets_wait_with_their_message_until_somebody_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ports.sock");
        let socket = bind_handover(&path).unwrap();
        let sent: Vec<TcpListener> = (0..9).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = sent.iter().map(|socket| socket.local_addr().unwrap()).collect();
        hand_over(&path, &["first"], &[]).unwrap();
        hand_over(&path, &["second"], &sent.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
        drop(sent);
        let socket = tokio::net::UnixDatagram::from_std(socket).unwrap();
        let (message, none): ([String; 1], _) = receive_handed_over(&socket).await.unwrap();
        assert_eq!((message[0].as_str(), none.len()), ("first", 0));
        let (message, came): ([String; 1], _) = receive_handed_over(&socket).await.unwrap();
        let came: Vec<_> = came.into_iter().map(|socket| TcpListener::from(socket).local_addr().unwrap()).collect();
        assert_eq!((message[0].as_str(), came), ("second", addresses));
    }

    #[test]
    fn what_nobody_read_is_forgotten_and_nobody_there_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ports.sock");
        assert!(hand_over(&path, &0, &[]).is_err(), "nobody is there");
        let socket = bind_handover(&path).unwrap();
        hand_over(&path, &0, &[]).unwrap();
        discard_handed_over(&socket);
        assert_eq!(receive(&socket).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[tokio::test]
    async fn what_another_user_sends_is_not_taken() {
        if !rustix::process::geteuid().is_root() {
            return weal_testing::skip("only root can send as another user");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ports.sock");
        let socket = bind_handover(&path).unwrap();
        let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        // Without the first wall.
        open(folder.path(), 0o755);
        open(&path, 0o666);
        let evil = path.clone();
        let sending = std::thread::spawn(move || {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            hand_over(&evil, &["evil"], &[TcpListener::bind("127.0.0.1:0").unwrap().as_fd()]).unwrap();
        });
        sending.join().unwrap();
        hand_over(&path, &["good"], &[]).unwrap();
        let socket = tokio::net::UnixDatagram::from_std(socket).unwrap();
        let (message, sockets): ([String; 1], _) = receive_handed_over(&socket).await.unwrap();
        assert_eq!((message[0].as_str(), sockets.len()), ("good", 0));
    }
}
