//! Limits of setrlimit(2).

use std::collections::BTreeMap;
use std::io;

use rustix::process::{Resource, Rlimit};
use weal_model::{LimitValue, ResourceLimit};

/// Soft and hard limits at once: a process could raise the first to the second.
pub(crate) fn limit_resources(limits: &BTreeMap<ResourceLimit, LimitValue>) -> io::Result<()> {
    for (limit, value) in limits {
        let most = match value {
            LimitValue::AtMost(most) => Some(*most),
            LimitValue::Infinity => None,
        };
        rustix::process::setrlimit(resource(*limit), Rlimit { current: most, maximum: most })?;
    }
    Ok(())
}

fn resource(limit: ResourceLimit) -> Resource {
    match limit {
        ResourceLimit::As => Resource::As,
        ResourceLimit::Cpu => Resource::Cpu,
        ResourceLimit::Data => Resource::Data,
        ResourceLimit::Fsize => Resource::Fsize,
        ResourceLimit::Memlock => Resource::Memlock,
        ResourceLimit::Nice => Resource::Nice,
        ResourceLimit::Rtprio => Resource::Rtprio,
        ResourceLimit::Sigpending => Resource::Sigpending,
        ResourceLimit::Stack => Resource::Stack,
    }
}
