//! Makes a `weal.toml` of what other tools run applications from. What has no counterpart here is named, never dropped silently.

mod app;
mod command;
mod compose;
mod imported;
mod pm2;
mod procfile;
mod sizes;
mod systemd;
mod yaml;

pub use compose::{compose, compose_beside};
pub use imported::{ImportError, Imported};
pub use pm2::pm2;
pub use procfile::procfile;
pub use systemd::systemd;
