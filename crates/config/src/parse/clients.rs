//! The keys of `[pool]` that say how gateways treat clients.

use weal_model::{AccessLog, ClientPolicy, ListenScheme, ListenSchemes, Network, NetworkError};

use crate::section::{Reading, Section};
use crate::suggest;

/// More per second from one address than any gateway answers.
const MOST_RATE: u32 = 1_000_000;
/// As many as there are ports.
const MOST_CONNECTIONS: u32 = 65_536;
/// Bytes per second. More than a megabyte would cut off every phone.
pub(super) const MIN_RATES: std::ops::Range<u32> = 0..1_000_001;

pub(super) fn read(reading: &mut Reading, pool: &Section) -> ClientPolicy {
    let default = ClientPolicy::default();
    ClientPolicy {
        trusted_proxies: read_networks(reading, pool, "trusted-proxies").unwrap_or(default.trusted_proxies),
        accept_proxy: read_accept_proxy(reading, pool),
        compression: pool.flag(reading, "compression").unwrap_or(default.compression),
        access_log: read_access_log(reading, pool),
        traceparent: pool.flag(reading, "traceparent").unwrap_or(default.traceparent),
        spans: default.spans,
        trace_ratio: read_trace_ratio(reading, pool).unwrap_or(default.trace_ratio),
        unlimited_clients: read_networks(reading, pool, "unlimited-clients").unwrap_or(default.unlimited_clients),
        client_connections: pool
            .count(reading, "client-connections", 0..MOST_CONNECTIONS + 1)
            .unwrap_or(default.client_connections),
        client_rate: pool.count(reading, "client-rate", 0..MOST_RATE + 1).unwrap_or(default.client_rate),
        client_seats: pool.count(reading, "client-seats", 1..101).unwrap_or(default.client_seats),
        client_min_rate: pool.count(reading, "client-min-rate", MIN_RATES).unwrap_or(default.client_min_rate),
    }
}

fn read_networks(reading: &mut Reading, pool: &Section, key: &str) -> Option<Vec<Network>> {
    let mut networks = Vec::new();
    let texts = pool.texts(reading, key)?;
    for (index, text) in texts.iter().enumerate() {
        match text.parse() {
            Ok(network) => networks.push(network),
            Err(error) => {
                let help = match error {
                    NetworkError::Address => {
                        "write a network, such as `10.0.0.0/8`, or one address; names are not looked up".to_owned()
                    }
                    NetworkError::Length { most } => format!("after the slash stand the bits of the network, from 0 to {most}"),
                    NetworkError::Bits { right, .. } => format!("did you mean `{right}`?"),
                };
                let place = reading.places.value(&format!("{}.{index}", pool.at(key)));
                reading.findings.error(place, format!("`{text}` is not a network"), help);
            }
        }
    }
    Some(networks)
}

fn read_accept_proxy(reading: &mut Reading, pool: &Section) -> ListenSchemes {
    let mut schemes = ListenSchemes::new();
    for (index, word) in pool.texts(reading, "accept-proxy").unwrap_or_default().iter().enumerate() {
        match ListenScheme::ALL.into_iter().find(|scheme| scheme.as_str() == word) {
            Some(scheme) => drop(schemes.insert(scheme)),
            None => {
                let help = suggest::help(word, ListenScheme::ALL.map(ListenScheme::as_str), "addresses of `listen`");
                let place = reading.places.value(&format!("{}.{index}", pool.at("accept-proxy")));
                reading.findings.error(place, format!("`accept-proxy` cannot have `{word}`"), help);
            }
        }
    }
    schemes
}

fn read_trace_ratio(reading: &mut Reading, pool: &Section) -> Option<f64> {
    let ratio = pool.number(reading, "trace-ratio")?;
    if !(0.0..=1.0).contains(&ratio) {
        let help = "write the share of traces to sample, from 0 to 1";
        reading.findings.error(reading.places.value("pool.trace-ratio"), "`trace-ratio` is out of range", help);
        return None;
    }
    Some(ratio)
}

fn read_access_log(reading: &mut Reading, pool: &Section) -> AccessLog {
    pool.word(reading, "access-log", AccessLog::ALL, AccessLog::as_str, "formats").unwrap_or_default()
}
