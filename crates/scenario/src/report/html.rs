//! The page around the charts.

use std::collections::BTreeMap;
use std::fmt::Write;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::chart::{COLOURS, Chart, Line, Points};
use super::comparison::{Comparison, Variant};
use super::run::{FlowPoint, FlowSeries, JobPoint, NodeSeries, Run};

/// One self-contained page for a run.
pub fn page(run: &Run) -> String {
    let body = html! {
        (head(run))
        (checks(run))
        (summary(run))
        (flow_charts(run))
        (node_charts(run))
        (jobs(run))
        (actions(run))
        (changes(run))
        h2 { "Scenario" }
        pre { (run.scenario) }
    };
    document(&run.title, &style(), &body)
}

/// One self-contained page for several ways of running a scenario.
pub fn comparison_page(comparison: &Comparison) -> String {
    let Some(first) = comparison.first() else {
        return document("nothing was run", &style(), &html! { p { "Nothing was run." } });
    };
    let names: Vec<&str> = comparison.variants.iter().map(|variant| variant.name.as_str()).collect();
    let seeds: Vec<String> = comparison.variants[0].runs.iter().map(|run| run.seed.to_string()).collect();
    let facts = [
        ("Run on", first.kind.clone()),
        ("Machine", first.machine.clone()),
        ("Compared", names.join(", ")),
        ("Seeds", seeds.join(", ")),
        ("Duration", format!("{:.0} s each", first.duration_s)),
    ];
    let mut notes: Vec<&String> = comparison.variants.iter().flat_map(|v| &v.runs).flat_map(|run| &run.notes).collect();
    notes.sort();
    notes.dedup();
    let body = html! {
        h1 { (first.title) }
        p { (first.intent) }
        (table_of_facts(&facts))
        @for note in notes { (shown_note(note)) }
        (figures(comparison))
        (comparison_charts(comparison, first))
        h2 { "Scenario" }
        pre { (first.scenario) }
    };
    document(&first.title, &style(), &body)
}

fn table_of_facts(facts: &[(&str, String)]) -> Markup {
    html! {
        table {
            @for (name, value) in facts {
                tr { th { (name) } td { (value) } }
            }
        }
    }
}

fn shown_note(note: &str) -> Markup {
    html! { p { strong { "Note:" } " " (note) } }
}

/// A chart under its heading.
pub(super) fn shown(chart: &Chart) -> Markup {
    html! {
        h3 { (chart.title) }
        (chart.to_svg())
    }
}

fn figures(comparison: &Comparison) -> Markup {
    html! {
        h2 { "Side by side" }
        p.soft { "Medians over the seeds, with the lowest and the highest." }
        div.wide {
            table {
                tr {
                    th { "What" }
                    th { "Expected" }
                    @for variant in &comparison.variants { th.n { (variant.name) } }
                }
                @for figure in comparison.figures() {
                    tr {
                        td { (figure.what) }
                        td { (figure.expected) }
                        @for spread in &figure.spreads {
                            td.n { (spread.map_or("–".into(), |spread| spread.to_string())) }
                        }
                    }
                }
            }
        }
    }
}

fn comparison_charts(comparison: &Comparison, first: &Run) -> Markup {
    type Value = fn(&FlowPoint) -> Option<f64>;
    let values: [(&str, Value); 6] = [
        ("response time against its goal, ms", |p| p.response_ms),
        ("utility (0 is exactly at the goal)", |p| p.utility),
        ("requests per second that came in", |p| Some(p.arrival_per_s)),
        ("requests per second that were answered", |p| Some(p.throughput_per_s)),
        ("requests outstanding", |p| Some(p.in_service)),
        ("requests waiting", |p| Some(p.queue)),
    ];
    let of_flow = |flow: &FlowSeries, i: usize, (what, value): &(&str, Value)| {
        let limits = match (i, flow.target_ms) {
            (0, Some(target_ms)) => vec![(target_ms, flow.goal.clone(), 0)],
            (1, _) => vec![(0.0, "goal".into(), 0)],
            _ => vec![],
        };
        let cap = if i == 0 { flow.target_ms.map(|target_ms| 4.0 * target_ms) } else { (i == 1).then_some(3.0) };
        let series = |run: &Run| -> Points {
            let flow = run.flows.iter().find(|other| other.name == flow.name);
            flow.map_or(vec![], |flow| flow.points.iter().map(|point| (point.t_s, value(point))).collect())
        };
        compared(comparison, first, &format!("{}: {what}", flow.name), limits, cap, series)
    };
    html! {
        h2 { "Over time" }
        p.soft { "Medians over the seeds, second by second." }
        @for flow in &first.flows {
            @for (i, value) in values.iter().enumerate() { (of_flow(flow, i, value)) }
        }
        @for node in &first.nodes {
            @let series = |run: &Run| -> Points {
                let node = run.nodes.iter().find(|other| other.name == node.name);
                node.map_or(vec![], |node| node.points.iter().map(|point| (point.t_s, Some(point.cpu_used))).collect())
            };
            @let limits = vec![(node.cpu_capacity, "capacity".into(), 0)];
            (compared(comparison, first, &format!("CPU used on {}, cores", node.name), limits, None, series))
        }
    }
}

