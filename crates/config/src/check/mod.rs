//! Judges a config as a whole: what no table shows by itself.

mod placement;
mod ports;
mod references;

use weal_model::{PoolSpec, RouteSpec, Transport};

use crate::machine::MachineSize;
use crate::section::Reading;

/// Reports what is wrong with `spec` at the places that `reading` remembers.
pub(crate) fn check(reading: &mut Reading, spec: &PoolSpec, machine: &MachineSize) {
    check_addresses(reading, spec);
    check_cycles(reading, spec);
    check_routes(reading, spec);
    ports::check(reading, spec);
    references::check(reading, spec);
    placement::check(reading, spec, machine);
}

fn check_addresses(reading: &mut Reading, spec: &PoolSpec) {
    let (listen, api) = (spec.listen, spec.api);
    let overlap = listen.ip() == api.ip() || listen.ip().is_unspecified() || api.ip().is_unspecified();
    // Port 0 asks the system for a free one.
    if overlap && listen.port() == api.port() && api.port() != 0 {
        let key = if reading.places.has("pool.api") { "api" } else { "listen" };
        let other = if key == "api" { "listen" } else { "api" };
        let free = if api.port() == u16::MAX { api.port() - 1 } else { api.port() + 1 };
        reading.findings.error(
            reading.places.value(&format!("pool.{key}")),
            format!("port {} is also that of `{other}`", api.port()),
            format!("give one of them another port, such as {free}"),
        );
    }
    if !listen.ip().is_loopback() {
        let help = "clients beyond this machine can connect; write `127.0.0.1` if that is not meant";
        reading.findings.warning(reading.places.value("pool.listen"), "`listen` is open to the network", help);
    }
    check_plain_api(reading, spec);
    check_proxies(reading, spec);
}

/// A header is read of trusted proxies only.
fn check_proxies(reading: &mut Reading, spec: &PoolSpec) {
    if !spec.clients.trusted_proxies.is_empty() {
        return;
    }
    let of_routes = spec.apps.iter().flat_map(|(name, app)| {
        // Where another kind of route says it, that is an error of its own.
        let is_tcp = |route: &RouteSpec| route.port.is_some_and(|port| port.transport == Transport::Tcp);
        let accepting = app.routes.iter().enumerate().filter(move |(_, route)| route.extras.accept_proxy && is_tcp(route));
        accepting.map(move |(index, _)| format!("app.{name}.routes.{index}.accept-proxy"))
    });
    let of_pool = (!spec.clients.accept_proxy.is_empty()).then(|| "pool.accept-proxy".to_owned());
    for place in of_pool.into_iter().chain(of_routes) {
        let help = "name the proxies in front: `trusted-proxies = [\"127.0.0.1\"]` in [pool] for one on this machine";
        reading.findings.warning(reading.places.value(&place), "`accept-proxy` does nothing while no proxy is trusted", help);
    }
}

/// Plain HTTP stays on this machine unless somebody says that the network is trusted: tokens would be read along.
fn check_plain_api(reading: &mut Reading, spec: &PoolSpec) {
    let crosses = !spec.api.ip().is_loopback() && spec.api_tls.is_none();
    let insecure = reading.places.value("pool.api-insecure");
    match (crosses, spec.api_insecure) {
        (true, false) => {
            let help = "add `api-tls`, or `api-insecure = true` if nobody can read along between the machines; `127.0.0.1` needs neither";
            let what = "tokens for the API would cross the network unencrypted";
            reading.findings.error(reading.places.value("pool.api"), what, help);
        }
        (true, true) => {
            let help = "whoever can read along gets the tokens of all callers: `api-tls` prevents that";
            reading.findings.warning(insecure, "the API speaks plain HTTP to other machines", help);
        }
        (false, true) => {
            let help = "leave it out: `api` is on this machine alone, or speaks TLS";
            reading.findings.warning(insecure, "`api-insecure` does nothing here", help);
        }
        (false, false) => {}
    }
}

fn check_cycles(reading: &mut Reading, spec: &PoolSpec) {
    let timing = spec.timing;
    if timing.placement_cycle_s < timing.flow_cycle_s {
        let key = if reading.places.has("pool.placement-cycle") { "placement-cycle" } else { "flow-cycle" };
        reading.findings.error(
            reading.places.value(&format!("pool.{key}")),
            format!(
                "the placement cycle ({}s) is shorter than the flow cycle ({}s)",
                timing.placement_cycle_s, timing.flow_cycle_s
            ),
            "placement is decided on what several flow cycles measured: make it longer",
        );
    }
}

/// Two routes that match the same requests: nobody could say which one wins.
fn check_routes(reading: &mut Reading, spec: &PoolSpec) {
    let routes = || {
        let of_app = |(name, app): (&weal_model::AppName, &'_ weal_model::AppSpec)| {
            let path = |index: usize| format!("app.{name}.routes.{index}");
            app.routes.iter().cloned().enumerate().map(|(index, route)| (path(index), route)).collect::<Vec<_>>()
        };
        spec.apps.iter().flat_map(of_app).collect::<Vec<_>>()
    };
    let mut routes = routes();
    routes.sort_by_key(|(path, _)| reading.places.value(path).start);
    for (at, (path, route)) in routes.iter().enumerate() {
        // What could not be read matches everything here, and would seem to be double.
        let broken = |key: &str, read: bool| reading.places.has(&format!("{path}.{key}")) && !read;
        if route.port.is_some()
            || broken("tcp", false)
            || broken("udp", false)
            || broken("host", route.host.is_some())
            || broken("path", route.path.is_some())
            || broken("header", route.header.is_some())
        {
            continue;
        }
        let same = |other: &&(String, RouteSpec)| {
            other.1.port.is_none() && (&other.1.host, &other.1.path, &other.1.header) == (&route.host, &route.path, &route.header)
        };
        if let Some((first, _)) = routes[..at].iter().find(same) {
            let owner = first.split('.').nth(1).unwrap_or_default();
            reading.findings.error_with(
                reading.places.value(path),
                format!("`{owner}` already has the route for {}", show_route(route)),
                "give it another host, path or header, or remove one of them".to_owned(),
                (reading.places.value(first), "the first one".to_owned()),
            );
        }
    }
}

fn show_route(route: &RouteSpec) -> String {
    let host = route.host.as_deref().unwrap_or("*");
    let path = route.path.as_deref().unwrap_or("/*");
    match &route.header {
        None => format!("{host}{path}"),
        Some(header) => format!("{host}{path} with header {}", header.name),
    }
}
