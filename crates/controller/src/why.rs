//! `weal why`: plain sentences, the most important first, each with the number that made it so.
//!
//! What was measured and what a plan expects are said apart: they may contradict each other, and then a reader must see which is which.

mod brief;
mod words;

use weal_model::{
    AppExplanation, AppName, AppStatus, Binding, Event, FlowExplanation, FlowStatus, Goal, InstanceState, NodeName, NodeStatus,
    OwnAnswer, RefusedRequest, Report, Severity, Why, WhyNode, WhyRequest,
};

use weal_control::flow::pipeline::HANGS_AFTER;

use crate::board::View;
pub use brief::reason;
use words::sentence;

/// Why `app` is as it is; `None` when there is no such application.
pub(crate) fn why(app: &AppName, view: &View, events: Vec<Event>) -> Option<Why> {
    let status = view.status.apps.iter().find(|status| status.name == *app)?.clone();
    let flows: Vec<FlowStatus> = view.status.flows.iter().filter(|flow| flow.app == *app).cloned().collect();
    let mut sentences = Vec::new();
    state(&status, &mut sentences);
    sentences.extend(status.lent_seats());
    let mut by_need: Vec<&FlowStatus> = flows.iter().collect();
    by_need.sort_by(|a, b| order(a).total_cmp(&order(b)));
    for flow in by_need {
        flow_sentences(flow, view, &mut sentences);
    }
    let missed = flows.iter().filter(|flow| flow.utility.is_some_and(|utility| utility.0 < 0.0));
    if missed.clone().next().is_some() {
        sentences.extend(nodes_of(&status, view).into_iter().filter_map(|node| neighbours(&status, node, view)));
    }
    if let Some(explained) = view.plan.report.apps.get(app) {
        placement(&status, explained, &view.plan.report, &flows, &mut sentences);
        sentences.extend(contradiction(explained, &flows));
    }
    for reason in &view.plan.report.reasons {
        if reason.action.target().app() == Some(app) {
            sentences.push(format!("The last plan did this: {}", sentence(&reason.text)));
        }
    }
    if let Some(event) = events.iter().find(|event| event.severity > Severity::Info) {
        sentences.push(format!("The last thing that went wrong: {}", sentence(&event.text)));
    }
    if !view.status.control {
        sentences.push("weal only watches, because `control` is \"off\": it limits no seats and moves no instance.".into());
    }
    for problem in &view.status.problems {
        sentences.push(format!("weal itself has a problem: {}", sentence(problem)));
    }
    let answer = brief::brief(app, &view.status, &view.plan.report);
    Some(Why { app: app.clone(), answer, sentences, status, flows, events, node: None, refused: Vec::new() })
}

/// Adds what was measured to what a plan expects.
pub(crate) fn beside_measured(mut why: WhyNode, flows: &[FlowStatus]) -> WhyNode {
    if let Some((flow, utility)) = worst(flows) {
        why.sentences.push(format!("Its worst flow, {}/{}, has a measured utility of {utility:+.2} now.", flow.app, flow.class));
    }
    why
}

/// Why a gateway refused a request.
pub(crate) fn why_request(request: RefusedRequest, view: &View) -> WhyRequest {
    let mut sentences = Vec::new();
    let ago_s = view.status.time.since(request.time).as_secs_f64();
    let whose = match (&request.app, &request.class) {
        (Some(app), Some(class)) => format!(" of {app}/{class}"),
        _ => String::new(),
    };
    sentences.push(sentence(&format!(
        "Request {}{whose} was answered {} by the gateway {ago_s:.0} s ago: {}",
        request.id, request.status, request.text
    )));
    let flow = view
        .status
        .flows
        .iter()
        .find(|flow| Some(&flow.app) == request.app.as_ref() && Some(&flow.class) == request.class.as_ref());
    match request.reason {
        OwnAnswer::QueueFull | OwnAnswer::NoSeat | OwnAnswer::Late | OwnAnswer::Displaced => {
            crowded(&request, flow, view, &mut sentences)
        }
        OwnAnswer::NoInstance | OwnAnswer::Unavailable => {
            let app = view.status.apps.iter().find(|app| Some(&app.name) == request.app.as_ref());
            sentences.extend(app.map(|app| words::how(app, " now")));
        }
        reason => sentences.extend(about(reason).map(str::to_owned)),
    }
    WhyRequest { request, sentences }
}

