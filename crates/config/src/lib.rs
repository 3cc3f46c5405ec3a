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
pub mod import;
mod parse;
mod schema;
mod section;
mod suggest;
mod units;

pub use diagnostic::{Diagnostic, Level, render_all};
pub use diff::{Change, Effect, diff, restarts};
pub use effective::effective;
pub use parse::parse;
pub use schema::{documentation, schema};

use weal_model::{Bytes, PoolSpec};

/// The machine that a config is for, as far as its checks and defaults depend on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Cores that weal may use.
    pub cpus: f64,
    /// Memory that it has.
    pub memory: Bytes,
}

/// A config that can be used.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// What it says, with every default filled in.
    pub spec: PoolSpec,
    /// What somebody should look at, in the order of the text.
    pub warnings: Vec<Diagnostic>,
}
