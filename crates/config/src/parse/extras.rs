//! What a route does besides passing requests on.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::DeValue;
use weal_model::{HeaderEdits, RedirectRule, RouteExtras};

use super::clients::MIN_RATES;
use super::paths::{below, is_literal};
use crate::section::{Item, Reading, Section};

/// The status of a redirect that names none: the method is kept, and no browser remembers a mistake for ever.
const REDIRECT: u16 = 307;

/// Statuses by which a client is sent elsewhere (RFC 9110 section 15.4).
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

/// Fields that frame a message or concern one connection: the gateway writes them itself.
const FRAMING: [&str; 10] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

pub(super) fn read(reading: &mut Reading, route: &Section, folder: &Path) -> RouteExtras {
    RouteExtras {
        strip_prefix: read_prefix(reading, route),
        redirect: read_redirect(reading, route),
        request_headers: read_edits(reading, route, "request-headers"),
        response_headers: read_edits(reading, route, "response-headers"),
        body_limit: route.size(reading, "body-limit"),
        maintenance: route.flag(reading, "maintenance").unwrap_or(false),
        error_pages: read_pages(reading, route, folder),
        accept_proxy: read_accept_proxy(reading, route),
        compression: route.flag(reading, "compression"),
        client_min_rate: route.count(reading, "client-min-rate", MIN_RATES),
    }
}

/// Connections are read by the port; requests of all routes share those of `listen`.
fn read_accept_proxy(reading: &mut Reading, route: &Section) -> bool {
    let accepts = route.flag(reading, "accept-proxy").unwrap_or(false);
    if accepts && route.item("tcp").is_none() {
        let help = "leave it out, and write `accept-proxy = [\"http\", \"https\"]` in [pool]";
        let place = reading.places.value(&route.at("accept-proxy"));
        reading.findings.error(place, "`accept-proxy` of a route goes with `tcp` only", help);
    }
    accepts
}

/// `/api`: whole segments of the route's own path.
fn read_prefix(reading: &mut Reading, route: &Section) -> Option<String> {
    let prefix = route.text(reading, "strip-prefix")?;
    let place = reading.places.value(&route.at("strip-prefix"));
    let stem = prefix.strip_suffix("/*").unwrap_or(&prefix).trim_end_matches('/');
    let fits = |c: char| c.is_ascii_graphic() && !matches!(c, '*' | '?' | '#' | '%');
    if !prefix.starts_with('/') || stem.is_empty() || !stem.chars().all(fits) || stem.contains("//") {
        let help = "write whole segments, such as `/api`: they are removed from the start of the path";
        reading.findings.error(place, format!("`{prefix}` is not the start of a path"), help);
        return None;
    }
    let path = route.item("path").and_then(|item| item.value.as_str().map(str::to_owned)).unwrap_or_default();
    let below = path.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if !below {
        let help = format!("the route's path must begin with it: write `path = \"{stem}/*\"`");
        reading.findings.error(place, format!("`{stem}` is never the start of a path of this route"), help);
        return None;
    }
    Some(stem.to_owned())
}

/// `redirect = "https://new.example$path"` or `redirect = { to = "..", status = 308 }`.
fn read_redirect(reading: &mut Reading, route: &Section) -> Option<RedirectRule> {
    let item = route.item("redirect")?;
    let (to, status, place) = match item.value {
        DeValue::String(to) => (to.clone().into_owned(), REDIRECT, item.path.clone()),
        DeValue::Table(table) => {
            let redirect = Section::open(reading, &item.path, table, &["to", "status"]);
            let Some(to) = redirect.text(reading, "to") else {
                if redirect.item("to").is_none() {
                    reading.findings.error(item.span, "this redirect has no `to`", "add `to = \"https://shop.example$path\"`");
                }
                return None;
            };
            (to, read_status(reading, &redirect), redirect.at("to"))
        }
        _ => return item.wrong_type(reading, "a URL or a table", "write `redirect = \"https://shop.example$path\"`"),
    };
    if let Err(error) = check_target(&to) {
        reading.findings.error(reading.places.value(&place), format!("`{to}` cannot be redirected to"), error.to_string());
        return None;
    }
    Some(RedirectRule { to, status })
}

fn read_status(reading: &mut Reading, redirect: &Section) -> u16 {
    let Some(status) = redirect.count(reading, "status", 300..400) else { return REDIRECT };
    let status = u16::try_from(status).unwrap_or(REDIRECT);
    if !REDIRECTS.contains(&status) {
        let help = "write 301 or 308 for ever, 302, 303 or 307 for now; 307 and 308 keep the method";
        let place = reading.places.value(&redirect.at("status"));
        reading.findings.error(place, format!("{status} does not send clients elsewhere"), help);
    }
    status
}

