//! The pure decisions, with the state that they carry from cycle to cycle.

use std::collections::BTreeMap;

use weal_model::{Action, AppName, InstanceId, NodeName, Plan, PoolSpec, Reason, Report, SeatPlan, Snapshot, WorkFactor};

/// Profiles, seats, and the random numbers of the planner.
#[derive(Debug, Default)]
pub(crate) struct Decider {}

impl Decider {
    /// Seats and weights for the next flow cycle.
    pub fn seats(&mut self, snapshot: &Snapshot, _pool: &PoolSpec, _before: &SeatPlan) -> (SeatPlan, Report) {
        (SeatPlan { generation: snapshot.generation, flows: Vec::new() }, Report::default())
    }

    /// Where instances go.
    pub fn place(&mut self, snapshot: &Snapshot, pool: &PoolSpec) -> Result<(Plan, Report), String> {
        let mut plan = Plan { generation: snapshot.generation, ..Plan::default() };
        let mut report = Report { generation: snapshot.generation, ..Report::default() };
        let mut on_node: BTreeMap<&NodeName, usize> = pool.nodes.iter().map(|node| (&node.name, 0)).collect();
        for instance in &snapshot.instances {
            *on_node.entry(&instance.node).or_default() += 1;
        }
        for app in pool.apps.values() {
            let active = snapshot.instances.iter().filter(|i| i.app == app.name && i.state.is_active()).count();
            for number in active..app.instances.min as usize {
                let Some(node) = on_node.iter().min_by_key(|(_, count)| **count).map(|(node, _)| (*node).clone()) else { break };
                let instance = unused_name(&app.name, &snapshot.instances.iter().map(|i| &i.id).collect::<Vec<_>>(), number);
                let action = Action::Start { instance, app: app.name.clone(), node };
                report
                    .reasons
                    .push(Reason { action: action.clone(), text: format!("{} runs at least {}", app.name, app.instances.min) });
                plan.actions.push(action);
            }
        }
        Ok((plan, report))
    }

    /// What each flow costs.
    pub fn work_factors(&self) -> &[WorkFactor] {
        &[]
    }
}

fn unused_name(app: &AppName, taken: &[&InstanceId], from: usize) -> InstanceId {
    let names = (from + 1..).map(|number| InstanceId::from(format!("{app}-{number}")));
    names.into_iter().find(|name| !taken.contains(&name)).expect("the numbers do not end")
}
