//! `/metrics` and `/v1/metrics`: OpenTelemetry's names and units for HTTP, `weal_*` for what is weal's own.
//!
//! Everything is read from the current view each time; nothing is counted twice. The histogram of response times comes
//! from the gateway's own, which has two significant digits, so each bucket is right within 1%.

mod text;

use weal_model::{FlowId, FlowStatus, InstanceState, LatencyHistogram, Rung, Status, Time};
use weal_protocol::gateway::{ClusterCounters, FlowCounters, GatewayCounters};
use weal_protocol::metrics::{HistogramPoint, MetricFamily, MetricKind, MetricPoint, MetricUnit as Unit, MetricValue, Metrics};

use crate::board::View;
pub(crate) use text::text;

/// Seconds: those that OpenTelemetry's HTTP conventions advise.
const BUCKETS_S: [f64; 14] = [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// The metrics as data. `started` is when this controller did. A value that is no number is left out: JSON cannot say it.
pub(crate) fn metrics(view: &View, started: Time, now: Time) -> Metrics {
    let mut families = families(view, started);
    for family in &mut families {
        family.points.retain(|point| point.value.is_finite());
    }
    Metrics { time: now, families }
}

/// Every metric that there is.
fn families(view: &View, started: Time) -> Vec<MetricFamily> {
    let mut all = Families { all: Vec::new(), since: started };
    if let Some(counters) = &view.counters {
        all.since = counters.started;
        gateway(&mut all, counters);
        all.since = started;
    }
    let status = &view.status;
    flows(&mut all, status);
    nodes(&mut all, status);
    apps(&mut all, status);
    sleep(&mut all, view);
    work_factors(&mut all, status);
    pool(&mut all, view);
    all.all
}

/// Metrics as they are gathered.
struct Families {
    all: Vec<MetricFamily>,
    /// When who counts the next ones began.
    since: Time,
}

impl Families {
    fn add<'a>(
        &mut self,
        (kind, name, unit): (MetricKind, &str, Unit),
        help: &str,
        values: impl Iterator<Item = (Labels<'a>, MetricValue)>,
    ) {
        let point = |(labels, value): (Labels<'a>, MetricValue)| MetricPoint {
            labels: labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            value,
        };
        let since = (kind != MetricKind::Gauge).then_some(self.since);
        let (name, help, points) = (name.to_owned(), help.to_owned(), values.map(point).collect());
        self.all.push(MetricFamily { name, help, unit, kind, since, points });
    }
}

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// One metric with a value per set of labels.
fn gauges<'a>(all: &mut Families, name: &str, help: &str, unit: Unit, values: impl Iterator<Item = (Labels<'a>, f64)>) {
    all.add((MetricKind::Gauge, name, unit), help, values.map(|(labels, value)| (labels, MetricValue::Number(value))));
}

fn counters<'a>(all: &mut Families, name: &str, help: &str, values: impl Iterator<Item = (Labels<'a>, u64)>) {
    let values = values.map(|(labels, count)| (labels, MetricValue::Count(count)));
    all.add((MetricKind::Counter, name, Unit::None), help, values);
}

/// How long something took.
fn histograms<'a>(all: &mut Families, name: &str, help: &str, values: impl Iterator<Item = (Labels<'a>, &'a LatencyHistogram)>) {
    let values = values.map(|(labels, histogram)| (labels, MetricValue::Histogram(in_buckets(histogram))));
    all.add((MetricKind::Histogram, name, Unit::Seconds), help, values);
}

fn in_buckets(histogram: &LatencyHistogram) -> HistogramPoint {
    let count = histogram.count();
    let within = |bound_s: f64| (histogram.share_within(bound_s).unwrap_or(0.0) * count as f64).round() as u64;
    let mut below = 0;
    let mut buckets = Vec::with_capacity(BUCKETS_S.len() + 1);
    for bound_s in BUCKETS_S {
        let cumulative = within(bound_s).max(below);
        buckets.push(cumulative - below);
        below = cumulative;
    }
    buckets.push(count.saturating_sub(below));
    let sum = histogram.mean_s().unwrap_or(0.0) * count as f64;
    HistogramPoint { count, sum, bounds: BUCKETS_S.to_vec(), buckets }
}

fn of_flow(id: &FlowId) -> Labels<'_> {
    vec![("weal_app", id.app.as_str()), ("weal_class", id.class.as_str())]
}

