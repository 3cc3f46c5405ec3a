//! Seats: how many requests of each flow may be outstanding (Pacifici section 3).
//!
//! Symbols: flow `f`, cluster `d`, node `m`; `o_f` seats of a flow; `kappa_fd` power that one seat of `f` uses in `d`;
//! `c_m = rho_m Omega_m` power that node `m` may use; `U_f(o)` utility, non-decreasing. The problem is (1)-(3) of the paper,
//! lexicographically:
//!
//! ```text
//! maximise  the lowest U_f(o_f), then the second lowest, and so on
//! such that there is a load L_dm >= 0, zero where d has no instance on m, with
//!           sum_m L_dm = sum_f kappa_fd o_f     for each cluster d
//!           sum_d L_dm <= c_m                   for each node m
//!           L_dm <= what d's instances on m can use
//! ```
//!
//! `kappa` is in standard units, so it does not depend on the node; then seat placements `O_fdm` may be summed over flows, and
//! feasibility is a maximum flow from clusters to nodes, whatever the number of flows.
//!
//! # The exact fractional answer
//!
//! Let `o_f(u)` be the fewest seats that give `u`. All flows rise together until some set of clusters is *tight*: its demand
//! equals all that its nodes have. Instead of bisecting on max-flows, a level `u` that is too high is cut down by its own
//! minimum cut: the clusters `S` on the source's side ask for more than `cut(S)`, so `u` falls to the root of
//! `sum_{d in S} D_d(u) = cut(S)`, and the flow is computed again. Each round finds another cut, and a handful suffices. Flows
//! that load a tight set are stuck at its level; the set and its nodes are taken out, and the others rise on.
//!
//! Postcondition: no flow can gain without one at or below it losing.
//!
//! # Whole seats
//!
//! [`whole`] rounds down, then gives one seat at a time to the flow with the lowest utility while the max-flow can be
//! augmented (the paper's greedy pass).

mod max_flow;
pub mod paper;
#[cfg(test)]
mod properties;
mod solve;
mod whole;

pub use solve::{Bottleneck, SeatSolution, solve};
pub use whole::whole;

use weal_model::Utility;

/// What a flow makes of seats. Both functions are non-decreasing and inverse to each other below `best`.
pub trait Appetite {
    /// The fewest seats, fractional, that give `utility`; above [`Appetite::best`], those of the best. Never NaN.
    fn seats_for(&self, utility: Utility) -> f64;
    /// The utility of so many seats.
    fn utility_of(&self, seats: f64) -> Utility;
    /// The highest utility that seats can give.
    fn best(&self) -> Utility;
}

/// The seat problem in dense indices.
#[derive(Debug, Clone)]
pub struct SeatProblem<A> {
    /// The flows.
    pub flows: Vec<SeatFlow<A>>,
    /// The clusters, as lists of their hosts. A cluster may be listed at a node once.
    pub clusters: Vec<Vec<Host>>,
    /// `rho_m Omega_m` of each node. Invariant: finite, not negative.
    pub nodes: Vec<f64>,
}

/// A flow of a [`SeatProblem`].
#[derive(Debug, Clone)]
pub struct SeatFlow<A> {
    /// `U_f`.
    pub appetite: A,
    /// `kappa_fd`: (cluster, power that one seat uses there). Invariant: finite, not negative; a cluster stands there once.
    pub loads: Vec<(usize, f64)>,
}

/// Where a cluster has instances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Host {
    /// The node.
    pub node: usize,
    /// The power that the cluster's instances there can use; infinite when nothing limits them.
    pub limit: f64,
}
