//! The text of a config with one application.

use toml_edit::Value;

use crate::page::texts;

/// The class of a first config.
pub(super) const CLASS: &str = "web";

/// One application, as `weal init` and `weal run` write it down.
#[derive(Debug, Clone, PartialEq)]
pub struct Sketch {
    /// The application's name.
    pub name: String,
    /// Program and arguments.
    pub run: Vec<String>,
    /// Where clients connect, `ADDRESS:PORT`; `None` is the default.
    pub listen: Option<String>,
    /// Where the API is; `None` is the default.
    pub api: Option<String>,
    /// The working directory; `None` is the config's folder.
    pub cwd: Option<String>,
    /// The user that instances run as; `None` is one of the application's own.
    pub user: Option<String>,
    /// Such as `p95 < 250ms`; `None` is best effort.
    pub goal: Option<String>,
    /// Of each instance, such as `256MiB`; `None` is the default.
    pub memory: Option<String>,
    /// How many instances there may be.
    pub most_instances: u32,
}

impl Sketch {
    /// An application of this name without a command.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            run: Vec::new(),
            listen: None,
            api: None,
            cwd: None,
            user: None,
            goal: None,
            memory: None,
            most_instances: 1,
        }
    }

    /// Eight lines to begin with, each with what it is for.
    pub fn first_config(&self, source: &str) -> String {
        let memory = self.memory.as_deref().unwrap_or("256MiB");
        let (name, run) = (&self.name, list(&self.run));
        format!(
            "{}\n\
             [app.{name}]\n\
             run = {run}  # listens on 127.0.0.1 at $PORT\n\
             memory = {}  # of each instance at most\n\
             instances = {{ min = 1, max = 4 }}  # more start while the goal is missed\n\
             routes = [{{ host = \"{name}.localhost\", class = \"web\" }}]\n",
            beginning(source),
            quoted(memory)
        )
    }

    /// A whole config whose application gets every request.
    pub fn whole_config(&self) -> String {
        let line = |key: &str, value: &Option<String>| {
            value.as_ref().map_or_else(String::new, |value| format!("{key} = {}\n", quoted(value)))
        };
        let mut text =
            format!("[pool]\nname = {}\n{}{}", quoted(&self.name), line("listen", &self.listen), line("api", &self.api));
        if self.goal.is_some() {
            text += &format!("\n[class.run]\n{}", line("goal", &self.goal));
        }
        let route = if self.goal.is_some() { "{ class = \"run\" }" } else { "{ path = \"/*\" }" };
        text += &format!("\n[app.{}]\nrun = {}\nroutes = [{route}]\n", self.name, list(&self.run));
        text += &format!("instances = {{ min = 1, max = {} }}\n", self.most_instances.max(1));
        text + &line("cwd", &self.cwd) + &line("user", &self.user) + &line("memory", &self.memory)
    }
}

/// What stands above the applications of a first config: where it came from, and a class with a goal.
pub(super) fn beginning(source: &str) -> String {
    format!(
        "# Made by `weal init` of {source}. Check it with `weal validate`, start it with `weal up`; docs/config.md has every key.\n\
         [class.{CLASS}]\n\
         goal = \"p95 < 500ms\"  # 95 of 100 requests are answered within 500 ms\n"
    )
}

fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn list(words: &[String]) -> String {
    texts(words.iter().map(String::as_str)).to_string()
}