fn gateway(all: &mut Families, counters_now: &GatewayCounters) {
    let flows = &counters_now.flows;
    for (name, help, read) in [
        (
            "http_server_request_duration",
            "From a request's arrival to the end of its response.",
            (|flow| &flow.response_time) as fn(&FlowCounters) -> &LatencyHistogram,
        ),
        ("weal_service_duration", "From a request's dispatch to the end of its response.", |flow| &flow.service_time),
    ] {
        histograms(all, name, help, flows.iter().map(|flow| (of_flow(&flow.id), read(flow))));
    }
    for (name, help, read) in [
        ("weal_requests", "Requests that came in.", (|flow| flow.arrivals) as fn(&FlowCounters) -> u64),
        ("weal_requests_rejected", "Requests answered with 503 by the gateway.", |flow| flow.rejections),
        ("weal_requests_late", "Requests rejected because they could no longer meet their goal.", |flow| flow.late),
        ("weal_requests_failed", "Requests that ended in 502 or 504, or broke off.", |flow| flow.errors),
        ("weal_requests_retried", "Requests sent again to another instance.", |flow| flow.retries),
    ] {
        counters(all, name, help, flows.iter().map(|flow| (of_flow(&flow.id), read(flow))));
    }
    let responses = flows.iter().flat_map(|flow| {
        flow.responses.iter().map(|(status, count)| ([of_flow(&flow.id), vec![("weal_status", status)]].concat(), count))
    });
    counters(all, "weal_responses", "Responses of instances, by the class of their status codes.", responses);
    let clusters = &counters_now.clusters;
    for (name, help, read) in [
        ("weal_wakes", "Instances woken for waiting requests.", (|cluster| cluster.wakes) as fn(&ClusterCounters) -> u64),
        ("weal_crowd_wakes", "Instances woken because a crowd of requests waited.", |cluster| cluster.crowd_wakes),
        ("weal_wake_failures", "Wake calls that woke no instance.", |cluster| cluster.wake_failures),
        ("weal_port_connections", "Connections and UDP sessions passed on to instances.", |cluster| cluster.ports.total),
        ("weal_port_refused", "Connections and UDP sessions closed without an instance.", |cluster| cluster.ports.refused),
        ("weal_port_received_bytes", "Bytes that ports passed on to instances.", |cluster| cluster.ports.bytes_in),
        ("weal_port_sent_bytes", "Bytes that ports passed on to clients.", |cluster| cluster.ports.bytes_out),
        ("weal_port_datagrams_dropped", "Datagrams that were not passed on.", |cluster| cluster.ports.dropped),
    ] {
        counters(all, name, help, clusters.iter().map(|one| (vec![("weal_app", one.app.as_str())], read(one))));
    }
    let open = clusters.iter().map(|one| (vec![("weal_app", one.app.as_str())], one.ports.open as f64));
    gauges(all, "weal_port_connections_open", "Connections and UDP sessions open now.", Unit::None, open);
    let lent = clusters.iter().map(|one| (vec![("weal_app", one.app.as_str())], f64::from(one.seats_lent)));
    gauges(
        all,
        "weal_seats_lent",
        "Seats that another gateway holds now, which ends and finishes its requests.",
        Unit::None,
        lent,
    );
    let help = "From the first request that found no instance open until a woken instance was.";
    let waits = clusters.iter().map(|one| (vec![("weal_app", one.app.as_str())], &one.wake_wait));
    histograms(all, "weal_wake_wait", help, waits);
    let active = flows.iter().map(|flow| (of_flow(&flow.id), f64::from(flow.in_service + flow.queued)));
    gauges(all, "http_server_active_requests", "Requests in the gateway now, waiting or in service.", Unit::None, active);
    let one = |value: u64| std::iter::once((Labels::new(), value));
    gauges(
        all,
        "weal_gateway_connections",
        "Open client connections.",
        Unit::None,
        one(counters_now.connections).map(|(l, v)| (l, v as f64)),
    );
    counters(all, "weal_requests_unrouted", "Requests that matched no route.", one(counters_now.unrouted));
    let tls = counters_now.tls;
    counters(all, "weal_tls_handshakes_full", "TLS handshakes in which a certificate was shown.", one(tls.full));
    counters(all, "weal_tls_handshakes_resumed", "TLS handshakes that went on with an earlier session.", one(tls.resumed));
    counters(all, "weal_tls_handshakes_failed", "TLS handshakes that failed.", one(tls.failed));
    let turned_away = "Clients that were turned away because new TLS sessions waited for too long.";
    counters(all, "weal_tls_handshakes_turned_away", turned_away, one(tls.turned_away));
    let spent = [("full", tls.full_cpu_s), ("resumed", tls.resumed_cpu_s)];
    let spent = spent.into_iter().map(|(kind, seconds)| (vec![("kind", kind)], MetricValue::Number(seconds)));
    let family = (MetricKind::Counter, "weal_tls_handshake_cpu", Unit::Seconds);
    all.add(family, "CPU time of the costly part of TLS handshakes.", spent);
    let errors = counters_now.errors.iter().map(|error| {
        let app = error.app.as_ref().map_or("", |app| app.as_str());
        (vec![("weal_app", app), ("weal_reason", error.reason.as_str())], error.count)
    });
    let help = "Requests that the gateway answered itself with an error, by its `x-weal-reason`.";
    counters(all, "weal_gateway_errors", help, errors);
    let abusive = "Connections over HTTP/2 that were cut off because their clients flooded them.";
    counters(all, "weal_connections_abusive", abusive, one(counters_now.abusive));
    counters(all, "weal_requests_malformed", "Requests refused as malformed.", one(counters_now.malformed));
    let spans = counters_now.spans;
    counters(all, "weal_spans", "Requests of sampled traces.", one(spans.ended));
    let dropped = "Spans that found no room at the gateway because the collector did not take the ones before.";
    counters(all, "weal_spans_dropped", dropped, one(spans.dropped));
}

