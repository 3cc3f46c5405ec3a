//! Where a request goes: the config in force, its routes, and the clusters behind them.

pub(crate) mod affinity;
pub(crate) mod cluster;
pub(crate) mod extras;
mod file;
mod kept;
pub(crate) mod marks;
mod pages;
mod path;
pub(crate) mod port_stats;
pub(crate) mod routes;
mod share;
pub(crate) mod table;