/// One chart with a line for each variant.
fn compared(
    comparison: &Comparison,
    first: &Run,
    title: &str,
    limits: Vec<(f64, String, usize)>,
    cap: Option<f64>,
    series: impl Fn(&Run) -> Points,
) -> Markup {
    let line = |(style, variant): (usize, &Variant)| Line {
        name: variant.name.clone(),
        style: style % COLOURS.len(),
        points: variant.median_of(first.duration_s, &series),
    };
    let lines = comparison.variants.iter().enumerate().map(line).collect();
    shown(&Chart { title, duration_s: first.duration_s, lines, limits, marks: vec![], stacked: false, cap })
}

/// A page that needs nothing beside itself.
pub fn document(title: &str, style: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body { main { (body) } }
        }
    };
    page.into_string()
}

pub(super) fn style() -> String {
    let mut css = String::from(
        ":root{color-scheme:light dark;--back:#fff;--fore:#1b1b1b;--soft:#767676;--grid:#e3e3e3}\
         @media(prefers-color-scheme:dark){:root{--back:#16181b;--fore:#ececec;--soft:#a5a5a5;--grid:#34383d}}\
         body{margin:0;background:var(--back);color:var(--fore);font:15px/1.5 system-ui,sans-serif}\
         main{max-width:46rem;margin:0 auto;padding:1.5rem 1rem 4rem}h1{line-height:1.2}h2{margin-top:2.2rem}\
         svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--soft)}\
         .grid{stroke:var(--grid)}.mark{stroke:var(--soft);stroke-dasharray:1 3}.limit{stroke-width:1;stroke-dasharray:2 2;fill:none}\
         .line{fill:none;stroke-width:1.8}.area{opacity:.25;stroke:none}\
         table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{text-align:left;padding:.25rem .6rem .25rem 0;\
         border-bottom:1px solid var(--grid);vertical-align:top}td.n,th.n{text-align:right}.wide{overflow-x:auto}\
         .missed{font-weight:700;text-decoration:underline}pre{white-space:pre-wrap;background:var(--grid);padding:.8rem;border-radius:4px}\
         .soft{color:var(--soft)}@media print{main{max-width:none;padding:0}svg,tr{break-inside:avoid}pre{border:1px solid var(--grid)}}",
    );
    for (i, colour) in COLOURS.iter().enumerate() {
        let _ = write!(css, ".c{i}{{stroke:{colour}}}.a{i}{{fill:{colour}}}svg .f{i}{{fill:{colour};font-weight:600}}");
    }
    css
}

fn head(run: &Run) -> Markup {
    let facts = [
        ("Run on", run.kind.clone()),
        ("Control", run.control.clone()),
        ("Machine", run.machine.clone()),
        ("Seed", run.seed.to_string()),
        ("Duration", format!("{:.0} s", run.duration_s)),
    ];
    html! {
        h1 { (run.title) }
        p { (run.intent) }
        (table_of_facts(&facts))
        @for note in &run.notes { (shown_note(note)) }
    }
}

fn checks(run: &Run) -> Markup {
    html! {
        @if !run.checks.is_empty() {
            h2 { "Expected and measured" }
            table {
                tr { th { "What" } th { "Expected" } th.n { "Measured" } th {} }
                @for check in &run.checks {
                    tr {
                        td { (check.what) }
                        td { (check.expected) }
                        td.n { (check.got.map_or("not measured".into(), |got| format!("{got:.3}"))) }
                        @if check.met { td { "met" } } @else { td.missed { "missed" } }
                    }
                }
            }
        }
    }
}

