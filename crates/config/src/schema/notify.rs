//! The keys of `[[notify]]`.

use serde_json::{Value, json};
use weal_model::Occasion;
use weal_model::written::show_span;

use super::parts::{SPAN, argv, describe, quoted};
use crate::defaults;

pub(super) fn keys() -> Vec<(&'static str, Value)> {
    let occasions = json!({ "type": "array", "minItems": 1, "items": { "enum": Occasion::ALL.map(Occasion::as_str) } });
    vec![
        ("on", describe(occasions, "Of what: `goal-missed`, `crash-loop`, `deploy-failed`, `disk-nearly-full`.", "all")),
        (
            "after",
            describe(
                json!({ "type": "string", "pattern": SPAN }),
                "So long it must have lasted.",
                &quoted(&show_span(defaults::NOTIFY_AFTER_S)),
            ),
        ),
        (
            "url",
            describe(
                json!({ "type": "string", "pattern": "^https?://" }),
                "Where the message is posted as JSON. What it holds beside the host is shown in no log.",
                "",
            ),
        ),
        (
            "run",
            describe(
                argv(),
                "A command that gets the message on its standard input and in `$WEAL_EVENT`, `$WEAL_SUBJECT`, `$WEAL_TEXT`.",
                "",
            ),
        ),
    ]
}
