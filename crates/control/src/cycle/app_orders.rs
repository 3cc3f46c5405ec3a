//! What people ordered about applications, beside what the config says: which are stopped, how many instances others have,
//! and which are kept awake.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weal_model::{AppName, InstanceRange, PoolSpec, Time};

/// Orders that last until another one, until their time has passed, or until their application leaves the config.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AppOrders {
    /// Stopped until somebody orders them to start.
    pub halted: BTreeSet<AppName>,
    /// Instances that they have in place of what the config says.
    pub scaled: BTreeMap<AppName, InstanceRange>,
    /// Kept awake until then by the engine's clock.
    pub awake: BTreeMap<AppName, Time>,
}

impl AppOrders {
    /// Forgets orders about applications that `pool` has not.
    pub(super) fn retain(&mut self, pool: &PoolSpec) {
        self.halted.retain(|app| pool.apps.contains_key(app));
        self.scaled.retain(|app, _| pool.apps.contains_key(app));
        self.awake.retain(|app, _| pool.apps.contains_key(app));
    }

    /// `pool` as people ordered it.
    pub(super) fn applied(&self, pool: &PoolSpec) -> PoolSpec {
        let mut pool = pool.clone();
        for app in pool.apps.values_mut() {
            if let Some(range) = self.scaled.get(&app.name) {
                let is_free = app.per_node >= app.instances.max;
                app.instances = *range;
                app.per_node = if is_free { range.max } else { app.per_node };
            }
            if self.halted.contains(&app.name) {
                // Placement leaves it alone; the rollout stops what runs.
                (app.halted, app.manual, app.instances.min) = (true, true, 0);
            }
        }
        pool
    }
}

#[cfg(test)]
mod tests {
    use weal_model::AppSpec;

    use super::*;

    fn pool() -> PoolSpec {
        let mut pool = PoolSpec::example();
        for name in ["db", "shop"] {
            pool.apps.insert(name.into(), AppSpec::example(name));
        }
        pool
    }

    #[test]
    fn a_stopped_application_wants_no_instance_and_a_scaled_one_those_that_were_ordered() {
        let range = InstanceRange { min: 2, max: 3 };
        let orders = AppOrders { halted: ["db".into()].into(), scaled: [("shop".into(), range)].into(), ..AppOrders::default() };
        let applied = orders.applied(&pool());
        assert!(applied.apps["db"].halted && applied.apps["db"].manual && applied.apps["db"].instances.min == 0);
        assert_eq!((applied.apps["shop"].instances, applied.apps["shop"].per_node), (range, 3));
        assert_eq!(AppOrders::default().applied(&pool()), pool());
    }

    #[test]
    fn orders_end_with_their_application() {
        let range = InstanceRange { min: 2, max: 3 };
        let mut orders = AppOrders {
            halted: ["gone".into()].into(),
            scaled: [("gone".into(), range)].into(),
            awake: [("gone".into(), Time::ZERO)].into(),
        };
        orders.retain(&pool());
        assert_eq!(orders, AppOrders::default());
    }
}
