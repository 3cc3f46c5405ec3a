//! From an application of another tool to TOML.

use std::collections::{BTreeMap, BTreeSet};

use toml_edit::{Array, InlineTable};
use weal_model::Bytes;

use crate::page::{Page, Section, number, texts};
use weal_model::written::show_size;

/// What is noted of an application that may listen or not: its file does not say.
pub(super) const MAY_LISTEN: &str = "whether it listens is not known: it counts as healthy while it runs. A web application gets `routes`, and `health` is left out";

/// One application on its way to TOML.
#[derive(Default)]
pub(super) struct App {
    pub name: String,
    /// Whether it runs once per deploy and ends.
    pub is_task: bool,
    pub run: Vec<String>,
    /// What runs once before it.
    pub release: Option<Vec<String>>,
    /// The archive of its image, relative to the config.
    pub image: Option<String>,
    /// What takes the place of the image's entry point.
    pub entrypoint: Option<Vec<String>>,
    /// A remark above `run`.
    pub remark: Option<String>,
    pub health: Option<InlineTable>,
    pub memory: Option<Bytes>,
    pub cpu: Option<f64>,
    pub instances: Option<u32>,
    pub host: Option<String>,
    pub needs: Vec<String>,
    pub user: Option<String>,
    pub env: BTreeMap<String, String>,
    pub env_files: Vec<String>,
    /// Variables that hold the path of a file with a secret, by where that is.
    pub secrets: BTreeMap<String, String>,
    pub group: Option<String>,
    pub umask: Option<String>,
    pub stop_signal: Option<&'static str>,
    pub reload_signal: Option<&'static str>,
    pub limits: Vec<(String, u64)>,
    pub cwd: Option<String>,
    pub stop_timeout: Option<String>,
    pub restart: Option<&'static str>,
}

impl App {
    /// `tasks` are the names of those that end: others wait for their end.
    fn section(&self, tasks: &BTreeSet<&str>) -> Section {
        let mut section = Section::default();
        if self.is_task {
            section.add("kind", "task");
        }
        self.remark.iter().for_each(|remark| section.remark(remark));
        self.image.iter().for_each(|image| section.add("image", image));
        self.entrypoint.iter().for_each(|argv| section.add("entrypoint", texts(argv.iter().map(String::as_str))));
        if self.image.is_none() || !self.run.is_empty() {
            section.add("run", texts(self.run.iter().map(String::as_str)));
        }
        self.release.iter().for_each(|argv| section.add("release", texts(argv.iter().map(String::as_str))));
        self.health.iter().for_each(|health| section.add("health", health.clone()));
        self.memory.iter().for_each(|memory| section.add("memory", show_size(*memory)));
        self.cpu.iter().for_each(|cpu| section.add("cpu", number(*cpu)));
        self.instances.iter().for_each(|count| section.add("instances", i64::from(*count)));
        self.host.iter().for_each(|host| section.add("routes", Array::from_iter([InlineTable::from_iter([("host", host)])])));
        if self.needs.iter().any(|need| tasks.contains(need.as_str())) {
            let state = |need: &String| if tasks.contains(need.as_str()) { "done" } else { "ready" };
            section.add("needs", self.needs.iter().map(|need| (need.as_str(), state(need))).collect::<InlineTable>());
        } else if !self.needs.is_empty() {
            section.add("needs", texts(self.needs.iter().map(String::as_str)));
        }
        self.user.iter().for_each(|user| section.add("user", user));
        self.group.iter().for_each(|group| section.add("group", group));
        self.umask.iter().for_each(|mask| section.add("umask", mask));
        if !self.env_files.is_empty() {
            section.add("env-file", texts(self.env_files.iter().map(String::as_str)));
        }
        if !self.limits.is_empty() {
            let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
            let limits: InlineTable = self.limits.iter().map(|(name, value)| (name.as_str(), number(*value))).collect();
            section.add("limits", limits);
        }
        self.cwd.iter().for_each(|cwd| section.add("cwd", cwd));
        self.stop_timeout.iter().for_each(|span| section.add("stop-timeout", span));
        self.stop_signal.iter().for_each(|signal| section.add("stop-signal", *signal));
        self.reload_signal.iter().for_each(|signal| section.add("reload-signal", *signal));
        self.restart.iter().for_each(|policy| section.add("restart", *policy));
        if !self.secrets.is_empty() {
            let as_file = |place: &String| InlineTable::from_iter([("from", place.as_str()), ("as", "file")]);
            let mut secrets = Section::default();
            self.secrets.iter().for_each(|(name, place)| secrets.add(name, as_file(place)));
            section.add_section("secrets", secrets);
        }
        if !self.env.is_empty() {
            let mut env = Section::default();
            self.env.iter().for_each(|(name, value)| env.add(name, value));
            section.add_section("env", env);
        }
        section
    }
}

/// A config of `apps`, which come from a `source`.
pub(super) fn to_toml(source: &str, apps: &[App]) -> String {
    let mut page = Page::default();
    page.remark(&format!(
        "Imported from a {source}. Add goals: `[class.NAME]` with `goal = \"p95 < 250ms\"`, and `class` in the routes."
    ));
    let tasks: BTreeSet<&str> = apps.iter().filter(|app| app.is_task).map(|app| app.name.as_str()).collect();
    apps.iter().for_each(|app| page.add_named("app", &app.name, app.section(&tasks)));
    page.finish()
}

/// A health check by a command.
pub(super) fn health_command<'a>(argv: impl IntoIterator<Item = &'a str>) -> InlineTable {
    InlineTable::from_iter([("command", texts(argv))])
}
