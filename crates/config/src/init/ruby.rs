//! Ruby: Rails, Rack and Sinatra.

use super::look::Look;
use super::program::{Program, words};

pub(super) fn detect(folder: &dyn Look) -> Option<Program> {
    let gems = folder.read("Gemfile")?;
    let line = if folder.has("config/application.rb") {
        "bundle exec rails server -b 127.0.0.1 -p $PORT"
    } else if folder.has("config.ru") && has_gem(&gems, "puma") {
        "bundle exec puma -b tcp://127.0.0.1:$PORT config.ru"
    } else if folder.has("config.ru") {
        "bundle exec rackup --host 127.0.0.1 --port $PORT"
    } else if folder.has("app.rb") {
        "bundle exec ruby app.rb -o 127.0.0.1 -p $PORT"
    } else {
        return None;
    };
    Some(Program::new("Gemfile", words(line)).with_memory("512MiB"))
}

/// Whether a line asks for the gem `name`.
fn has_gem(gems: &str, name: &str) -> bool {
    gems.lines().map(str::trim_start).any(|line| line.starts_with("gem") && line.split(['"', '\'']).nth(1) == Some(name))
}
