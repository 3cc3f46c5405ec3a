//! `tcp` and `udp` of a route: a port of its own at the gateway.

use std::net::{Ipv4Addr, SocketAddr};

use toml::de::DeValue;
use weal_model::{Transport, TransportPort};

use super::route_keys;
use crate::section::{Item, Reading, Section};

/// What a route with a port can have. All else is for HTTP.
const KEYS: [&str; 6] = ["tcp", "udp", "class", "idle-timeout", "total-timeout", "accept-proxy"];

/// The port of a route; `None` when the route is for HTTP, or a mistake was found.
pub(super) fn read(reading: &mut Reading, route: &Section) -> Option<TransportPort> {
    let (tcp, udp) = (route.item("tcp"), route.item("udp"));
    let (item, transport) = match (tcp, udp) {
        (None, None) => return None,
        (Some(item), None) => (item, Transport::Tcp),
        (None, Some(item)) => (item, Transport::Udp),
        (Some(_), Some(item)) => {
            reading.findings.error(item.span, "a route has either `tcp` or `udp`", "write two routes, one for each");
            return None;
        }
    };
    if let Some(key) = route_keys::KEYS.into_iter().find(|key| !KEYS.contains(key) && route.item(key).is_some()) {
        let place = reading.places.value(&route.at(key));
        let help =
            format!("nothing of what passes through a port is read: leave out `{key}`, or leave out `{}`", transport.as_str());
        reading.findings.error(place, format!("`{key}` does not go with `{}`", transport.as_str()), help);
        return None;
    }
    let address = read_address(reading, &item)?;
    Some(TransportPort { transport, address })
}

/// `5432`, which is on loopback, or `"0.0.0.0:5432"`.
fn read_address(reading: &mut Reading, item: &Item<'_>) -> Option<SocketAddr> {
    let DeValue::String(text) = item.value else {
        let port = item.count(reading, 1..65_536)?;
        return Some((Ipv4Addr::LOCALHOST, u16::try_from(port).ok()?).into());
    };
    if let Some(address) = text.parse::<SocketAddr>().ok().filter(|address| address.port() != 0) {
        return Some(address);
    }
    let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok()).filter(|port| *port != 0);
    let help = match port {
        Some(port) => format!("write the port alone, `{port}`, or an IP address with it, `\"127.0.0.1:{port}\"`"),
        None => "write a port, `5432`, or an IP address and a port, `\"127.0.0.1:5432\"`".to_owned(),
    };
    reading.findings.error(item.span.clone(), format!("`{text}` is not a port"), help);
    None
}
