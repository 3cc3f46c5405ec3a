//! `logs-to` in `[pool]`: who keeps logs besides weal.

use weal_model::LogsTo;

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
