//! A config's text for others to see: as it was written, without what may be secret of receivers' addresses.

use toml_edit::{DocumentMut, Item, TableLike, Value};
use weal_model::hidden_address;

/// `text` with the address of each `[[notify]]`, and of `logs-to`, `metrics-to` and `traces-to`, down to its host; `None` for what is no TOML.
pub fn hidden_text(text: &str) -> Option<String> {
    let mut document: DocumentMut = text.parse().ok()?;
    if let Some(pool) = document.get_mut("pool").and_then(Item::as_table_like_mut) {
        ["logs-to", "metrics-to", "traces-to"].into_iter().for_each(|key| hide(pool, key));
    }
    match document.get_mut("notify") {
        Some(Item::ArrayOfTables(tables)) => tables.iter_mut().for_each(|table| hide(table, "url")),
        Some(Item::Value(Value::Array(entries))) => {
            entries.iter_mut().filter_map(Value::as_inline_table_mut).for_each(|table| hide(table, "url"));
        }
        _ => {}
    }
    Some(document.to_string())
}

/// What stands around the address stays: its place in a line and a remark behind it.
fn hide(table: &mut dyn TableLike, key: &str) {
    let Some(value) = table.get_mut(key).and_then(Item::as_value_mut) else { return };
    let Some(url) = value.as_str() else { return };
    let mut hidden = Value::from(hidden_address(url));
    *hidden.decor_mut() = value.decor().clone();
    *value = hidden;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_addresses_of_receivers_are_changed() {
        let text = "# mine\n[[notify]]\non = [\"crash-loop\"]   # when\nurl =  \"https://hooks.example.com/T0/s3cret\"  # chat\n\n\
                    [app.shop]\nrun = [\"shop\", \"http://a/b\"]\nurl = \"http://a/b\"\n[[notify]]\nrun = [\"page\", \"x\"]\n";
        let shown = hidden_text(text).unwrap();
        assert_eq!(shown, text.replace("/T0/s3cret", "/…"));
        let inline = "notify = [ { url = 'http://hook.example/s3cret', after = \"0s\" } ]\n";
        assert_eq!(hidden_text(inline).unwrap(), "notify = [ { url = \"http://hook.example/…\", after = \"0s\" } ]\n");
        for key in ["logs-to", "metrics-to", "traces-to"] {
            let to = format!("[pool]\n{key} = \"https://otlp.example/T0/s3cret\" # all\n");
            assert_eq!(hidden_text(&to).unwrap(), to.replace("/T0/s3cret", "/…"));
        }
        let journald = "pool = { logs-to = \"journald\" }\n";
        assert_eq!(hidden_text(journald).unwrap(), journald);
        assert_eq!(hidden_text("[pool"), None);
    }
}
