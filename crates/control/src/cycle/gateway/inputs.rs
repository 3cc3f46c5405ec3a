//! What a gateway's config is made from.

use std::collections::{BTreeMap, BTreeSet};

use weal_model::{AppName, GatewayName, InstanceId, PoolSpec, SeatPlan};
use weal_protocol::engine::InstanceSeen;
use weal_protocol::gateway::Standby;

use crate::flow::shares::CpuShares;

/// See the module.
pub(in crate::cycle) struct Inputs<'a> {
    pub pool: &'a PoolSpec,
    pub gateway: &'a GatewayName,
    pub instances: &'a [InstanceSeen],
    pub draining: &'a BTreeSet<InstanceId>,
    /// Those of them that are to be stopped.
    pub stopping: &'a BTreeSet<InstanceId>,
    pub seats: &'a SeatPlan,
    pub shares: &'a CpuShares,
    /// Applications that had a ready instance when the seats were planned.
    pub seated: &'a BTreeSet<AppName>,
    /// Whom the gateway may have woken for a crowd.
    pub standbys: &'a BTreeMap<AppName, Standby>,
    /// Applications whose programs could not even begin.
    pub broken: &'a BTreeSet<AppName>,
}
