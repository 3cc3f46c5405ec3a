//! `health` of an application.

use toml::de::DeValue;
use weal_model::{HealthCheck, HealthProbe};

use super::argv::check_argv;
use crate::defaults;
use crate::section::{Reading, Section};

/// `"/path"`, or a table with one of `http`, `tcp`, `command`, and the spans. `host` is asked for unless the table names another.
pub(super) fn read(reading: &mut Reading, app: &Section, host: Option<String>) -> HealthCheck {
    let mut check = HealthCheck {
        probe: HealthProbe::Tcp,
        interval_s: defaults::HEALTH_INTERVAL_S,
        timeout_s: defaults::HEALTH_TIMEOUT_S,
        start_timeout_s: defaults::HEALTH_START_TIMEOUT_S,
        failures: defaults::HEALTH_FAILURES,
        replace_after: defaults::HEALTH_FAILURES * defaults::HEALTH_ROUNDS,
        // A key of the application.
        send_proxy: None,
        host,
    };
    let Some(item) = app.item("health") else { return check };
    let table = match item.value {
        DeValue::String(path) => {
            check.probe = http(reading, path.as_ref(), &item.path);
            return check;
        }
        DeValue::Table(table) => table,
        _ => return item.wrong_type(reading, "a path or a table", "write `\"/healthz\"` or `{ tcp = true }`").unwrap_or(check),
    };
    let known = ["http", "tcp", "command", "host", "interval", "timeout", "start-timeout", "failures", "replace-after"];
    let section = Section::open(reading, &item.path, table, &known);
    check.probe = read_probe(reading, &section);
    let spans = [
        ("interval", 0.1, 3600.0, &mut check.interval_s),
        ("timeout", 0.001, 3600.0, &mut check.timeout_s),
        ("start-timeout", 0.1, 86_400.0, &mut check.start_timeout_s),
    ];
    for (key, least, most, field) in spans {
        *field = section.span(reading, key, (least, most)).unwrap_or(*field);
    }
    check.host = read_host(reading, &section).or(check.host);
    check.failures = section.count(reading, "failures", 1..1001).unwrap_or(check.failures);
    check.replace_after = section.count(reading, "replace-after", 0..10_001).unwrap_or(check.failures * defaults::HEALTH_ROUNDS);
    check
}

fn read_host(reading: &mut Reading, section: &Section) -> Option<String> {
    let host = section.text(reading, "host")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "-._:[]".contains(c);
    if host.is_empty() || !host.chars().all(fits) {
        let help = "write a name such as `shop.example`, as it stands in the header Host";
        reading.findings.error(reading.places.value(&section.at("host")), format!("`{host}` cannot be a host"), help);
        return None;
    }
    Some(host)
}

fn read_probe(reading: &mut Reading, section: &Section) -> HealthProbe {
    let given: Vec<&str> = ["http", "tcp", "command"].into_iter().filter(|key| section.item(key).is_some()).collect();
    if let [first, second, ..] = given[..] {
        let (here, there) = (reading.places.key(&section.at(second)), reading.places.key(&section.at(first)));
        let message = format!("there are both `{first}` and `{second}`");
        reading.findings.error_with(here, message, "keep one of them".to_owned(), (there, "the first one".to_owned()));
    }
    match given.first() {
        Some(&"http") => match section.text(reading, "http") {
            Some(path) => http(reading, &path, &section.at("http")),
            None => HealthProbe::Tcp,
        },
        Some(&"command") => {
            let argv = section.texts(reading, "command").unwrap_or_default();
            if section.item("command").is_some_and(|item| matches!(item.value, DeValue::Array(_))) {
                check_argv(reading, &argv, reading.places.value(&section.at("command")));
            }
            HealthProbe::Command { argv }
        }
        Some(_) => {
            if section.flag(reading, "tcp") == Some(false) {
                let help = "an application is always checked: leave `tcp` out or write `true`";
                reading.findings.error(reading.places.value(&section.at("tcp")), "`tcp` cannot be false", help);
            }
            HealthProbe::Tcp
        }
        None => HealthProbe::Tcp,
    }
}

fn http(reading: &mut Reading, path: &str, at: &str) -> HealthProbe {
    let fits = path.starts_with('/') && path.chars().all(|c| c.is_ascii_graphic() && c != '#');
    if !fits {
        let plain = path.split_once("://").map_or(path, |(_, rest)| rest.find('/').map_or("/", |slash| &rest[slash..]));
        let right = format!("/{}", plain.trim_start_matches('/'));
        let help = if right.chars().all(|c| c.is_ascii_graphic() && c != '#') {
            format!("did you mean `{right}`? A check is a `GET` of a path at the instance's own port")
        } else {
            "a path begins with `/` and has neither spaces nor `#`".to_owned()
        };
        reading.findings.error(reading.places.value(at), format!("`{path}` is not a path"), help);
    }
    HealthProbe::Http { path: path.to_owned() }
}
