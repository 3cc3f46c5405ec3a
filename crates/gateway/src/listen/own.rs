//! Whose a connection from this machine is.
//!
//! Proxies that nobody has named and makers of load connect from here, so this machine's addresses may be without bounds (`unlimited-clients`).
//! Hosted applications connect from here too, and any of them may mean harm. So each of their users counts as a client of its own. The kernel says
//! whose the other end of a connection is.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use weal_host::listening::Listening;

use crate::routing::table::Table;

/// The address by which a connection from an unlimited one is counted nevertheless. `ask` asks the kernel for the client's end; `None` when it is
/// none of an application's.
pub(crate) fn counted_as(
    table: &Table,
    (client, server): (SocketAddr, SocketAddr),
    ask: impl Fn(SocketAddr, SocketAddr) -> io::Result<Option<Listening>>,
) -> Option<IpAddr> {
    let address = client.ip().to_canonical();
    if !address.is_loopback() || !table.is_unlimited(client.ip()) {
        return None;
    }
    match ask(client, server) {
        Ok(Some(end)) if end.inode != 0 => table.is_of_application(end.uid).then(|| address_of(end.uid)),
        // It was closed before anybody could look. Nobody knows whose it was, and one of an application's must not gain by that.
        Ok(_) => Some(address_of(u32::MAX)),
        // Where the kernel never says, nobody can tell.
        Err(_) => None,
    }
}

/// An address for each user in a network that no packet comes from (RFC 6666). Each is a network of 64 bits, as clients are.
fn address_of(user: u32) -> IpAddr {
    Ipv6Addr::from_bits((0x0100_0000 << 96) | (u128::from(user) << 64)).into()
}

#[cfg(test)]
mod tests {
    use weal_host::users::APPLICATION_UIDS;

    use super::*;

    fn end(uid: u32, inode: u32) -> io::Result<Option<Listening>> {
        Ok(Some(Listening { address: ([127, 0, 0, 1], 1).into(), uid, inode, only_v6: false }))
    }

    #[test]
    fn only_applications_and_who_has_gone_are_counted_of_this_machine() {
        let ends = |text: &str| (text.parse().unwrap(), ([127, 0, 0, 1], 80).into());
        let table = Table::default();
        let counted = |from: &str, found: fn() -> io::Result<Option<Listening>>| counted_as(&table, ends(from), |_, _| found());
        let application = || end(*APPLICATION_UIDS.start(), 7);
        let one = counted("127.0.0.1:5", application).unwrap();
        assert_eq!(counted("[::ffff:127.0.0.1]:5", application), Some(one));
        assert!(!table.is_unlimited(one), "it has bounds");
        assert_ne!(counted("127.0.0.1:5", || end(*APPLICATION_UIDS.start() + 1, 7)), Some(one), "each is a client of its own");
        assert_eq!(counted("127.0.0.1:5", || end(0, 7)), None, "whoever runs weal makes load");
        assert_eq!(counted("127.0.0.1:5", || Err(io::ErrorKind::Unsupported.into())), None);
        assert!(counted("127.0.0.1:5", || end(0, 0)).is_some() && counted("127.0.0.1:5", || Ok(None)).is_some());
        assert_eq!(counted("192.0.2.1:5", || panic!("another machine's sockets are not known here")), None);
        let mut bounded = Table::default();
        bounded.clients.unlimited_clients = Vec::new();
        assert_eq!(counted_as(&bounded, ends("127.0.0.1:5"), |_, _| panic!("its address is counted anyway")), None);
    }
}