/// Why nothing can be redirected to a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BadTarget {
    #[error("only `$host` and `$path` are filled in")]
    Variable,
    #[error("a URL has visible ASCII characters only: write others as `%XX`")]
    Character,
    #[error("after `https://` a host must stand, such as `shop.example`, or `$host`")]
    Host,
    #[error("write a whole URL, `https://shop.example$path`, or a path, `/new`")]
    Shape,
}

/// What is filled in must not decide the host, or a client could be sent to any: `$path` stands behind a whole authority.
fn check_target(to: &str) -> Result<(), BadTarget> {
    let literal = to.replace("$host", "h").replace("$path", "/p");
    if literal.contains('$') {
        return Err(BadTarget::Variable);
    }
    if !literal.chars().all(|c| c.is_ascii_graphic() && !matches!(c, '"' | '<' | '>' | '\\' | '^' | '`' | '{' | '|' | '}')) {
        return Err(BadTarget::Character);
    }
    if let Some(rest) = to.strip_prefix("https://").or(to.strip_prefix("http://")) {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let authority = authority.strip_suffix("$path").unwrap_or(authority).replace("$host", "h");
        return match weal_model::host::read_authority(&authority) {
            Ok(_) if !authority.is_empty() => Ok(()),
            _ => Err(BadTarget::Host),
        };
    }
    let is_path = to.starts_with('/') && !to.starts_with("//") && !to.starts_with("/$");
    if is_path { Ok(()) } else { Err(BadTarget::Shape) }
}

/// `{ set = { "x-env" = "live" }, remove = ["server"] }`.
fn read_edits(reading: &mut Reading, route: &Section, key: &str) -> HeaderEdits {
    let Some(table) = route.table(reading, key) else { return HeaderEdits::default() };
    let edits = Section::open(reading, &route.at(key), table, &["set", "remove"]);
    let mut set = BTreeMap::new();
    if let Some(table) = edits.table(reading, "set") {
        let names: Vec<&str> = table.keys().map(|key| key.get_ref().as_ref()).collect();
        let fields = Section::open(reading, &edits.at("set"), table, &names);
        for name in names {
            let Some(value) = fields.text(reading, name) else { continue };
            let place = reading.places.key(&fields.at(name));
            if value.trim() != value || !value.chars().all(|c| (' '..='~').contains(&c)) {
                let place = reading.places.value(&fields.at(name));
                reading.findings.error(
                    place,
                    "no header can have this value",
                    "leave out spaces at its ends and what is not ASCII",
                );
            } else if let Some(name) = check_name(reading, name, place, key == "request-headers") {
                set.insert(name, value);
            }
        }
    }
    let remove = edits.item("remove").and_then(|item| item.list(reading)).unwrap_or_default();
    let removed = |item: &Item| {
        let name = item.text(reading)?;
        check_name(reading, &name, item.span.clone(), false)
    };
    HeaderEdits { remove: remove.iter().filter_map(removed).collect(), set }
}

/// A field that a config may change, in lower case. `Host` of a request can be set, and never be missing.
fn check_name(reading: &mut Reading, name: &str, place: std::ops::Range<usize>, may_be_host: bool) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    let token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    if name.is_empty() || !name.chars().all(token) {
        reading.findings.error(place, format!("`{name}` cannot be a header"), "a header's name has letters, digits and dashes");
        return None;
    }
    if FRAMING.contains(&lower.as_str()) || (lower == "host" && !may_be_host) {
        let help = "the gateway writes it anew for each connection: leave it out";
        reading.findings.error(place, format!("`{name}` cannot be changed"), help);
        return None;
    }
    Some(lower)
}

/// `{ 404 = "pages/none.html", 5xx = "pages/sorry.html" }`.
fn read_pages(reading: &mut Reading, route: &Section, folder: &Path) -> BTreeMap<String, String> {
    let Some(table) = route.table(reading, "error-pages") else { return BTreeMap::new() };
    let names: Vec<&str> = table.keys().map(|key| key.get_ref().as_ref()).collect();
    let pages = Section::open(reading, &route.at("error-pages"), table, &names);
    let mut read = BTreeMap::new();
    for name in names {
        let is_status = name.parse::<u16>().is_ok_and(|status| (400..600).contains(&status)) || ["4xx", "5xx"].contains(&name);
        if !is_status {
            let help = "write a status from 400 to 599, or `4xx` or `5xx` for all of them";
            reading.findings.error(reading.places.key(&pages.at(name)), format!("`{name}` is not a status of an error"), help);
        }
        let Some(file) = pages.text(reading, name) else { continue };
        if file.is_empty() || !is_literal(&file) {
            let help = "write the file itself, absolute or relative to this one: neither `~` nor variables are filled in here";
            reading.findings.error(reading.places.value(&pages.at(name)), format!("`{file}` is not a file's path"), help);
        }
        read.insert(name.to_owned(), below(folder, &file));
    }
    read
}
