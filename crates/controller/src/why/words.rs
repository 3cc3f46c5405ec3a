//! Sentences.

use weal_model::AppStatus;

/// `text` with a full stop, unless it ends like a sentence already. Its first letter stays as it is: most sentences begin with a name.
pub(super) fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with(['.', '!', '?']) { text.to_owned() } else { format!("{text}.") }
}

/// How an application is, and why. `when` stands before the reason: ` now`.
pub(super) fn how(app: &AppStatus, when: &str) -> String {
    let detail = if app.detail.is_empty() { String::new() } else { format!(": {}", app.detail) };
    sentence(&format!("{} {}{when}{detail}", app.name, app.state.phrase()))
}