fn flows(all: &mut Families, status: &Status) {
    let mut gauge = |name, help, unit: Unit, read: fn(&FlowStatus) -> Option<f64>| {
        let values = status.flows.iter().filter_map(|flow| Some((of_flow(&flow.id), read(flow)?)));
        gauges(all, name, help, unit, values);
    };
    gauge("weal_flow_utility", "How well a flow's goal is met: 1 is best, 0 exactly at the goal.", Unit::None, |f| {
        f.utility.map(|u| u.0)
    });
    gauge("weal_flow_predicted_utility", "The utility that the model expects of the seats in force.", Unit::None, |f| {
        f.predicted_utility.map(|u| u.0)
    });
    gauge("weal_flow_seats", "Requests of a flow that may be outstanding.", Unit::None, |f| Some(f64::from(f.seats)));
    gauge("weal_flow_weight", "The weight of a flow's queue, in requests per second.", Unit::None, |f| Some(f.weight));
    gauge("weal_flow_queue", "Requests waiting, on average over the last cycles.", Unit::None, |f| Some(f.queue_mean));
    gauge("weal_flow_in_service", "Requests outstanding, on average over the last cycles.", Unit::None, |f| {
        Some(f.in_service_mean)
    });
    gauge("weal_flow_allocation_cores", "CPU granted to a flow.", Unit::None, |f| Some(f.cpu_allocated.0));
    gauge("weal_flow_goal", "What is asked of a flow: a response time, for goals that are one.", Unit::Seconds, |f| {
        f.goal.and_then(|goal| goal.target_s())
    });
}

fn nodes(all: &mut Families, status: &Status) {
    let mut gauge = |name, help, unit: Unit, read: fn(&weal_model::NodeStatus) -> f64| {
        gauges(all, name, help, unit, status.nodes.iter().map(|node| (vec![("weal_node", node.name.as_str())], read(node))));
    };
    gauge("weal_node_up", "1 when the node's agent answers.", Unit::None, |node| f64::from(u8::from(node.up)));
    gauge("weal_node_cpu_capacity_cores", "CPU of a node for instances.", Unit::None, |node| node.cpu_capacity.0);
    gauge("weal_node_cpu_used_cores", "CPU used by a node's instances.", Unit::None, |node| node.cpu_used.0);
    gauge("weal_node_cpu_allocated_cores", "CPU given to a node's instances by the last plan.", Unit::None, |node| {
        node.cpu_allocated.0
    });
    gauge("weal_node_memory_capacity", "Memory of a node for instances.", Unit::Bytes, |node| node.memory_capacity.0 as f64);
    gauge("weal_node_memory_used", "Memory used by a node's instances.", Unit::Bytes, |node| node.memory_used.0 as f64);
    gauge("weal_node_memory_reserve", "Memory that the plan keeps free on a node.", Unit::Bytes, |node| {
        node.memory_reserve.0 as f64
    });
    gauge(
        "weal_node_parked_for_reserve",
        "Instances parked since the agent started because less was free.",
        Unit::None,
        |node| node.parked_for_reserve as f64,
    );
}

