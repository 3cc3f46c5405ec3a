//! Reading, checking, showing and comparing `weal.toml`. Pure: text in, data or diagnostics out.
//!
//! [`parse`] makes a [`weal_model::PoolSpec`] of a text, with every default of [`defaults`] filled in, or says everything that is
//! wrong with it. A text is read in two steps: `parse/` reads each table by itself and remembers where everything stands;
//! `check/` then judges the whole (names, cycles, sizes) and points at the remembered places.

mod check;
pub mod defaults;
mod diagnostic;
mod diff;
mod effective;
pub mod env_file;
mod given;
mod hidden;
pub mod import;
pub mod init;
mod machine;
mod outline;
mod page;
mod parse;
mod schema;
mod section;
mod suggest;

pub use diagnostic::{Diagnostic, Level, render_all};
pub use diff::{ConfigChange, Effect, diff, restarts};
pub use effective::effective;
pub use hidden::hidden_text;
pub use machine::MachineSize;
pub use parse::{Parsed, parse};
pub use schema::{documentation, schema};