fn summary(run: &Run) -> Markup {
    let numbers = ["Sent", "Answered", "Rejected", "Failed", "Mean", "p95", "p99", "Within goal"];
    let cells = |flow: &FlowSeries| {
        let s = &flow.summary;
        let ms = [s.mean_ms, s.p95_ms, s.p99_ms].map(|ms| format!("{ms:.0} ms"));
        let within = s.within_goal.map_or("–".into(), |share| format!("{:.1}%", share * 100.0));
        [s.sent, s.answered, s.rejected, s.failed].map(|count| count.to_string()).into_iter().chain(ms).chain([within])
    };
    html! {
        h2 { "As the clients saw it" }
        div.wide {
            table {
                tr {
                    th { "Flow" }
                    th { "Goal" }
                    @for name in numbers { th.n { (name) } }
                }
                @for flow in &run.flows {
                    tr {
                        td { (flow.name) }
                        td { (flow.goal) }
                        @for cell in cells(flow) { td.n { (cell) } }
                    }
                }
            }
        }
    }
}

fn flow_charts(run: &Run) -> Markup {
    let marks: Vec<f64> = run.changes.iter().filter(|change| change.placement).map(|change| change.t_s).collect();
    let lines = |value: &dyn Fn(&FlowPoint) -> Option<f64>| -> Vec<Line> {
        let line = |(style, flow): (usize, &FlowSeries)| Line {
            name: flow.name.clone(),
            style,
            points: flow.points.iter().map(|point| (point.t_s, value(point))).collect(),
        };
        run.flows.iter().enumerate().map(line).collect()
    };
    let goals: Vec<(f64, String, usize)> = run
        .flows
        .iter()
        .enumerate()
        .filter_map(|(i, flow)| Some((flow.target_ms?, flow.goal.clone(), i % COLOURS.len())))
        .collect();
    let mut utilities = lines(&|p| p.utility);
    utilities.extend(run.jobs.as_ref().map(|jobs| Line {
        name: "jobs are headed for".into(),
        style: run.flows.len() % COLOURS.len(),
        points: jobs.points.iter().map(|point| (point.t_s, point.expected)).collect(),
    }));
    // Four times the loosest goal: what is worse than that is off the chart, and the table says how much.
    let cap = goals.iter().map(|goal| goal.0).fold(0.0, f64::max) * 4.0;
    let charts = [
        ("Response time against its goal, ms", lines(&|p| p.response_ms), goals, (cap > 0.0).then_some(cap)),
        ("Utility (0 is exactly at the goal)", utilities, vec![(0.0, "goal".into(), 0)], Some(3.0)),
        ("Requests per second that came in", lines(&|p| Some(p.arrival_per_s)), vec![], None),
        ("Requests per second that were answered", lines(&|p| Some(p.throughput_per_s)), vec![], None),
        ("Seats in force", lines(&|p| Some(p.seats)), vec![], None),
        ("Requests outstanding", lines(&|p| Some(p.in_service)), vec![], None),
        ("Requests waiting", lines(&|p| Some(p.queue)), vec![], None),
    ];
    let chart = |(title, lines, limits, cap)| {
        shown(&Chart { title, duration_s: run.duration_s, lines, limits, marks: marks.clone(), stacked: false, cap })
    };
    html! {
        h2 { "Flows" }
        p.soft { "Dotted vertical lines are placement changes." }
        @for one in charts { (chart(one)) }
    }
}

fn node_charts(run: &Run) -> Markup {
    // An application keeps its colour on every node.
    let mut apps: Vec<&String> = run.nodes.iter().flat_map(|node| &node.apps).collect();
    apps.sort();
    apps.dedup();
    let chart = |node: &NodeSeries| {
        let line = |(i, app): (usize, &String)| Line {
            name: app.clone(),
            style: apps.iter().position(|known| *known == app).unwrap_or(0) % COLOURS.len(),
            points: node.points.iter().map(|point| (point.t_s, point.cpu.get(i).copied())).collect(),
        };
        shown(&Chart {
            title: &format!("CPU on {}, cores", node.name),
            duration_s: run.duration_s,
            lines: node.apps.iter().enumerate().map(line).collect(),
            limits: vec![(node.cpu_capacity, "capacity".into(), 0)],
            marks: vec![],
            stacked: true,
            cap: None,
        })
    };
    html! {
        h2 { "Nodes" }
        @for node in &run.nodes { (chart(node)) }
    }
}

