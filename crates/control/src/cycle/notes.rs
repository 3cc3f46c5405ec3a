//! What is noted as events: seats that changed by much, instances that changed their state.

use std::collections::BTreeSet;

use weal_model::{
    Action, AppName, Binding, EventKind, FlowAllocation, FlowExplanation, FlowId, FlowObservation, InstanceState, NodeName,
    SeatPlan,
};
use weal_protocol::node::InstanceEvent;

use super::Note;
use crate::flow::pipeline::HANGS_AFTER;

/// A flow that gets this share of the CPU that it could use lacks nothing: below it, rounding and noise would make needs.
const ENOUGH: f64 = 0.95;

/// Flows whose seats doubled or halved: who gained, who lost meanwhile, and what keeps it from more. The seats of a flow that lacked nothing and
/// lacks nothing follow its measured times to and fro. They hold up no request, and are no news.
pub(super) fn seats(before: &SeatPlan, plan: &SeatPlan, why: &[FlowExplanation]) -> Vec<(AppName, String)> {
    let seats_before = |id: &FlowId| before.flows.iter().find(|flow| flow.id == *id).map_or(0, |flow| flow.seats);
    let mut notes = Vec::new();
    for now in &plan.flows {
        let was = seats_before(&now.id);
        let by_much = now.seats.abs_diff(was) > 2 && (now.seats >= was * 2 || now.seats * 2 <= was);
        let lacks = |flow: &FlowAllocation| flow.allocation.0 < ENOUGH * flow.demand.0;
        let lacked = before.flows.iter().find(|flow| flow.id == now.id).is_some_and(lacks);
        if was == 0 || !by_much || !(lacked || lacks(now)) {
            continue;
        }
        let gained = now.seats > was;
        let other_way = |other: &&FlowAllocation| {
            let was = seats_before(&other.id);
            was > 0 && other.id != now.id && if gained { other.seats < was } else { other.seats > was }
        };
        let other = |other: &FlowAllocation| {
            format!("{}/{} went from {} to {}", other.id.app, other.id.class, seats_before(&other.id), other.seats)
        };
        let others: Vec<String> = plan.flows.iter().filter(other_way).map(other).collect();
        let others = if others.is_empty() { String::new() } else { format!(". {}", others.join(", ")) };
        let limit = why.iter().find(|flow| flow.id == now.id).map(|flow| limit(&flow.binding)).unwrap_or_default();
        let (app, class, seats) = (&now.id.app, &now.id.class, now.seats);
        let (given, wanted) = (now.allocation.0, now.demand.0);
        let text = format!(
            "{app}/{class} went from {was} to {seats} seats: it gets {given:.2} of the {wanted:.2} CPU that it could use{limit}{others}"
        );
        notes.push((app.clone(), text));
    }
    notes
}

/// Seats of `flow` hang.
pub(super) fn hanging(flow: &FlowObservation) -> String {
    let FlowId { app, class, .. } = &flow.id;
    let of = if flow.seats > 0.0 { format!("of the {} seats", flow.seats) } else { "of the seats".to_owned() };
    let held = if flow.hanging == 1 {
        "is held by a request to which its instance has"
    } else {
        "are held by requests to which their instances have"
    };
    format!("{} {of} of {app}/{class} {held} sent nothing for {} s", flow.hanging, HANGS_AFTER.as_secs())
}

/// What keeps a flow from more, in a few words that go on a sentence.
fn limit(binding: &Binding) -> String {
    match binding {
        Binding::Cpu { nodes } => {
            let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
            format!(", because all CPU of {} is given out", names.join(", "))
        }
        Binding::InstanceCpu => ", because its instances are at their CPU limit".to_owned(),
        Binding::Satisfied => ", and more would not make it faster".to_owned(),
        _ => String::new(),
    }
}

/// An action that is begun.
pub(super) fn action(action: &Action, reason: &str) -> Note {
    let colon = if reason.is_empty() { "" } else { ": " };
    let (verb, target) = (action.verb(), action.target());
    match action {
        Action::Start { node, .. } => Note::info(EventKind::Plan, format!("start {target} on {node}{colon}{reason}")).node(node),
        Action::StartJob { nodes, .. } | Action::ResumeJob { nodes, .. } => {
            Note::info(EventKind::Plan, format!("{verb} {target} on {}{colon}{reason}", listed(nodes)))
        }
        Action::MigrateJob { nodes, .. } => {
            Note::info(EventKind::Plan, format!("{verb} {target} to {}{colon}{reason}", listed(nodes)))
        }
        Action::Stop { .. }
        | Action::Sleep { .. }
        | Action::Resume { .. }
        | Action::PauseJob { .. }
        | Action::EndJob { .. }
        | Action::SuspendJob { .. }
        | Action::SetJobCpu { .. } => Note::info(EventKind::Plan, format!("{verb} {target}{colon}{reason}")),
    }
}

/// The nodes of a job's tasks, each once.
fn listed(nodes: &[NodeName]) -> String {
    let names: BTreeSet<&str> = nodes.iter().map(NodeName::as_str).collect();
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// An instance that changed its state.
pub(super) fn instance(event: &InstanceEvent) -> Note {
    let colon = if event.detail.is_empty() { "" } else { ": " };
    let text = format!("{} {}{colon}{}", event.instance, event.state.phrase(), event.detail);
    let note = match event.state {
        InstanceState::Failed => Note::error(EventKind::Instance, text),
        InstanceState::Backoff | InstanceState::Unhealthy => Note::warning(EventKind::Instance, text),
        _ => Note::info(EventKind::Instance, text),
    };
    note.app(&event.app).instance(&event.instance).node(&event.node)
}

#[cfg(test)]
mod tests {
    use weal_model::{Cpu, Utility};

    use super::*;

    fn plan(seats: [u32; 2]) -> SeatPlan {
        let flow = |(app, seats): (&str, u32)| FlowAllocation {
            id: FlowId { gateway: "gw".into(), app: app.into(), class: "gold".into() },
            seats,
            seat_power: Cpu(0.1),
            weight: 1.0,
            allocation: Cpu(0.5),
            demand: Cpu(1.0),
            predicted: Utility(0.1),
        };
        SeatPlan { generation: 1, flows: vec![flow(("search", seats[0])), flow(("shop", seats[1]))] }
    }

    #[test]
    fn an_event_says_who_gained_who_lost_and_what_the_limit_is() {
        let (before, after) = (plan([9, 4]), plan([7, 12]));
        let why = vec![FlowExplanation {
            id: after.flows[1].id.clone(),
            seats_before: 4,
            seats: 12,
            binding: Binding::Cpu { nodes: vec!["n1".into()] },
            text: String::new(),
        }];
        let notes = seats(&before, &after, &why);
        assert_eq!(notes.len(), 1, "9 -> 7 is not much: {notes:?}");
        assert_eq!(notes[0].0.as_str(), "shop");
        let expected = "shop/gold went from 4 to 12 seats: it gets 0.50 of the 1.00 CPU that it could use, because all CPU of n1 is given out. \
             search/gold went from 9 to 7";
        assert_eq!(notes[0].1, expected);
        assert_eq!(seats(&plan([0, 0]), &after, &[]), [], "the first seats are no news");
        let fed = |mut plan: SeatPlan| {
            plan.flows.iter_mut().for_each(|flow| flow.demand = flow.allocation);
            plan
        };
        assert_eq!(seats(&fed(before.clone()), &fed(after.clone()), &[]), [], "it lacked nothing, and lacks nothing");
        assert_eq!(seats(&fed(before), &after, &[]).len(), 1, "it lacks something now");
    }
}
