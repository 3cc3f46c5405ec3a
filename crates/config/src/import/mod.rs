//! Makes a `weal.toml` of what other tools run applications from. What has no counterpart here is named, never dropped silently.

mod app;
mod command;
mod compose;
mod imported;
mod procfile;
mod yaml;

pub use compose::compose;
pub use imported::{ImportError, Imported};
pub use procfile::procfile;
