//! Ports of routes: each leads to one application, and none is another listener's.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use weal_model::{PoolSpec, Transport, TransportPort};

use crate::section::Reading;

/// Sockets that one gateway takes beside those of `[pool]`. The kernel hands over at most 253 at once, and inner addresses take some.
const MOST_PORTS: usize = 200;

pub(super) fn check(reading: &mut Reading, spec: &PoolSpec) {
    let mut first: BTreeMap<TransportPort, String> = BTreeMap::new();
    for (name, app) in &spec.apps {
        for (index, route) in app.routes.iter().enumerate() {
            let Some(port) = route.port else { continue };
            let path = format!("app.{name}.routes.{index}.{}", port.transport.as_str());
            check_pool(reading, spec, port, &path);
            match first.iter().find(|(other, _)| overlap(**other, port)).map(|(_, path)| path.clone()) {
                Some(before) => report_twice(reading, port, &path, &before),
                None => {
                    first.insert(port, path.clone());
                }
            }
            if !port.address.ip().is_loopback() {
                let help = "clients beyond this machine can connect; write the port alone if that is not meant";
                reading.findings.warning(reading.places.value(&path), format!("`{port}` is open to the network"), help);
            }
            if first.len() == MOST_PORTS + 1 {
                let help = "serve some of these applications from another pool";
                reading.findings.error(reading.places.value(&path), format!("more than {MOST_PORTS} ports"), help);
            }
        }
    }
}

fn check_pool(reading: &mut Reading, spec: &PoolSpec, port: TransportPort, path: &str) {
    for (key, address) in [("listen", spec.listen), ("api", spec.api)] {
        if overlap(TransportPort { transport: Transport::Tcp, address }, port) {
            let message = format!("port {} is also that of `{key}` in [pool]", port.address.port());
            reading.findings.error(reading.places.value(path), message, "give one of them another port");
        }
    }
}

fn report_twice(reading: &mut Reading, port: TransportPort, path: &str, first: &str) {
    let owner = first.split('.').nth(1).unwrap_or_default();
    reading.findings.error_with(
        reading.places.value(path),
        format!("`{owner}` already has {} port {}", port.transport.as_str(), port.address.port()),
        "a port leads to one application: give this one another".to_owned(),
        (reading.places.value(first), "the first one".to_owned()),
    );
}

fn overlap(a: TransportPort, b: TransportPort) -> bool {
    let any = |address: SocketAddr| address.ip().is_unspecified();
    let same_ip = a.address.ip() == b.address.ip() || any(a.address) || any(b.address);
    a.transport == b.transport && a.address.port() == b.address.port() && same_ip
}
