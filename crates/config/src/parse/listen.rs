//! Where clients connect: `listen` in `[pool]`, one address or one for each scheme.

use std::net::SocketAddr;

use toml::de::DeValue;

use super::address::{parse_address, read_address};
use crate::defaults;
use crate::section::{Item, Reading, Section};

/// Where clients connect.
pub(super) struct ListenAddresses {
    pub http: SocketAddr,
    pub https: Option<SocketAddr>,
}

pub(super) fn read(reading: &mut Reading, section: &Section) -> ListenAddresses {
    let default = defaults::LISTEN.parse().expect("the defaults are addresses");
    let Some(item) = section.item("listen").filter(|item| matches!(item.value, DeValue::Array(_))) else {
        return ListenAddresses { http: read_address(reading, section, "listen", defaults::LISTEN), https: None };
    };
    let (mut http, mut https) = (None, None);
    for entry in item.list(reading).unwrap_or_default() {
        let Some((scheme, address)) = read_url(reading, &entry) else { continue };
        let place = if scheme == "https" { &mut https } else { &mut http };
        if place.replace(address).is_some() {
            let help =
                "write one for `http://` and one for `https://`; `0.0.0.0` or `[::]` stands for all addresses of this machine";
            reading.findings.error(entry.span, format!("`listen` has two addresses for {scheme}"), help);
        }
    }
    if http.is_none() {
        let help = format!(
            "add `\"http://{default}\"`: requests without TLS are answered there, or sent on with `https-redirect = true`"
        );
        reading.findings.error(item.span, "`listen` has no address for http", help);
    }
    ListenAddresses { http: http.unwrap_or(default), https }
}

fn read_url<'a>(reading: &mut Reading, entry: &Item<'a>) -> Option<(&'static str, SocketAddr)> {
    let text = entry.text(reading)?;
    let found = ["https", "http"].into_iter().find_map(|scheme| Some((scheme, text.strip_prefix(scheme)?.strip_prefix("://")?)));
    let Some((scheme, address)) = found else {
        let help = format!("write `\"http://{text}\"` or `\"https://{text}\"`");
        reading.findings.error(entry.span.clone(), format!("`{text}` does not say whether it is for http or https"), help);
        return None;
    };
    let default = if scheme == "https" { defaults::LISTEN_TLS } else { defaults::LISTEN };
    Some((scheme, parse_address(reading, address.trim_end_matches('/'), entry.span.clone(), default)?))
}
