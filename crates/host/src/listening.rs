//! Asking the kernel for the sockets that listen (sock_diag(7)). It walks those that listen only, where /proc/net/tcp prints every
//! connection of the machine. By hand: the one library for it brings a second version of four others for these two messages.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto, socket_with};

use crate::connections::{Connections, Ends};
use crate::process::Proc;

/// A socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listening {
    /// Its address and port.
    pub address: SocketAddr,
    /// The user that made it.
    pub uid: u32,
    /// The number by which descriptors name it (`socket:[NUMBER]`).
    pub inode: u32,
    /// It is one for all addresses of IPv6, and takes nothing that is sent to one of IPv4. False where that is not known: /proc/net does not tell.
    pub only_v6: bool,
}

impl Listening {
    /// Whether it takes what is sent to `address` of this machine.
    pub fn takes(&self, address: SocketAddr) -> bool {
        let takes_family = match self.address.ip() {
            IpAddr::V4(_) => address.is_ipv4(),
            IpAddr::V6(_) => address.is_ipv6() || !self.only_v6,
        };
        let is_for_all = self.address.ip().is_unspecified() && self.address.port() == address.port();
        self.address == address || (is_for_all && takes_family)
    }
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const DUMP: u16 = 0x301;
const ONE: u16 = 1;
const LISTEN: u32 = 1 << 10;
/// A socket for datagrams that is connected to nobody has the state of a closed connection.
const UNCONNECTED: u32 = 1 << 7;
const DONE: u16 = 3;
const ERROR: u16 = 2;
/// struct nlmsghdr.
const HEAD: usize = 16;
/// struct inet_diag_sockid.
const ID: usize = 48;
/// struct inet_diag_msg.
const MESSAGE: usize = 72;
/// struct nlattr, before its value.
const ATTRIBUTE: usize = 4;
/// The attribute of a socket of IPv6 that says whether it is for IPv6 alone.
const SKV6ONLY: u16 = 11;
/// More listening sockets than a machine has ports are no answer.
const MOST_BYTES: usize = 32 << 20;

/// The sockets that listen, of both families. Where the kernel lacks sock_diag (a module of some), /proc/net tells.
///
/// # Errors
/// The kernel does not say.
pub fn listening() -> io::Result<Vec<Listening>> {
    asked().or_else(|_| Proc::system().listening())
}

/// The socket that takes what is sent to `address` of this machine; `None` when none does. The kernel looks it up as it would for a connection:
/// that takes some microseconds, however many listen.
///
/// # Errors
/// The kernel does not say.
pub fn listener_at(address: SocketAddr) -> io::Result<Option<Listening>> {
    let all = || Ok(listening()?.into_iter().find(|socket| socket.takes(address)));
    believed(LOOKS_ONE_UP.get().copied(), || one_asked(address), looks_one_up, all)
}

/// Whether the kernel looks a single socket up, as soon as it has said so. One without its module `tcp_diag` answers as if there were none, whoever
/// listens. To ask it for that costs more than an answer: each time it looks for a program that loads the module.
static LOOKS_ONE_UP: OnceLock<bool> = OnceLock::new();

/// Of `one`, the kernel's answer about one socket, only a socket counts, unless the kernel `looks_one_up`. Else `all` sockets are looked through, and
/// at once where it is `known` that the kernel looks no single one up.
fn believed(
    known: Option<bool>,
    one: impl FnOnce() -> io::Result<Option<Listening>>,
    looks_one_up: impl FnOnce() -> bool,
    all: impl FnOnce() -> io::Result<Option<Listening>>,
) -> io::Result<Option<Listening>> {
    if known == Some(false) {
        return all();
    }
    match one() {
        Ok(Some(found)) => Ok(Some(found)),
        Ok(None) if looks_one_up() => Ok(None),
        Ok(None) | Err(_) => all(),
    }
}

/// Asks the kernel for [`LOOKS_ONE_UP`], about a socket that is there. Where there is no such socket, or no answer, it is asked again the next time.
fn looks_one_up() -> bool {
    if let Some(known) = LOOKS_ONE_UP.get() {
        return *known;
    }
    let listeners = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    let listener = listeners.into_iter().find_map(|ip| TcpListener::bind((ip, 0)).ok());
    let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
    let Some(Ok(found)) = address.map(one_asked) else { return false };
    *LOOKS_ONE_UP.get_or_init(|| found.is_some())
}

/// The socket that takes datagrams which are sent to `address` of this machine by whoever it is not connected to; `None` when none does.
///
/// # Errors
/// The kernel does not say.
pub fn receiver_at(address: SocketAddr) -> io::Result<Option<Listening>> {
    let found = receivers_at(address)?;
    // The one that is bound to this very address comes before one for all addresses.
    Ok(found.iter().find(|socket| socket.address == address).or(found.first()).copied())
}

/// All sockets that may take datagrams which are sent to `address` of this machine.
///
/// # Errors
/// The kernel does not say.
pub fn receivers_at(address: SocketAddr) -> io::Result<Vec<Listening>> {
    let mut found = receivers(address.port()).or_else(|_| Proc::system().receiving())?;
    found.retain(|socket| socket.takes(address));
    Ok(found)
}

fn receivers(port: u16) -> io::Result<Vec<Listening>> {
    let mut found = Vec::new();
    let mut id = [0; ID];
    id[..2].copy_from_slice(&port.to_be_bytes());
    for family in [libc::AF_INET, libc::AF_INET6] {
        take_answers(&ask(&request(family, libc::IPPROTO_UDP, UNCONNECTED, DUMP, id))?, &mut found)?;
    }
    Ok(found)
}

/// The socket of this machine at `local` that is connected to `remote`. Its `inode` is 0 once its program has closed it. `None` when none is.
///
/// # Errors
/// The kernel does not say.
pub fn connected_at(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<Listening>> {
    let (local, remote) = (canonical(local), canonical(remote));
    let one = || one_found(local, Some(remote));
    believed(LOOKS_ONE_UP.get().copied(), one, looks_one_up, || connected((local, remote)))
}

/// By the list of all connections of the machine, which one reading has for all who ask.
fn connected(ends: Ends) -> io::Result<Option<Listening>> {
    static CONNECTIONS: Connections<Listening> = Connections::new();
    CONNECTIONS.find(&ends, Instant::now(), Instant::now, || Proc::system().connections())
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn one_asked(address: SocketAddr) -> io::Result<Option<Listening>> {
    one_found(address, None)
}

fn one_found(address: SocketAddr, remote: Option<SocketAddr>) -> io::Result<Option<Listening>> {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let (family, ip) = (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }, octets(address.ip()));
    let mut id = [0; ID];
    id[..2].copy_from_slice(&address.port().to_be_bytes());
    id[4..4 + ip.len()].copy_from_slice(&ip);
    if let Some(remote) = remote {
        let ip = octets(remote.ip());
        id[2..4].copy_from_slice(&remote.port().to_be_bytes());
        id[20..20 + ip.len()].copy_from_slice(&ip);
    }
    // Whatever its cookie is.
    id[ID - 8..].fill(0xff);
    let mut buffer = [0u8; 1 << 10];
    let length = answer_to_one(&request(family, libc::IPPROTO_TCP, LISTEN, ONE, id), &mut buffer)?;
    match message(&buffer[..length]) {
        Some((SOCK_DIAG_BY_FAMILY, body, _)) => Ok(read(body)),
        Some((ERROR, body, _)) if code(body) == Some(libc::ENOENT) => Ok(None),
        Some((ERROR, body, _)) => Err(io::Error::from_raw_os_error(code(body).unwrap_or(libc::EPROTO))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn asked() -> io::Result<Vec<Listening>> {
    let mut found = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        // No socket in particular.
        take_answers(&ask(&request(family, libc::IPPROTO_TCP, LISTEN, DUMP, [0; ID]))?, &mut found)?;
    }
    Ok(found)
}

/// Where the answer comes.
fn ask(request: &[u8]) -> io::Result<OwnedFd> {
    let socket = open()?;
    send(&socket, request)?;
    Ok(socket)
}

fn open() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(netlink::SOCK_DIAG))?)
}

fn send(socket: &OwnedFd, request: &[u8]) -> io::Result<()> {
    sendto(socket, request, SendFlags::empty(), &netlink::SocketAddrNetlink::new(0, 0))?;
    Ok(())
}

thread_local! {
    /// What this thread has asked the kernel over. A gateway asks for each connection, and to make a socket costs more than the question.
    static ASKED: Cell<Option<OwnedFd>> = const { Cell::new(None) };
}

/// The length of the one message that answers `request`.
fn answer_to_one(request: &[u8], buffer: &mut [u8]) -> io::Result<usize> {
    let socket = ASKED.take().map_or_else(open, Ok)?;
    send(&socket, request)?;
    let (length, _) = recv(&socket, buffer, RecvFlags::empty())?;
    // Kept only now: where something failed, the answer may still come, and would be taken for that to the next question.
    ASKED.set(Some(socket));
    Ok(length)
}

/// struct nlmsghdr and struct inet_diag_req_v2.
fn request(family: i32, protocol: i32, states: u32, flags: u16, id: [u8; ID]) -> Vec<u8> {
    const LENGTH: u32 = 72;
    let mut message = Vec::with_capacity(LENGTH as usize);
    message.extend(LENGTH.to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    // Sequence and sender.
    message.extend([0; 8]);
    message.extend([u8::try_from(family).unwrap_or_default(), u8::try_from(protocol).unwrap_or_default(), 0, 0]);
    message.extend(states.to_ne_bytes());
    message.extend(id);
    message
}

fn take_answers(socket: &OwnedFd, found: &mut Vec<Listening>) -> io::Result<()> {
    let mut buffer = vec![0u8; 64 << 10];
    let mut taken = 0;
    loop {
        let (length, _) = recv(socket, &mut buffer[..], RecvFlags::empty())?;
        taken += length;
        if length == 0 || taken > MOST_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's list of sockets has no end"));
        }
        let mut rest = &buffer[..length];
        while let Some((kind, body, after)) = message(rest) {
            match kind {
                // A list that could not be made ends like a whole one, with an error in its body.
                DONE => return code(body).map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code))),
                ERROR => return Err(io::Error::from_raw_os_error(code(body).unwrap_or(libc::EPROTO))),
                SOCK_DIAG_BY_FAMILY => found.extend(read(body)),
                _ => {}
            }
            rest = after;
        }
    }
}