/// What a reason says beyond the text of the answer; `None` where that says all.
fn about(reason: OwnAnswer) -> Option<&'static str> {
    match reason {
        OwnAnswer::InstanceTimeout | OwnAnswer::InstanceBrokeOff | OwnAnswer::InstanceMalformed => {
            Some("The gateway sent it to an instance, and that instance failed it: see `weal logs`.")
        }
        OwnAnswer::InstanceRefused => Some(
            "Its instance took no connection for some seconds, so no instance has seen it: see `weal logs` and `weal events`.",
        ),
        OwnAnswer::ClientTimeout | OwnAnswer::ClientTooSlow | OwnAnswer::MalformedBody => {
            Some("Its client stopped in the middle of the request's body, or sent one that cannot be read.")
        }
        OwnAnswer::ClientRate
        | OwnAnswer::ClientSeats
        | OwnAnswer::ClientConnections
        | OwnAnswer::TooManyConnections
        | OwnAnswer::TooManySessions
        | OwnAnswer::TooManyUploads
        | OwnAnswer::BodyTooLarge => {
            Some("It was more than one client, or all of them, may ask for, so no application has seen it.")
        }
        OwnAnswer::NoRoute => Some("No application has a route for it: `weal config show --effective` lists them all."),
        OwnAnswer::Malformed => Some("The gateway could not read the request, so no application has seen it."),
        // The answer's own text says all.
        OwnAnswer::AcmeChallenge
        | OwnAnswer::ClientGone
        | OwnAnswer::Displaced
        | OwnAnswer::Late
        | OwnAnswer::Maintenance
        | OwnAnswer::MaxForwards
        | OwnAnswer::NoInstance
        | OwnAnswer::NoSeat
        | OwnAnswer::ProxyHeader
        | OwnAnswer::QueueFull
        | OwnAnswer::Redirect
        | OwnAnswer::Unavailable
        | OwnAnswer::Other => None,
    }
}

// Why it had to wait: full queue, few seats, and what would have given it more.
fn crowded(request: &RefusedRequest, flow: Option<&FlowStatus>, view: &View, sentences: &mut Vec<String>) {
    if let Some(crowd) = request.crowd {
        let seats = match crowd.seats {
            Some(seats) => format!("had taken {} of its {seats} seats", crowd.in_service),
            None => format!("had {} requests outstanding, without a limit", crowd.in_service),
        };
        sentences.push(format!(
            "At that moment {} requests of its flow waited, of at most {} (`queue-limit`). All flows of the application together {seats}.",
            crowd.queued, crowd.queue_limit
        ));
    }
    let Some(flow) = flow else { return };
    sentences.push(format!(
        "Now the flow has {:.1} requests/s, of which {:.1}/s are answered, and {} seats.",
        flow.arrival_per_s, flow.throughput_per_s, flow.seats
    ));
    let name = format!("{}/{}", flow.app, flow.class);
    if view.status.control && flow.seats > 0 {
        let explained = view.plan.report.flows.iter().find(|explained| explained.id == flow.id);
        seats(flow, &name, explained, sentences);
    }
}

fn worst(flows: &[FlowStatus]) -> Option<(&FlowStatus, f64)> {
    flows.iter().filter_map(|flow| Some((flow, flow.utility?.0))).min_by(|a, b| a.1.total_cmp(&b.1))
}

fn nodes_of<'a>(status: &AppStatus, view: &'a View) -> Vec<&'a NodeStatus> {
    let here = |node: &&NodeStatus| status.instances.iter().any(|instance| instance.node == node.name);
    view.status.nodes.iter().filter(here).collect()
}

// Who has the CPU of a node that this application shares.
fn neighbours(status: &AppStatus, node: &NodeStatus, view: &View) -> Option<String> {
    let mut shares: Vec<(f64, String)> = Vec::new();
    for app in &view.status.apps {
        let here = || app.instances.iter().filter(|instance| instance.node == node.name);
        let used: f64 = here().map(|instance| instance.cpu_used.0).sum();
        let given: f64 = here().map(|instance| instance.cpu_allocated.0).sum();
        if here().next().is_none() || (used < 0.005 && app.name != status.name) {
            continue;
        }
        let flows: Vec<FlowStatus> = view.status.flows.iter().filter(|flow| flow.app == app.name).cloned().collect();
        let utility = worst(&flows).map(|(_, utility)| format!(", measured utility {utility:+.2}")).unwrap_or_default();
        shares.push((used, format!("{} uses {used:.2} of {given:.2} given{utility}", app.name)));
    }
    shares.sort_by(|a, b| b.0.total_cmp(&a.0));
    let shares: Vec<String> = shares.into_iter().map(|(_, text)| text).collect();
    (!shares.is_empty()).then(|| {
        format!("{} has {}, of which {:.2} is used: {}.", node.name, node.cpu_capacity, node.cpu_used.0, shares.join("; "))
    })
}

// A plan that expects another utility than is measured says so itself.
fn contradiction(explained: &AppExplanation, flows: &[FlowStatus]) -> Option<String> {
    let (expected, (flow, measured)) = (explained.utility?.0, worst(flows)?);
    ((expected - measured).abs() > 0.25).then(|| {
        format!(
            "The plan expected a utility of {expected:+.2}, and {}/{} has {measured:+.2}. The load has changed since, or weal does not know \
             yet what a request costs; the next plan uses what was measured.",
            flow.app, flow.class
        )
    })
}

