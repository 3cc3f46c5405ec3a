//! What gateways do besides passing requests on, as a config says it.

use toml_edit::{InlineTable, Value};
use weal_model::written::show_size;
use weal_model::{ClientPolicy, HeaderEdits, Network, RouteExtras};

use crate::page::{Section, number, texts};

/// The keys of `[pool]` that say how clients are treated.
pub(crate) fn client_keys(clients: &ClientPolicy) -> [(&'static str, Value); 11] {
    let networks = |networks: &[Network]| {
        let networks: Vec<String> = networks.iter().map(ToString::to_string).collect();
        Value::from(texts(networks.iter().map(String::as_str)))
    };
    [
        ("trusted-proxies", networks(&clients.trusted_proxies)),
        ("accept-proxy", texts(clients.accept_proxy.iter().map(|scheme| scheme.as_str())).into()),
        ("compression", clients.compression.into()),
        ("access-log", clients.access_log.as_str().into()),
        ("traceparent", clients.traceparent.into()),
        ("trace-ratio", number(clients.trace_ratio)),
        ("unlimited-clients", networks(&clients.unlimited_clients)),
        ("client-connections", i64::from(clients.client_connections).into()),
        ("client-rate", i64::from(clients.client_rate).into()),
        ("client-seats", i64::from(clients.client_seats).into()),
        ("client-min-rate", i64::from(clients.client_min_rate).into()),
    ]
}

pub(super) fn add_clients(pool: &mut Section, clients: &ClientPolicy) {
    let defaults = client_keys(&ClientPolicy::default());
    for ((key, value), (_, default)) in client_keys(clients).into_iter().zip(defaults) {
        let is_default = value.to_string() == default.to_string();
        pool.add_marked(key, value, is_default);
    }
}

/// Only what is there: nothing of this is the default.
pub(super) fn add_extras(route: &mut InlineTable, extras: &RouteExtras) {
    let flag = |key: &'static str, is_on: bool| is_on.then(|| (key, Value::from(true)));
    let edits = |key: &'static str, edits: &HeaderEdits| (!edits.is_empty()).then(|| (key, header_edits(edits)));
    let redirect = extras.redirect.as_ref().map(|redirect| {
        let parts = [("to", Value::from(&redirect.to)), ("status", Value::from(i64::from(redirect.status)))];
        ("redirect", Value::from(parts.into_iter().collect::<InlineTable>()))
    });
    let pages = (!extras.error_pages.is_empty())
        .then(|| ("error-pages", Value::from(extras.error_pages.iter().collect::<InlineTable>())));
    let keys = [
        extras.strip_prefix.as_ref().map(|prefix| ("strip-prefix", Value::from(prefix))),
        redirect,
        edits("request-headers", &extras.request_headers),
        edits("response-headers", &extras.response_headers),
        extras.body_limit.map(|limit| ("body-limit", show_size(limit).into())),
        flag("maintenance", extras.maintenance),
        pages,
        flag("accept-proxy", extras.accept_proxy),
        extras.compression.map(|is_on| ("compression", is_on.into())),
        extras.client_min_rate.map(|rate| ("client-min-rate", i64::from(rate).into())),
    ];
    route.extend(keys.into_iter().flatten());
}

/// The keys that are there.
pub(crate) fn extra_keys(extras: &RouteExtras) -> Vec<String> {
    let mut route = InlineTable::new();
    add_extras(&mut route, extras);
    route.iter().map(|(key, _)| key.to_owned()).collect()
}

fn header_edits(edits: &HeaderEdits) -> Value {
    let mut table = InlineTable::new();
    if !edits.set.is_empty() {
        table.insert("set", edits.set.iter().collect::<InlineTable>().into());
    }
    if !edits.remove.is_empty() {
        table.insert("remove", texts(edits.remove.iter().map(String::as_str)).into());
    }
    table.into()
}
