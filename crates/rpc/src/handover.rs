//! Open sockets that one process hands to another beside a message (`SCM_RIGHTS`, unix(7)).
//!
//! A message names all sockets that come with it, in their order; what they are for is the caller's matter. It waits in the kernel until
//! the other side reads it, so that side may be started later. Only the owner of the socket's path, and root, can send.

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
/// Bytes of control data with as many sockets as there may be.
const CONTROL: usize = rustix::cmsg_space!(ScmRights(MOST_SOCKETS));

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
    let (text, sockets) = socket.async_io(Interest::READABLE, || receive(socket)).await?;
    Ok((serde_json::from_slice(&text)?, sockets))
}

/// Forgets what nobody has read.
pub fn discard_handed_over(socket: &UnixDatagram) {
    while receive(socket).is_ok() {}
}

fn receive(socket: impl std::os::fd::AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut text = vec![0; LONGEST];
    let mut space = [MaybeUninit::uninit(); CONTROL];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut text)], &mut control, flags)?;
    let rights = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => Some(sockets),
        _ => None,
    });
    let sockets = rights.flatten().collect();
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
}