/// Flows without utility come last.
fn order(flow: &FlowStatus) -> f64 {
    flow.utility.map_or(f64::INFINITY, |utility| utility.0)
}

fn state(status: &AppStatus, sentences: &mut Vec<String>) {
    let ready = status.instances.iter().filter(|instance| instance.state == InstanceState::Ready);
    let places: Vec<String> = ready.map(|instance| format!("{} on {}", instance.id, instance.node)).collect();
    sentences.push(words::how(status, ""));
    if !places.is_empty() {
        let bounds = if status.min == status.max { status.min.to_string() } else { format!("{} to {}", status.min, status.max) };
        let count = places.len();
        let verb = if count == 1 { "instance is" } else { "instances are" };
        sentences.push(format!("{count} {verb} ready ({}); its config allows {bounds}.", places.join(", ")));
    }
}

fn flow_sentences(flow: &FlowStatus, view: &View, sentences: &mut Vec<String>) {
    let name = format!("{}/{}", flow.app, flow.class);
    match (flow.goal, flow.achieved, flow.utility) {
        (Some(goal), Some(achieved), Some(utility)) => {
            let measured = match goal {
                Goal::Throughput { .. } => format!("{achieved:.1} requests/s"),
                Goal::Mean { .. } | Goal::Percentile { .. } => format!("{achieved:.0} ms"),
            };
            let verdict = if utility.0 < 0.0 { "misses its goal" } else { "meets its goal" };
            sentences.push(format!(
                "{name} {verdict} {}: {measured} measured, utility {utility}. On average a request waits {:.0} ms in the queue and \
                 its instance takes {:.0} ms.",
                flow.goal_text,
                (flow.response.mean_ms - flow.service.mean_ms).max(0.0),
                flow.service.mean_ms,
            ));
        }
        (Some(_), ..) => sentences.push(format!("{name} has the goal {} and no traffic now.", flow.goal_text)),
        (None, Some(achieved), _) => {
            sentences.push(format!(
                "{name} is best effort (no goal): {achieved:.0} ms on average; it gets the CPU that flows with goals leave over."
            ));
        }
        (None, None, _) => sentences.push(format!("{name} is best effort (no goal) and has no traffic now.")),
    }
    if flow.rejected_per_s > 0.0 {
        sentences.push(format!(
            "The gateway rejects {:.1} requests/s of {name} with 503, and {:.0} requests wait on average. A rejected request counts \
             as one that took twice the goal.",
            flow.rejected_per_s, flow.queue_mean
        ));
    }
    if flow.hanging > 0 {
        sentences.push(format!(
            "{} to which no instance has sent a byte for {} s or longer. Requests that are meant to wait, such as long polls, belong in \
             a class of their own.",
            held(flow.hanging, &name),
            HANGS_AFTER.as_secs()
        ));
    }
    if flow.at_clients > 0 {
        let clients = if flow.at_clients == 1 { "waits for its client" } else { "wait for their clients" };
        sentences.push(format!("{} that {clients} to send or to read on.", held(flow.at_clients, &name)));
    }
    if flow.errors_per_s > 0.0 {
        sentences.push(format!("{:.1} requests/s of {name} fail at its instances.", flow.errors_per_s));
    }
    if view.status.control && flow.seats > 0 {
        let explained = view.plan.report.flows.iter().find(|explained| explained.id == flow.id);
        seats(flow, &name, explained, sentences);
    }
}

/// So many seats of a flow are held by requests: the begin of a sentence.
fn held(seats: u32, name: &str) -> String {
    match seats {
        1 => format!("1 of the seats of {name} is held by a request"),
        _ => format!("{seats} of the seats of {name} are held by requests"),
    }
}

fn seats(flow: &FlowStatus, name: &str, explained: Option<&FlowExplanation>, sentences: &mut Vec<String>) {
    match explained {
        Some(explained) if !explained.text.is_empty() => sentences.push(sentence(&explained.text)),
        _ => sentences.push(format!(
            "{name} has {} seats ({:.1} in use, {:.1} requests waiting).",
            flow.seats, flow.in_service_mean, flow.queue_mean
        )),
    }
    if let Some(what) = what_would_help(&flow.binding) {
        sentences.push(format!("{name} would be better off with {what}."));
    }
}