fn apps(all: &mut Families, status: &Status) {
    let mut gauge = |name, help, read: fn(&weal_model::AppStatus) -> Option<f64>| {
        let values = status.apps.iter().filter_map(|app| Some((vec![("weal_app", app.name.as_str())], read(app)?)));
        gauges(all, name, help, Unit::None, values);
    };
    gauge("weal_app_instances", "Instances of an application, in any state.", |app| Some(app.instances.len() as f64));
    gauge("weal_app_instances_ready", "Instances of an application that take requests.", |app| {
        Some(app.instances.iter().filter(|instance| instance.state == InstanceState::Ready).count() as f64)
    });
    gauge("weal_app_utility", "The lowest utility of an application's flows.", |app| app.utility.map(|u| u.0));
    gauge("weal_app_cpu_used_cores", "CPU used by an application.", |app| Some(app.cpu_used.0));
    gauge("weal_app_allocation_cores", "CPU given to an application by the last plan.", |app| Some(app.cpu_allocated.0));
    gauge("weal_app_demand_cores", "CPU that an application wants for its best utility.", |app| Some(app.cpu_demand.0));
}

/// Who sleeps how deep, what that holds, and each instance's way from state to state.
fn sleep(all: &mut Families, view: &View) {
    let apps = &view.status.apps;
    let rungs = apps.iter().flat_map(|app| {
        Rung::ALL.map(|rung| {
            let count = app.instances.iter().filter(|instance| instance.state == rung.state()).count();
            (vec![("weal_app", app.name.as_str()), ("weal_rung", rung.as_str())], count as f64)
        })
    });
    gauges(all, "weal_app_instances_asleep", "Instances of an application that sleep on a rung.", Unit::None, rungs);
    let instances = || apps.iter().flat_map(|app| &app.instances);
    let labels = || instances().map(|instance| vec![("weal_instance", instance.id.as_str())]);
    let memory = labels().zip(instances().map(|instance| instance.memory_used.0 as f64));
    gauges(all, "weal_instance_memory", "Memory charged to an instance.", Unit::Bytes, memory);
    let swap = labels().zip(instances().map(|instance| instance.swap_used.0 as f64));
    gauges(all, "weal_instance_swap", "Memory of an instance that is in swap.", Unit::Bytes, swap);
    let woke = labels().zip(instances().map(|instance| instance.last_wake_ms));
    let woke = woke.filter_map(|(labels, ms)| Some((labels, ms? / 1e3)));
    gauges(all, "weal_instance_last_wake", "What an instance's last wake took.", Unit::Seconds, woke);
    let words: Vec<(&str, String, u64)> = view
        .transitions
        .iter()
        .map(|((app, state), count)| {
            let word = serde_json::to_value(state).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default();
            (app.as_str(), word, *count)
        })
        .collect();
    let entered = words.iter().map(|(app, word, count)| (vec![("weal_app", *app), ("weal_state", word.as_str())], *count));
    counters(all, "weal_instance_transitions", "Instances that entered a state.", entered);
}

fn work_factors(all: &mut Families, status: &Status) {
    let factors = status.flows.iter().flat_map(|flow| &flow.work_factors).map(|factor| {
        let mut labels = of_flow(&factor.flow);
        labels.push(("weal_cluster", factor.app.as_str()));
        (labels, factor.work.0)
    });
    gauges(all, "weal_work_factor", "CPU time that a request of a flow costs in a cluster.", Unit::Seconds, factors);
}

fn pool(all: &mut Families, view: &View) {
    let one = |value: f64| std::iter::once((Labels::new(), value));
    gauges(
        all,
        "weal_config_generation",
        "Grows by one with each config that was taken.",
        Unit::None,
        one(view.status.config_generation as f64),
    );
    let refused = f64::from(u8::from(view.status.config_error.is_some()));
    gauges(all, "weal_config_refused", "1 when the newest config was not taken.", Unit::None, one(refused));
    gauges(
        all,
        "weal_problems",
        "Things that are wrong with weal itself now.",
        Unit::None,
        one(view.status.problems.len() as f64),
    );
    counters(all, "weal_plan_changes", "Placement actions begun.", std::iter::once((Labels::new(), view.actions_total)));
    let put_off = view.put_off.iter().map(|(why, count)| (vec![("weal_reason", why.as_str())], *count));
    counters(
        all,
        "weal_plan_actions_put_off",
        "Actions of plans that could not be begun then; a later plan asks again.",
        put_off,
    );
    if let Some(plan) = &view.status.plan {
        gauges(
            all,
            "weal_plan_duration",
            "What the last placement plan took to make.",
            Unit::Seconds,
            one(plan.planned_in_ms / 1e3),
        );
        if let Some(lowest) = plan.lowest_utility {
            gauges(
                all,
                "weal_plan_lowest_utility",
                "The utility of the worst off under the last plan.",
                Unit::None,
                one(lowest.0),
            );
        }
        if let Some(bound) = plan.upper_bound {
            gauges(all, "weal_plan_upper_bound", "No plan can bring the worst off above this.", Unit::None, one(bound.0));
        }
    }
}
