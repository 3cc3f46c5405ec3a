//! `[tls.NAME]`: the certificates, and the keys of `[pool]` that go with them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use weal_model::{AppName, AppSpec, CertificateSource, TlsSpec, TlsVersion, host};

use super::acme;
use super::names::named;
use super::paths::read_file;
use crate::section::{Reading, Section};

/// What `[pool]` says about TLS.
pub(super) struct PoolKeys {
    min_version: TlsVersion,
    redirects: bool,
}

/// Reads the keys of `[pool]`.
pub(super) fn read_pool_keys(reading: &mut Reading, section: &Section) -> PoolKeys {
    let redirects = section.flag(reading, "https-redirect").unwrap_or_default();
    PoolKeys { min_version: read_version(reading, section).unwrap_or_default(), redirects }
}

fn read_version(reading: &mut Reading, section: &Section) -> Option<TlsVersion> {
    section.word(reading, "tls-min-version", [TlsVersion::V12, TlsVersion::V13], TlsVersion::as_str, "versions")
}

/// TLS at `listen`, if the pool has such an address.
pub(super) fn read(
    reading: &mut Reading,
    root: &Section,
    folder: &Path,
    (listen, keys): (Option<SocketAddr>, PoolKeys),
    apps: &BTreeMap<AppName, AppSpec>,
) -> Option<TlsSpec> {
    let tables = root.table(reading, "tls").map(|tables| named(reading, "tls", tables)).unwrap_or_default();
    let mut certificates = BTreeMap::new();
    for (name, table) in &tables {
        let section = Section::open(
            reading,
            &format!("tls.{name}"),
            table,
            &["certificate", "key", "self-signed", "hosts", "acme", "acme-ca", "challenge", "email"],
        );
        if let Some(source) = read_source(reading, &section, folder, apps) {
            certificates.insert((*name).to_owned(), source);
        }
    }
    let Some(listen) = listen else {
        say_unused(reading, &tables.iter().map(|(name, _)| format!("tls.{name}")).collect::<Vec<_>>(), keys.redirects);
        return None;
    };
    if tables.is_empty() {
        let help = "write `[tls.main]` with `certificate = \"FILE\"` and `key = \"FILE\"`, with `acme = true`, or with `self-signed = true` to try it out";
        reading.findings.error(reading.places.value("pool.listen"), "https needs a certificate", help);
    }
    Some(TlsSpec { listen, min_version: keys.min_version, redirects: keys.redirects, certificates })
}

fn say_unused(reading: &mut Reading, tables: &[String], redirects: bool) {
    let help = "add `\"https://127.0.0.1:8443\"` to the list of `listen`";
    if redirects {
        reading.findings.error(
            reading.places.value("pool.https-redirect"),
            "there is no address for https to send requests on to",
            help,
        );
    }
    if let Some(first) = tables.first() {
        reading.findings.warning(reading.places.key(first), "this certificate is not used: there is no address for https", help);
    }
}

fn read_source(
    reading: &mut Reading,
    section: &Section,
    folder: &Path,
    apps: &BTreeMap<AppName, AppSpec>,
) -> Option<CertificateSource> {
    if section.item("acme").is_some() {
        return acme::read(reading, section, folder, apps);
    }
    acme::say_unused(reading, section);
    let is_self_signed = section.flag(reading, "self-signed").unwrap_or_default();
    let hosts = section.names(reading, "hosts");
    let files = ["certificate", "key"].map(|key| read_file(reading, section, folder, key));
    match (is_self_signed, files) {
        (true, [None, None]) => Some(CertificateSource::SelfSigned { hosts: read_hosts(reading, section, hosts, apps) }),
        (true, _) => {
            let help = "leave `certificate` and `key` out, or `self-signed`";
            reading.findings.error(
                reading.places.value(&section.at("self-signed")),
                "a self-signed certificate has no files",
                help,
            );
            None
        }
        (false, [Some(certificate), Some(key)]) => {
            if hosts.is_some() {
                let help = "leave it out: the hosts stand in the certificate";
                reading.findings.error(reading.places.value(&section.at("hosts")), "`hosts` does not go with files", help);
            }
            Some(CertificateSource::Files { certificate, key })
        }
        (false, _) => {
            let help =
                "write `certificate = \"FILE\"` and `key = \"FILE\"`, both in PEM, or `acme = true`, or `self-signed = true`";
            reading.findings.error(reading.places.key(&section.path), "a certificate needs both of its files", help);
            None
        }
    }
}

/// The hosts of a self-signed certificate. Without any, all of this machine's own: some clients take no wildcard right below `localhost`, so
/// those that routes name are there too.
fn read_hosts(
    reading: &mut Reading,
    section: &Section,
    hosts: Option<Vec<String>>,
    apps: &BTreeMap<AppName, AppSpec>,
) -> Vec<String> {
    let Some(hosts) = hosts else {
        let routed = apps.values().flat_map(|app| &app.routes).filter_map(|route| route.host.clone());
        let own = ["localhost", "*.localhost"].map(str::to_owned);
        return own
            .into_iter()
            .chain(routed.filter(|host| host.ends_with(".localhost")))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
    };
    for name in &hosts {
        let is_host = host::read_authority(name.strip_prefix("*.").unwrap_or(name)).is_ok_and(|(_, port)| port.is_none());
        if !is_host {
            let help = "write a host such as `shop.localhost`, or `*.localhost`";
            reading.findings.error(reading.places.value(&section.at("hosts")), format!("`{name}` is not a host"), help);
        }
    }
    hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect()
}