fn placement(status: &AppStatus, explained: &AppExplanation, report: &Report, flows: &[FlowStatus], sentences: &mut Vec<String>) {
    // The plan's own sentence has what the application could use and what it is given; what is measured is said beside it.
    let planned = if explained.text.is_empty() {
        format!(
            "{} could use {} for its best utility, and the plan gives it {}",
            status.name, explained.demand, explained.allocation
        )
    } else {
        explained.text.clone()
    };
    sentences.push(format!("The last plan of instances: {}", sentence(&planned)));
    sentences.push(format!("{} uses {} now.", status.name, status.cpu_used));
    if let Some(what) = what_would_help(&explained.binding) {
        let gain = match explained.binding {
            Binding::Cpu { .. } | Binding::InstanceCpu if report.utility_per_core > 1e-3 => {
                Some(format!("One more core in the pool would give the worst off {:+.2}", report.utility_per_core))
            }
            Binding::Memory { .. } if report.utility_per_gib > 1e-3 => {
                Some(format!("One more GiB in the pool would give the worst off {:+.2}", report.utility_per_gib))
            }
            _ => None,
        };
        // A flow may have said the same.
        let is_said = flows.iter().any(|flow| what_would_help(&flow.binding).is_some_and(|said| said == what));
        let said = (!is_said).then(|| format!("What would change this placement: {what}."));
        sentences.extend(said.into_iter().chain(gain.map(|gain| sentence(&gain))));
    }
}

/// What would lift a limit; `None` where nothing is missing.
fn what_would_help(binding: &Binding) -> Option<String> {
    Some(match binding {
        Binding::Satisfied | Binding::Unmeasured => return None,
        Binding::Cpu { nodes } if nodes.is_empty() => "more CPU".into(),
        Binding::Cpu { nodes } => {
            let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
            format!(
                "more CPU on {}, where all of it is given out, or a higher `importance` where other applications share it",
                names.join(", ")
            )
        }
        Binding::Memory { missing } => format!("{missing} more free memory on one node that it may run on"),
        Binding::MaxInstances { max } => format!("more than the {max} instances that `instances.max` allows"),
        Binding::InstanceCpu => "a higher `cpu` per instance, or more instances".into(),
        Binding::Constraint { what } => format!("a looser constraint: {what}"),
        Binding::ChangeCost => "a load that lasts: a change now would cost more than it gains".into(),
        Binding::Manual => "a change by hand, because weal may not move it (`manual`, or `control` is off)".into(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weal_model::Cpu;

    use super::*;

    #[test]
    fn what_is_said_of_a_refused_request_fits_its_reason() {
        assert!(about(OwnAnswer::Malformed).is_some_and(|text| text.contains("could not read")));
        for limit in [OwnAnswer::ClientRate, OwnAnswer::ClientSeats, OwnAnswer::TooManyUploads, OwnAnswer::BodyTooLarge] {
            assert!(about(limit).is_some_and(|text| text.contains("may ask for")), "{limit}");
        }
        assert_eq!(about(OwnAnswer::Maintenance), None, "the answer's own text says all");
    }

    #[test]
    fn one_seat_that_is_held_is_said_in_the_singular() {
        assert_eq!(held(1, "shop/gold"), "1 of the seats of shop/gold is held by a request");
        assert_eq!(held(2, "shop/gold"), "2 of the seats of shop/gold are held by requests");
    }

    #[test]
    fn an_application_that_does_not_serve_is_said_in_one_sentence() {
        let status = json!({ "name": "shop", "state": "waiting", "detail": "needs db, which is not ready", "min": 1, "max": 2, "cpu_used": 0.5,
            "cpu_demand": 3.25, "cpu_allocated": 1.5, "utility": null, "instances": [] });
        let status: AppStatus = serde_json::from_value(status).unwrap();
        assert_eq!(words::how(&status, " now"), "shop is waiting now: needs db, which is not ready.");
        let failed = AppStatus { state: weal_model::AppState::Failed, detail: String::new(), ..status };
        assert_eq!(words::how(&failed, ""), "shop has failed.");
    }

    #[test]
    fn demand_and_allocation_are_said_once() {
        let status = json!({ "name": "shop", "state": "ready", "detail": "", "min": 1, "max": 2, "cpu_used": 0.5, "cpu_demand": 3.25,
            "cpu_allocated": 1.5, "utility": null, "instances": [] });
        let status: AppStatus = serde_json::from_value(status).unwrap();
        let explained = |text: &str| AppExplanation {
            demand: Cpu(3.25),
            allocation: Cpu(1.5),
            utility: None,
            binding: Binding::Satisfied,
            text: text.to_owned(),
        };
        let said = |text: &str| {
            let mut sentences = Vec::new();
            placement(&status, &explained(text), &Report::default(), &[], &mut sentences);
            sentences.join(" ")
        };
        for said in [said("`shop` gets 1.50 of the 3.25 CPU that it could use"), said("")] {
            assert_eq!((said.matches("3.25").count(), said.matches("1.5").count()), (1, 1), "{said}");
            assert!(said.ends_with("shop uses 0.50 CPU now."), "{said}");
        }
    }
}
