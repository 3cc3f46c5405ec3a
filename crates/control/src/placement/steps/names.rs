//! Names for new instances.

use std::collections::BTreeMap;

use weal_model::{AppName, InstanceId, Snapshot, naming};

use crate::placement::policy::Policy;

/// The number at the end of `APP-NUMBER`.
pub(super) fn number(id: &InstanceId) -> u64 {
    naming::parts(id).map_or(0, |(_, number)| number)
}

/// The next number of each application: one above all that are known.
pub(super) struct Names(BTreeMap<AppName, u64>);

impl Names {
    pub fn of(snapshot: &Snapshot, policy: &Policy) -> Self {
        let mut next = policy.next_instance.clone();
        for instance in &snapshot.instances {
            // By its name, too: another application may have had the one that it would get.
            let named = naming::parts(&instance.id).map(|(app, _)| app);
            for app in named.into_iter().chain([instance.app.clone()]) {
                let entry = next.entry(app).or_insert(1);
                *entry = (*entry).max(number(&instance.id) + 1);
            }
        }
        Self(next)
    }

    pub fn next(&mut self, app: &AppName) -> InstanceId {
        let next = self.0.entry(app.clone()).or_insert(1);
        *next += 1;
        naming::instance_id(app, *next - 1)
    }
}
