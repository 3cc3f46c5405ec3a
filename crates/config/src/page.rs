//! Writing TOML, with remarks.

use std::mem::take;

use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Key, Table, Value};

/// A document that grows section by section.
#[derive(Default)]
pub(crate) struct Page {
    document: DocumentMut,
    /// Lines for above the next header, or for the end.
    remarks: String,
}

impl Page {
    /// A remark above the next section.
    pub(crate) fn remark(&mut self, text: &str) {
        self.remarks.push_str(&format!("# {text}\n"));
    }

    /// Adds `[NAME]`.
    pub(crate) fn add(&mut self, name: &str, section: Section) {
        let table = self.below_the_others(section);
        self.document[name] = Item::Table(table);
    }

    /// Adds `[KIND.NAME]`.
    pub(crate) fn add_named(&mut self, kind: &str, name: &str, section: Section) {
        let table = self.below_the_others(section);
        let mut all = Table::new();
        all.set_implicit(true);
        self.document.entry(kind).or_insert(Item::Table(all))[name] = Item::Table(table);
    }

    /// Adds one more `[[NAME]]`.
    pub(crate) fn add_one_more(&mut self, name: &str, section: Section) {
        let table = self.below_the_others(section);
        let all = self.document.entry(name).or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        all.as_array_of_tables_mut().expect("the caller gives one name to one kind of section").push(table);
    }

    /// The document as text.
    pub(crate) fn finish(mut self) -> String {
        self.document.set_trailing(self.remarks);
        self.document.to_string()
    }

    /// What `section` ended with stands above the header that comes next.
    fn below_the_others(&mut self, mut section: Section) -> Table {
        let remarks = std::mem::replace(&mut self.remarks, section.remarks);
        let gap = if self.document.is_empty() && remarks.is_empty() { "" } else { "\n" };
        section.table.decor_mut().set_prefix(remarks + gap);
        section.table
    }
}

/// The keys below one header, in the order in which they are added.
#[derive(Default)]
pub(crate) struct Section {
    table: Table,
    /// Lines for above the next key.
    remarks: String,
}

impl Section {
    /// A remark above the next key.
    pub(crate) fn remark(&mut self, text: &str) {
        self.remarks.push_str(&format!("# {text}\n"));
    }

    /// Adds `KEY = VALUE`.
    pub(crate) fn add(&mut self, key: &str, value: impl Into<Value>) {
        let mut key = Key::new(key);
        key.leaf_decor_mut().set_prefix(take(&mut self.remarks));
        self.table.insert_formatted(&key, Item::Value(value.into()));
    }

    /// A key that is not there, because it has no value that means "not there".
    pub(crate) fn add_absent(&mut self, key: &str, meaning: &str) {
        self.remark(&format!("{key}: {meaning}  # default"));
    }

    /// Adds `KEY = VALUE`, marked where it is the default.
    pub(crate) fn add_marked(&mut self, key: &str, value: impl Into<Value>, is_default: bool) {
        self.add(key, marked(value.into(), is_default));
    }

    /// Adds `KEY.PART = VALUE`, marked where it is the default.
    pub(crate) fn add_part_marked(&mut self, key: &str, part: &str, value: impl Into<Value>, is_default: bool) {
        let mut parts = Table::new();
        parts.set_dotted(true);
        self.table.entry(key).or_insert(Item::Table(parts))[part] = Item::Value(marked(value.into(), is_default));
    }

    /// Adds `[..KEY]` below.
    pub(crate) fn add_section(&mut self, key: &str, section: Section) {
        self.table[key] = Item::Table(section.table);
    }
}

fn marked(mut value: Value, is_default: bool) -> Value {
    if is_default {
        value.decor_mut().set_suffix("  # default");
    }
    value
}

/// A number without a point where it is a whole one.
pub(crate) fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { Value::from(value as i64) } else { Value::from(value) }
}

/// A list of texts.
pub(crate) fn texts<'t>(texts: impl IntoIterator<Item = &'t str>) -> Array {
    texts.into_iter().collect()
}

/// A list with one entry a line.
pub(crate) fn lines(entries: impl IntoIterator<Item = InlineTable>) -> Array {
    let mut lines = Array::new();
    for entry in entries {
        let mut line = Value::from(entry);
        line.decor_mut().set_prefix("\n    ");
        lines.push_formatted(line);
    }
    if !lines.is_empty() {
        lines.set_trailing_comma(true);
        lines.set_trailing("\n");
    }
    lines
}