fn jobs(run: &Run) -> Markup {
    let Some(jobs) = &run.jobs else { return Markup::default() };
    let all = jobs.summary(0.0, f64::INFINITY);
    let due = jobs.summary(0.0, run.duration_s);
    let utility = |utility: Option<f64>| utility.map_or("–".into(), |utility| format!("{utility:+.2}"));
    let numbers = [
        ("Came", all.came.to_string()),
        ("Done", all.done.to_string()),
        ("Due", due.due.to_string()),
        ("Of these on time", due.on_time.to_string()),
        ("Mean utility", utility(all.mean_utility)),
        ("Lowest", utility(all.lowest_utility)),
    ];
    type Count = fn(&JobPoint) -> u32;
    let counts: [(&str, Count); 3] = [("running", |p| p.running), ("suspended", |p| p.suspended), ("waiting", |p| p.waiting)];
    let line = |(style, (name, count)): (usize, (&str, Count))| Line {
        name: name.to_owned(),
        style,
        points: jobs.points.iter().map(|point| (point.t_s, Some(f64::from(count(point))))).collect(),
    };
    let placed = Chart {
        title: "Jobs placed",
        duration_s: run.duration_s,
        lines: counts.into_iter().enumerate().map(line).collect(),
        limits: vec![],
        marks: vec![],
        stacked: true,
        cap: None,
    };
    let ends = jobs.ends.iter().filter_map(|end| Some((end.finished_s?, end.utility)));
    let mut points: Points = ends.collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let utilities = Chart {
        title: "Utility of jobs at completion (0 is exactly at the goal)",
        duration_s: run.duration_s,
        lines: vec![Line { name: "jobs".into(), style: 0, points }],
        limits: vec![(0.0, "goal".into(), 0)],
        marks: vec![],
        stacked: false,
        cap: Some(3.0),
    };
    html! {
        h2 { "Jobs" }
        table {
            tr { @for (name, _) in &numbers { th.n { (name) } } }
            tr { @for (_, number) in &numbers { td.n { (number) } } }
        }
        @for chart in [placed, utilities] { (shown(&chart)) }
        @if !jobs.moments.is_empty() {
            table {
                tr { th.n { "At" } th { "Job" } th { "What became of it" } th { "Where" } }
                @for moment in jobs.moments.iter().take(MOST_MOMENTS) {
                    tr {
                        td.n { (format!("{:.0} s", moment.t_s)) }
                        td { (moment.job) }
                        td { (moment.step) }
                        td { (moment.nodes.join(", ")) }
                    }
                }
            }
        }
    }
}

/// A page with more of them is read by nobody.
const MOST_MOMENTS: usize = 200;

/// How many actions of each kind were taken until then.
fn actions(run: &Run) -> Markup {
    let mut kinds: BTreeMap<&str, Points> = BTreeMap::new();
    for change in run.changes.iter().filter(|change| change.placement) {
        let kind = change.text.split(' ').next().unwrap_or_default();
        let points = kinds.entry(kind).or_insert_with(|| vec![(0.0, Some(0.0))]);
        let before = points.last().and_then(|point| point.1).unwrap_or(0.0);
        // A step, not a slope.
        points.extend([(change.t_s, Some(before)), (change.t_s, Some(before + 1.0))]);
    }
    if kinds.is_empty() {
        return Markup::default();
    }
    let line = |(style, (kind, mut points)): (usize, (&str, Points))| {
        let last = points.last().and_then(|point| point.1);
        points.push((run.duration_s, last));
        Line { name: kind.to_owned(), style: style % COLOURS.len(), points }
    };
    let title = "Placement actions so far";
    let lines = kinds.into_iter().enumerate().map(line).collect();
    let chart = Chart { title, duration_s: run.duration_s, lines, limits: vec![], marks: vec![], stacked: false, cap: None };
    html! {
        h2 { "Actions" }
        (shown(&chart))
    }
}

fn changes(run: &Run) -> Markup {
    html! {
        h2 { "What changed, and why" }
        @if run.changes.is_empty() {
            p { "Nothing." }
        } @else {
            table {
                tr { th.n { "At" } th { "What and why" } }
                @for change in &run.changes {
                    tr { td.n { (format!("{:.1} s", change.t_s)) } td { (change.text) } }
                }
            }
        }
    }
}
