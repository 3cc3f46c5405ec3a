//! What a scenario names, against what its pool has.

use crate::error::Lacking;
use crate::scenario::Scenario;

/// Whether the pool has all that the scenario names.
///
/// # Errors
/// The first that it lacks.
pub(super) fn check_names(scenario: &Scenario) -> Result<(), Lacking> {
    let app = |name: &str| match scenario.pool.apps.contains_key(name) {
        true => Ok(()),
        false => Err(Lacking::App(name.to_owned())),
    };
    for load in &scenario.loads {
        app(&load.app)?;
        if let Some(class) = load.classes().find(|class| !scenario.pool.classes.contains_key(*class)) {
            return Err(Lacking::Class(class.to_owned()));
        }
    }
    let roomiest = scenario.pool.nodes.iter().map(|node| node.memory).max().unwrap_or_default();
    if let Some(job) = scenario.jobs.iter().find(|job| job.largest_memory() > roomiest) {
        return Err(Lacking::Memory { job: job.name.clone(), task: job.largest_memory(), roomiest });
    }
    for (name, behaviour) in &scenario.behaviours {
        app(name)?;
        let costs = behaviour.classes.values().chain([&behaviour.request]);
        costs.flat_map(|cost| &cost.calls).try_for_each(|call| app(&call.app))?;
    }
    for fault in &scenario.faults {
        fault.app.as_deref().map_or(Ok(()), app)?;
        if let Some(node) = fault.node.as_ref().filter(|node| !scenario.pool.nodes.iter().any(|n| n.name.as_str() == **node)) {
            return Err(Lacking::Node(node.clone()));
        }
    }
    scenario.expectations.iter().try_for_each(|expectation| expectation.app.as_deref().map_or(Ok(()), app))
}
