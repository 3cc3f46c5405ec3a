//! `logs-to`, `metrics-to` and `traces-to` in `[pool]`: who else gets logs, metrics and spans.

use weal_model::{CollectorUrl, LogsTo};

use super::notify::check_url;
use crate::section::{Reading, Section};

pub(super) fn read(reading: &mut Reading, section: &Section) -> Option<LogsTo> {
    let text = section.text(reading, "logs-to")?;
    if text == "journald" {
        return Some(LogsTo::Journald);
    }
    check_url(reading, section, "logs-to", &text);
    Some(LogsTo::Otlp(text))
}

/// A collector, at the address in `key`.
pub(super) fn read_collector(reading: &mut Reading, section: &Section, key: &str) -> Option<CollectorUrl> {
    let url = section.text(reading, key)?;
    check_url(reading, section, key, &url);
    Some(CollectorUrl(url))
}
