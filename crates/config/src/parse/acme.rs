//! `acme` of `[tls.NAME]`: a certificate that an authority gives.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::de::DeValue;
use weal_model::{AcmeChallenge, AcmeSpec, AppName, AppSpec, CertificateSource, host};

use super::paths::read_file;
use crate::section::{Reading, Section};
use crate::suggest;

/// What goes with `acme` only.
const KEYS: [&str; 3] = ["acme-ca", "challenge", "email"];

/// Reports keys that do nothing without `acme`.
pub(super) fn say_unused(reading: &mut Reading, section: &Section) {
    for key in KEYS.into_iter().filter(|key| section.item(key).is_some()) {
        let help = "add `acme = true`, or leave it out";
        reading.findings.error(reading.places.key(&section.at(key)), format!("`{key}` does nothing without `acme`"), help);
    }
}

pub(super) fn read(
    reading: &mut Reading,
    section: &Section,
    folder: &Path,
    apps: &BTreeMap<AppName, AppSpec>,
) -> Option<CertificateSource> {
    let directory = read_directory(reading, section)?;
    if let Some(key) = ["certificate", "key", "self-signed"].into_iter().find(|key| section.item(key).is_some()) {
        let help = format!("leave `{key}` out, or `acme`");
        let place = reading.places.key(&section.at(key));
        reading.findings.error(place, format!("`{key}` does not go with `acme`: the authority gives the certificate"), help);
    }
    Some(CertificateSource::Acme(AcmeSpec {
        hosts: read_hosts(reading, section, apps),
        directory,
        email: read_email(reading, section),
        challenge: read_challenge(reading, section),
        directory_ca: read_file(reading, section, folder, "acme-ca"),
    }))
}

/// `true` is Let's Encrypt; a URL is any other authority.
fn read_directory(reading: &mut Reading, section: &Section) -> Option<String> {
    let item = section.item("acme")?;
    let help = "write `true` for Let's Encrypt, or the URL of another authority's directory, `https://\u{2026}`";
    match item.value {
        DeValue::Boolean(true) => Some(AcmeSpec::DIRECTORY.to_owned()),
        DeValue::Boolean(false) => {
            reading.findings.error(item.span, "`acme` cannot be false", "leave it out");
            None
        }
        DeValue::String(url) => {
            let authority = url.strip_prefix("https://").map(|rest| rest.split('/').next().unwrap_or_default());
            let is_url = authority.is_some_and(|authority| !authority.is_empty() && host::read_authority(authority).is_ok());
            if !is_url || !url.chars().all(|c| c.is_ascii_graphic()) {
                reading.findings.error(item.span, format!("`{url}` is not the address of an authority"), help);
            }
            Some(url.clone().into_owned())
        }
        _ => item.wrong_type(reading, "true or a URL", help),
    }
}

/// Those that are named, or all that routes name.
fn read_hosts(reading: &mut Reading, section: &Section, apps: &BTreeMap<AppName, AppSpec>) -> Vec<String> {
    let routed = || {
        let hosts = apps.values().flat_map(|app| &app.routes).filter_map(|route| route.host.clone());
        hosts.filter(|host| !host.contains('*')).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let hosts = section.names(reading, "hosts").unwrap_or_else(routed);
    let place = reading.places.value(&section.at("hosts"));
    if hosts.is_empty() {
        let help = "write `hosts = [\"shop.example\"]`, or give a route a `host`";
        reading.findings.error(place.clone(), "the certificate has no host", help);
    }
    for name in &hosts {
        let is_public = name.contains('.') && name.parse::<std::net::IpAddr>().is_err() && !name.ends_with(".localhost");
        if name.contains('*') {
            let help = "name each host: authorities prove a wildcard by DNS only, which weal does not change";
            reading.findings.error(place.clone(), format!("`{name}` cannot be proven"), help);
        } else if !is_public || !host::read_authority(name).is_ok_and(|(_, port)| port.is_none()) {
            let help = "name hosts that the authority can reach, such as `shop.example`: list them in `hosts`";
            reading.findings.error(place.clone(), format!("no authority gives a certificate for `{name}`"), help);
        }
    }
    hosts.into_iter().map(|host| host.to_ascii_lowercase()).collect()
}

fn read_email(reading: &mut Reading, section: &Section) -> Option<String> {
    let email = section.text(reading, "email")?;
    let is_address = email.chars().all(|c| c.is_ascii_graphic() && !"?,<>\"".contains(c))
        && email.split_once('@').is_some_and(|(name, host)| !name.is_empty() && host.contains('.'));
    if !is_address {
        let place = reading.places.value(&section.at("email"));
        reading.findings.error(place, format!("`{email}` is not an address for mail"), "write one, such as `me@example.org`");
    }
    Some(email)
}

fn read_challenge(reading: &mut Reading, section: &Section) -> AcmeChallenge {
    let Some(word) = section.text(reading, "challenge") else { return AcmeChallenge::default() };
    AcmeChallenge::ALL.into_iter().find(|challenge| challenge.as_str() == word).unwrap_or_else(|| {
        let help = match word.as_str() {
            "dns-01" => "weal does not change your DNS: write `http-01` or `tls-alpn-01`".to_owned(),
            _ => suggest::help(&word, AcmeChallenge::ALL.map(AcmeChallenge::as_str), "challenges"),
        };
        let place = reading.places.value(&section.at("challenge"));
        reading.findings.error(place, format!("`challenge` cannot be `{word}`"), help);
        AcmeChallenge::default()
    })
}
