//! Node.js and its relatives, and folders of plain pages.

use serde_json::Value;

use super::look::Look;
use super::program::{Program, words};

pub(super) fn detect(folder: &dyn Look) -> Option<Program> {
    let package: Value = serde_json::from_str(&folder.read("package.json")?).ok()?;
    let run = match package.pointer("/scripts/start") {
        Some(_) => words(manager(folder)),
        None => vec!["node".to_owned(), main_file(folder, &package)?],
    };
    // `@scope/name` is called `name`.
    let name = package["name"].as_str().and_then(|name| name.rsplit('/').next()).map(str::to_owned);
    Some(Program::new("package.json", run).named(name).with_memory("512MiB"))
}

fn manager(folder: &dyn Look) -> &'static str {
    let locks = [("pnpm-lock.yaml", "pnpm start"), ("yarn.lock", "yarn start"), ("bun.lock", "bun run start")];
    locks.into_iter().find(|(lock, _)| folder.has(lock)).map_or("npm start", |(_, line)| line)
}

fn main_file(folder: &dyn Look, package: &Value) -> Option<String> {
    let named = package["main"].as_str().into_iter();
    named.chain(["server.js", "index.js"]).find(|file| folder.has(file)).map(str::to_owned)
}

/// Pages without a program of their own.
pub(super) fn pages(folder: &dyn Look) -> Option<Program> {
    let line = "python3 -m http.server $PORT --bind 127.0.0.1";
    folder.has("index.html").then(|| Program::new("index.html", words(line)))
}
