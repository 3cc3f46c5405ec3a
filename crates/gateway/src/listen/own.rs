//! Whose a connection from this machine is.
//!
//! Proxies that nobody has named and makers of load connect from here, so this machine's addresses may be without bounds (`unlimited-clients`).
//! Hosted applications connect from here too, and any of them may mean harm. So each of their users counts as a client of its own. The kernel says
//! whose the other end of a connection is.
//!
//! Applications call one that they need through its inner address, and each call belongs to a request that is bounded already. Whoever else
//! connects there is a client like any other.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use weal_host::listening::Listening;
use weal_model::AppName;

use crate::routing::table::Table;

/// How a connection is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counted {
    /// By its client's address.
    Address,
    /// By this in its place: it is a hosted application's.
    As(IpAddr),
    /// Not at all: an application calls one that it needs.
    Not,
}

/// How a connection is counted that came through the inner address of `inner`, or else to all applications. `ask` asks the kernel for the client's
/// end; it knows of none that belongs to another machine.
pub(crate) fn counted(
    table: &Table,
    (client, server): (SocketAddr, SocketAddr),
    inner: Option<&AppName>,
    ask: impl Fn(SocketAddr, SocketAddr) -> io::Result<Option<Listening>>,
) -> Counted {
    let is_unlimited = table.is_unlimited(client.ip());
    if !is_unlimited && inner.is_none() {
        return Counted::Address;
    }
    let address = client.ip().to_canonical();
    match ask(client, server) {
        Ok(Some(end)) if end.inode != 0 => match inner {
            Some(app) if table.calls(end.uid, app) => Counted::Not,
            _ if is_unlimited && table.is_of_application(end.uid) => Counted::As(address_of(end.uid)),
            _ => Counted::Address,
        },
        // It was closed before anybody could look. Nobody knows whose it was, and one of an application's must not gain by that. Of other
        // machines' ends the kernel knows none.
        Ok(_) if is_unlimited && (address.is_loopback() || address == server.ip().to_canonical()) => {
            Counted::As(address_of(u32::MAX))
        }
        Ok(_) => Counted::Address,
        // Where the kernel never says, nobody can tell.
        Err(_) if inner.is_some() => Counted::Not,
        Err(_) => Counted::Address,
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

    fn from(text: &str) -> (SocketAddr, SocketAddr) {
        (text.parse().unwrap(), ([127, 0, 0, 1], 80).into())
    }

    #[test]
    fn only_applications_and_who_has_gone_are_counted_of_this_machine() {
        let table = Table::default();
        let counted =
            |client: &str, found: fn() -> io::Result<Option<Listening>>| counted(&table, from(client), None, |_, _| found());
        let application = || end(*APPLICATION_UIDS.start(), 7);
        let Counted::As(one) = counted("127.0.0.1:5", application) else { panic!("it is counted") };
        assert_eq!(counted("[::ffff:127.0.0.1]:5", application), Counted::As(one));
        assert!(!table.is_unlimited(one), "it has bounds");
        assert_ne!(
            counted("127.0.0.1:5", || end(*APPLICATION_UIDS.start() + 1, 7)),
            Counted::As(one),
            "each is a client of its own"
        );
        assert_eq!(counted("127.0.0.1:5", || end(0, 7)), Counted::Address, "whoever runs weal makes load");
        assert_eq!(counted("127.0.0.1:5", || Err(io::ErrorKind::Unsupported.into())), Counted::Address);
        let gone = Counted::As(address_of(u32::MAX));
        assert_eq!((counted("127.0.0.1:5", || end(0, 0)), counted("127.0.0.1:5", || Ok(None))), (gone, gone));
        assert_eq!(counted("192.0.2.1:5", || panic!("its address is counted anyway")), Counted::Address);
        let mut bounded = Table::default();
        bounded.clients.unlimited_clients = Vec::new();
        assert_eq!(super::counted(&bounded, from("127.0.0.1:5"), None, |_, _| panic!("the same")), Counted::Address);
    }

    #[test]
    fn an_application_gains_no_unlimited_address_by_another_one_of_this_machines() {
        let mut table = Table::default();
        table.clients.unlimited_clients = vec!["10.0.0.0/8".parse().unwrap()];
        let user = *APPLICATION_UIDS.start();
        let counted = |client: &str, server: &str, found: fn() -> io::Result<Option<Listening>>| {
            counted(&table, (client.parse().unwrap(), server.parse().unwrap()), None, |_, _| found())
        };
        let application = || end(*APPLICATION_UIDS.start(), 7);
        assert_eq!(counted("10.0.0.5:9", "10.0.0.5:80", application), Counted::As(address_of(user)));
        assert_eq!(
            counted("10.0.0.5:9", "192.168.0.5:80", application),
            Counted::As(address_of(user)),
            "nor between two of its addresses"
        );
        assert_eq!(counted("10.0.0.5:9", "10.0.0.5:80", || Ok(None)), Counted::As(address_of(u32::MAX)), "it has gone");
        assert_eq!(counted("10.0.0.9:9", "10.0.0.5:80", || Ok(None)), Counted::Address, "another machine");
    }

    #[test]
    fn an_application_that_calls_one_it_needs_is_not_counted_and_any_other_is() {
        let (caller, other) = (*APPLICATION_UIDS.start(), *APPLICATION_UIDS.start() + 1);
        let mut table = Table::default();
        table.callers.insert("api".into(), [caller].into());
        let api = AppName::from("api");
        let find = |table: &Table, app: &AppName, uid| super::counted(table, from("127.0.0.1:5"), Some(app), |_, _| end(uid, 7));
        assert_eq!(find(&table, &api, caller), Counted::Not);
        assert_eq!(find(&table, &api, other), Counted::As(address_of(other)));
        assert_eq!(find(&table, &"db".into(), caller), Counted::As(address_of(caller)), "it needs no db");
        assert_eq!(find(&table, &api, 0), Counted::Address);
        table.clients.unlimited_clients = Vec::new();
        assert_eq!(find(&table, &api, caller), Counted::Not, "also where this machine has bounds");
        assert_eq!(find(&table, &api, other), Counted::Address);
        let unknown = super::counted(&table, from("127.0.0.1:5"), Some(&api), |_, _| Err(io::ErrorKind::Unsupported.into()));
        assert_eq!(unknown, Counted::Not);
    }
}
