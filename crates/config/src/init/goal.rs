//! A goal for what an import found: the file of another tool has none, and weal compares applications by theirs.

use toml_edit::{DocumentMut, Item, Value};

use super::sketch::{CLASS, beginning};

/// The import `text` of `source` with a class, which all its routes get. Without a route it stays as it is.
pub(super) fn with_goal(text: String, source: &str) -> String {
    let Ok(mut document) = text.parse::<DocumentMut>() else { return text };
    let apps = document.get_mut("app").and_then(Item::as_table_mut).into_iter().flat_map(|apps| apps.iter_mut());
    let routes = apps.filter_map(|(_, app)| app.get_mut("routes").and_then(Item::as_array_mut));
    let mut any = false;
    for route in routes.flat_map(|routes| routes.iter_mut()).filter_map(Value::as_inline_table_mut) {
        route.insert("class", CLASS.into());
        // A space that stood before the closing brace would stand before the new comma.
        route.fmt();
        any = true;
    }
    if !any {
        return text;
    }
    let text = document.to_string();
    // An import says first that it has no goals.
    let apps = text.split_once("\n\n").map_or(text.as_str(), |(_, apps)| apps);
    format!("{}\n{apps}", beginning(source))
}