/// The first message: its kind, its body, and what comes after it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
    let body = bytes.get(HEAD..length)?;
    // Messages begin at multiples of four bytes.
    Some((kind, body, bytes.get(length.next_multiple_of(4)..).unwrap_or(&[])))
}

/// The number of an error; `None` where there is none.
fn code(body: &[u8]) -> Option<i32> {
    let code = i32::from_ne_bytes(body.get(..4)?.try_into().ok()?);
    (code < 0).then_some(-code)
}

/// The first byte of the attribute of this kind.
fn attribute(mut attributes: &[u8], wanted: u16) -> Option<u8> {
    loop {
        let length = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..ATTRIBUTE)?.try_into().ok()?);
        let value = attributes.get(ATTRIBUTE..length)?;
        if kind == wanted {
            return value.first().copied();
        }
        // Attributes begin at multiples of four bytes.
        attributes = attributes.get(length.next_multiple_of(4)..)?;
    }
}

fn read(body: &[u8]) -> Option<Listening> {
    let is_v6 = attribute(body.get(MESSAGE..)?, SKV6ONLY) == Some(1);
    let body: &[u8; MESSAGE] = body.get(..MESSAGE)?.try_into().ok()?;
    let word = |at: usize| u32::from_ne_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
    let port = u16::from_be_bytes([body[4], body[5]]);
    let address: [u8; 16] = body[8..24].try_into().ok()?;
    let ip: IpAddr = match i32::from(body[0]) {
        libc::AF_INET => Ipv4Addr::new(address[0], address[1], address[2], address[3]).into(),
        _ => Ipv6Addr::from(address).to_canonical(),
    };
    Some(Listening { address: SocketAddr::new(ip, port), uid: word(64), inode: word(68), only_v6: is_v6 && ip.is_unspecified() })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_kernel_that_cannot_look_one_up_is_not_believed_that_there_is_none() {
        let socket = Listening { address: ([127, 0, 0, 1], 8000).into(), uid: 7, inode: 9, only_v6: false };
        let refused = || Err(io::ErrorKind::Unsupported.into());
        let (none, found) = (|| Ok(None), || Ok(Some(socket)));
        assert_eq!(believed(None, none, || false, found).unwrap(), Some(socket));
        assert_eq!(believed(None, refused, || panic!("it did not answer"), found).unwrap(), Some(socket));
        assert_eq!(believed(None, found, || panic!("it is known"), || panic!("it is known")).unwrap(), Some(socket));
        assert_eq!(believed(Some(true), none, || true, || panic!("the kernel knows")).unwrap(), None);
        assert!(believed(None, none, || false, refused).is_err(), "nobody can tell");
        assert_eq!(believed(Some(false), || panic!("it is not asked"), || panic!("nor this"), found).unwrap(), Some(socket));
    }

    #[test]
    fn a_listening_socket_is_found_by_its_port_with_its_owner() {
        let own = rustix::process::geteuid().as_raw();
        for address in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            let Ok(listener) = TcpListener::bind((address, 0)) else {
                weal_testing::skip(format_args!("{address} cannot be had here"));
                continue;
            };
            let address = listener.local_addr().unwrap();
            let at_the_port = |found: io::Result<Vec<Listening>>| {
                found.unwrap().into_iter().filter(|socket| socket.address.port() == address.port()).collect::<Vec<_>>()
            };
            let inode = u32::try_from(rustix::fs::fstat(listener.as_fd()).unwrap().st_ino).unwrap();
            let expected = Listening { address, uid: own, inode, only_v6: false };
            assert_eq!(at_the_port(listening()), [expected]);
            assert_eq!(at_the_port(Proc::system().listening()), [expected], "by /proc/net");
            let loopback = if address.is_ipv4() { [127, 0, 0, 1].into() } else { IpAddr::from(Ipv6Addr::LOCALHOST) };
            let reached = SocketAddr::new(loopback, address.port());
            assert_eq!(one_asked(reached).unwrap(), Some(expected), "{address}");
            drop(listener);
            assert_eq!((at_the_port(listening()), one_asked(reached).unwrap()), (vec![], None));
        }
    }

    #[test]
    fn a_thread_that_asks_again_asks_over_the_same_socket() {
        let asked_over = || {
            let socket = ASKED.take().expect("it was asked");
            let number = std::os::fd::AsRawFd::as_raw_fd(&socket);
            ASKED.set(Some(socket));
            number
        };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let first = one_asked(address).unwrap().map(|_| asked_over());
        assert!(first.is_some());
        assert_eq!(one_asked((address.ip(), 9).into()).unwrap(), None, "nobody listens there");
        assert_eq!(one_asked(address).unwrap().map(|_| asked_over()), first);
    }

    #[test]
    fn a_socket_for_datagrams_is_found_by_its_port_with_its_owner() {
        for address in ["127.0.0.1", "0.0.0.0", "::1", "::"] {
            let Ok(socket) = std::net::UdpSocket::bind((address, 0)) else {
                weal_testing::skip(format_args!("{address} cannot be had here"));
                continue;
            };
            let address = socket.local_addr().unwrap();
            let inode = u32::try_from(rustix::fs::fstat(socket.as_fd()).unwrap().st_ino).unwrap();
            let expected = Listening { address, uid: rustix::process::geteuid().as_raw(), inode, only_v6: false };
            let loopback = if address.is_ipv4() { [127, 0, 0, 1].into() } else { IpAddr::from(Ipv6Addr::LOCALHOST) };
            let reached = SocketAddr::new(loopback, address.port());
            assert_eq!(receiver_at(reached).unwrap(), Some(expected), "{address}");
            assert!(Proc::system().receiving().unwrap().contains(&expected), "by /proc/net");
            drop(socket);
            assert_eq!(receiver_at(reached).unwrap(), None);
        }
    }

    #[test]
    fn a_socket_for_ipv6_alone_takes_nothing_of_ipv4() {
        let [tcp, udp] = [SocketType::STREAM, SocketType::DGRAM].map(|kind| {
            let socket = rustix::net::socket(AddressFamily::INET6, kind, None)?;
            rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
            rustix::net::bind(&socket, &SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))?;
            if kind == SocketType::STREAM {
                rustix::net::listen(&socket, 1)?;
            }
            let address = SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
            Ok::<_, rustix::io::Errno>((socket, address.port()))
        });
        let (Ok((_tcp, tcp)), Ok((_udp, udp))) = (tcp, udp) else { return weal_testing::skip("there is no IPv6 here") };
        let [v4, v6] = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
        let takes = |ip: IpAddr| listening().unwrap().iter().any(|socket| socket.takes((ip, tcp).into()));
        assert_eq!((takes(v4), takes(v6)), (false, true));
        assert_eq!(receiver_at((v4, udp).into()).unwrap(), None);
        assert!(receiver_at((v6, udp).into()).unwrap().is_some());
    }

    #[test]
    fn a_connection_is_found_by_its_ends_with_its_owner_until_it_is_closed() {
        for address in ["127.0.0.1", "::1"] {
            let Ok(listener) = TcpListener::bind((address, 0)) else {
                weal_testing::skip(format_args!("{address} cannot be had here"));
                continue;
            };
            let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, from) = listener.accept().unwrap();
            let inode = u32::try_from(rustix::fs::fstat(client.as_fd()).unwrap().st_ino).unwrap();
            let expected = Listening { address: from, uid: rustix::process::geteuid().as_raw(), inode, only_v6: false };
            let ends = (from, server.local_addr().unwrap());
            assert_eq!(connected_at(ends.0, ends.1).unwrap(), Some(expected), "{address}");
            assert_eq!(Proc::system().connections().unwrap().get(&ends), Some(&expected), "by /proc/net");
            assert_eq!(connected(ends).unwrap(), Some(expected), "by /proc/net");
            drop(client);
            let left = connected_at(ends.0, ends.1).unwrap();
            assert!(left.is_none_or(|socket| socket.inode == 0), "nobody has it any more: {left:?}");
            assert_eq!(connected_at((from.ip(), 9).into(), ends.1).unwrap(), None);
            assert_eq!(connected(((from.ip(), 9).into(), ends.1)).unwrap(), None);
        }
    }

    #[test]
    fn what_is_cut_short_is_no_message() {
        let whole = request(2, libc::IPPROTO_TCP, LISTEN, DUMP, [0; ID]);
        assert!(message(&whole).is_some());
        for length in 0..whole.len() {
            assert!(message(&whole[..length]).is_none(), "{length}");
        }
        assert_eq!(read(&[0; 20]), None);
        for attributes in [&[][..], &[5, 0, 11], &[9, 0, 11, 0, 1], &[3, 0, 11, 0, 1], &[0; 8]] {
            assert_eq!(attribute(attributes, SKV6ONLY), None, "{attributes:?}");
        }
        assert_eq!(attribute(&[5, 0, 8, 0, 7, 0, 0, 0, 5, 0, 11, 0, 1, 0, 0, 0], SKV6ONLY), Some(1));
        assert_eq!((code(&[]), code(&0i32.to_ne_bytes()), code(&(-2i32).to_ne_bytes())), (None, None, Some(2)));
    }
}
