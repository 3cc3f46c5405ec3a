//! Seats, weights and CPU in force.

use std::collections::BTreeSet;

use weal_model::{AppName, FlowExplanation, FlowId, GatewayName, SeatPlan};

use crate::flow::shares::CpuShares;

/// What is in force.
#[derive(Debug)]
pub(super) struct Seating {
    /// The gateway whose flows these are.
    pub gateway: GatewayName,
    pub plan: SeatPlan,
    /// Why each flow has its seats.
    pub explanations: Vec<FlowExplanation>,
    /// Applications that had a ready instance when the seats were planned.
    pub seated: BTreeSet<AppName>,
    /// What each instance was given, and what the engine was told of it.
    pub shares: CpuShares,
    /// Flows of which it was said that seats of theirs hang.
    pub hanging: BTreeSet<FlowId>,
}

impl Seating {
    pub fn new(gateway: GatewayName) -> Self {
        let (plan, explanations, seated, shares, hanging) = Default::default();
        Self { gateway, plan, explanations, seated, shares, hanging }
    }
}
