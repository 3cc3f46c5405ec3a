//! The page around the charts.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::chart::{COLOURS, Chart, Line, Points, escape};
use super::{Comparison, FlowPoint, FlowSeries, JobPoint, Run, Variant};

/// One self-contained page for a run.
pub fn page(run: &Run) -> String {
    let mut body = String::new();
    head(run, &mut body);
    checks(run, &mut body);
    summary(run, &mut body);
    flow_charts(run, &mut body);
    node_charts(run, &mut body);
    jobs(run, &mut body);
    actions(run, &mut body);
    changes(run, &mut body);
    let _ = write!(body, "<h2>Scenario</h2><pre>{}</pre>", escape(&run.scenario));
    document(&run.title, &body)
}

/// One self-contained page for several ways of running a scenario.
pub fn comparison_page(comparison: &Comparison) -> String {
    let Some(first) = comparison.first() else { return document("nothing was run", "<p>Nothing was run.</p>") };
    let mut body = String::new();
    let _ = write!(body, "<h1>{}</h1><p>{}</p><table>", escape(&first.title), escape(&first.intent));
    let (duration, names) = (format!("{:.0} s each", first.duration_s), comparison.variants.iter().map(|v| v.name.as_str()));
    let seeds: Vec<String> = comparison.variants[0].runs.iter().map(|run| run.seed.to_string()).collect();
    let facts = [
        ("Run on", first.kind.clone()),
        ("Machine", first.machine.clone()),
        ("Compared", names.collect::<Vec<_>>().join(", ")),
        ("Seeds", seeds.join(", ")),
        ("Duration", duration),
    ];
    for (name, value) in facts {
        let _ = write!(body, "<tr><th>{name}</th><td>{}</td></tr>", escape(&value));
    }
    body.push_str("</table>");
    let mut notes: Vec<&String> = comparison.variants.iter().flat_map(|v| &v.runs).flat_map(|run| &run.notes).collect();
    notes.sort();
    notes.dedup();
    for note in notes {
        let _ = write!(body, "<p><strong>Note:</strong> {}</p>", escape(note));
    }
    figures(comparison, &mut body);
    comparison_charts(comparison, first, &mut body);
    let _ = write!(body, "<h2>Scenario</h2><pre>{}</pre>", escape(&first.scenario));
    document(&first.title, &body)
}

fn figures(comparison: &Comparison, body: &mut String) {
    body.push_str("<h2>Side by side</h2><p class=\"soft\">Medians over the seeds, with the lowest and the highest.</p><div class=\"wide\"><table><tr><th>What</th><th>Expected</th>");
    for variant in &comparison.variants {
        let _ = write!(body, "<th class=\"n\">{}</th>", escape(&variant.name));
    }
    body.push_str("</tr>");
    for figure in comparison.figures() {
        let _ = write!(body, "<tr><td>{}</td><td>{}</td>", escape(&figure.what), escape(&figure.expected));
        for spread in &figure.spreads {
            let _ = write!(body, "<td class=\"n\">{}</td>", spread.map_or("–".into(), |spread| spread.to_string()));
        }
        body.push_str("</tr>");
    }
    body.push_str("</table></div>");
}

fn comparison_charts(comparison: &Comparison, first: &Run, body: &mut String) {
    type Value = fn(&FlowPoint) -> Option<f64>;
    let values: [(&str, Value); 6] = [
        ("response time against its goal, ms", |p| p.response_ms),
        ("utility (0 is exactly at the goal)", |p| p.utility),
        ("requests per second that came in", |p| Some(p.arrival_per_s)),
        ("requests per second that were answered", |p| Some(p.throughput_per_s)),
        ("requests outstanding", |p| Some(p.in_service)),
        ("requests waiting", |p| Some(p.queue)),
    ];
    body.push_str("<h2>Over time</h2><p class=\"soft\">Medians over the seeds, second by second.</p>");
    for flow in &first.flows {
        for (i, (what, value)) in values.iter().enumerate() {
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
            let title = format!("{}: {what}", flow.name);
            compared(comparison, first, &title, limits, cap, series, body);
        }
    }
    for node in &first.nodes {
        let series = |run: &Run| -> Points {
            let node = run.nodes.iter().find(|other| other.name == node.name);
            node.map_or(vec![], |node| node.points.iter().map(|point| (point.t_s, Some(point.cpu_used))).collect())
        };
        let limits = vec![(node.cpu_capacity, "capacity".into(), 0)];
        compared(comparison, first, &format!("CPU used on {}, cores", node.name), limits, None, series, body);
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
    body: &mut String,
) {
    let line = |(style, variant): (usize, &Variant)| Line {
        name: variant.name.clone(),
        style: style % COLOURS.len(),
        points: variant.median_of(first.duration_s, &series),
    };
    let lines = comparison.variants.iter().enumerate().map(line).collect();
    let chart = Chart { title, duration_s: first.duration_s, lines, limits, marks: vec![], stacked: false, cap };
    let _ = write!(body, "<h3>{}</h3>{}", escape(title), chart.to_svg());
}

fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{}</title><style>{}</style></head><body><main>\n{body}\n</main></body></html>\n",
        escape(title),
        style()
    )
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

fn head(run: &Run, body: &mut String) {
    let _ = write!(body, "<h1>{}</h1><p>{}</p><table>", escape(&run.title), escape(&run.intent));
    let seed = run.seed.to_string();
    let duration = format!("{:.0} s", run.duration_s);
    let facts =
        [("Run on", &run.kind), ("Control", &run.control), ("Machine", &run.machine), ("Seed", &seed), ("Duration", &duration)];
    for (name, value) in facts {
        let _ = write!(body, "<tr><th>{name}</th><td>{}</td></tr>", escape(value));
    }
    body.push_str("</table>");
    for note in &run.notes {
        let _ = write!(body, "<p><strong>Note:</strong> {}</p>", escape(note));
    }
}

fn checks(run: &Run, body: &mut String) {
    if run.checks.is_empty() {
        return;
    }
    body.push_str(
        "<h2>Expected and measured</h2><table><tr><th>What</th><th>Expected</th><th class=\"n\">Measured</th><th></th></tr>",
    );
    for check in &run.checks {
        let got = check.got.map_or("not measured".into(), |got| format!("{got:.3}"));
        let verdict = if check.met { "<td>met</td>" } else { "<td class=\"missed\">missed</td>" };
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{got}</td>{verdict}</tr>",
            escape(&check.what),
            escape(&check.expected)
        );
    }
    body.push_str("</table>");
}

fn summary(run: &Run, body: &mut String) {
    body.push_str(
        "<h2>As the clients saw it</h2><div class=\"wide\"><table><tr><th>Flow</th><th>Goal</th><th class=\"n\">Sent</th><th class=\"n\">Answered</th>\
         <th class=\"n\">Rejected</th><th class=\"n\">Failed</th><th class=\"n\">Mean</th><th class=\"n\">p95</th><th class=\"n\">p99</th><th class=\"n\">Within goal</th></tr>",
    );
    for flow in &run.flows {
        let s = &flow.summary;
        let within = s.within_goal.map_or("–".into(), |share| format!("{:.1}%", share * 100.0));
        let _ = write!(
            body,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{:.0} ms</td><td class=\"n\">{:.0} ms</td><td class=\"n\">{:.0} ms</td><td class=\"n\">{within}</td></tr>",
            escape(&flow.name),
            escape(&flow.goal),
            s.sent,
            s.answered,
            s.rejected,
            s.failed,
            s.mean_ms,
            s.p95_ms,
            s.p99_ms
        );
    }
    body.push_str("</table></div>");
}

fn flow_charts(run: &Run, body: &mut String) {
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
    // Four times the loosest goal: what is worse than that is off the chart, and the table says how much.
    let cap = goals.iter().map(|goal| goal.0).fold(0.0, f64::max) * 4.0;
    let charts = [
        ("Response time against its goal, ms", lines(&|p| p.response_ms), goals, (cap > 0.0).then_some(cap)),
        ("Utility (0 is exactly at the goal)", lines(&|p| p.utility), vec![(0.0, "goal".into(), 0)], Some(3.0)),
        ("Requests per second that came in", lines(&|p| Some(p.arrival_per_s)), vec![], None),
        ("Requests per second that were answered", lines(&|p| Some(p.throughput_per_s)), vec![], None),
        ("Seats in force", lines(&|p| Some(p.seats)), vec![], None),
        ("Requests outstanding", lines(&|p| Some(p.in_service)), vec![], None),
        ("Requests waiting", lines(&|p| Some(p.queue)), vec![], None),
    ];
    body.push_str("<h2>Flows</h2><p class=\"soft\">Dotted vertical lines are placement changes.</p>");
    for (title, lines, limits, cap) in charts {
        let chart = Chart { title, duration_s: run.duration_s, lines, limits, marks: marks.clone(), stacked: false, cap };
        let _ = write!(body, "<h3>{}</h3>{}", escape(title), chart.to_svg());
    }
}

fn node_charts(run: &Run, body: &mut String) {
    body.push_str("<h2>Nodes</h2>");
    // An application keeps its colour on every node.
    let mut apps: Vec<&String> = run.nodes.iter().flat_map(|node| &node.apps).collect();
    apps.sort();
    apps.dedup();
    for node in &run.nodes {
        let line = |(i, app): (usize, &String)| Line {
            name: app.clone(),
            style: apps.iter().position(|known| *known == app).unwrap_or(0) % COLOURS.len(),
            points: node.points.iter().map(|point| (point.t_s, point.cpu.get(i).copied())).collect(),
        };
        let title = format!("CPU on {}, cores", node.name);
        let chart = Chart {
            title: &title,
            duration_s: run.duration_s,
            lines: node.apps.iter().enumerate().map(line).collect(),
            limits: vec![(node.cpu_capacity, "capacity".into(), 0)],
            marks: vec![],
            stacked: true,
            cap: None,
        };
        let _ = write!(body, "<h3>{}</h3>{}", escape(&title), chart.to_svg());
    }
}

fn jobs(run: &Run, body: &mut String) {
    let Some(jobs) = &run.jobs else { return };
    let all = jobs.summary(0.0, f64::INFINITY);
    let due = jobs.summary(0.0, run.duration_s);
    let utility = |utility: Option<f64>| utility.map_or("–".into(), |utility| format!("{utility:+.2}"));
    let _ = write!(
        body,
        "<h2>Jobs</h2><table><tr><th class=\"n\">Came</th><th class=\"n\">Done</th><th class=\"n\">Due</th><th class=\"n\">Of these on time</th>\
         <th class=\"n\">Mean utility</th><th class=\"n\">Lowest</th></tr><tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr></table>",
        all.came,
        all.done,
        due.due,
        due.on_time,
        utility(all.mean_utility),
        utility(all.lowest_utility)
    );
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
    for chart in [placed, utilities] {
        let _ = write!(body, "<h3>{}</h3>{}", escape(chart.title), chart.to_svg());
    }
}

/// How many actions of each kind were taken until then.
fn actions(run: &Run, body: &mut String) {
    let mut kinds: BTreeMap<&str, Points> = BTreeMap::new();
    for change in run.changes.iter().filter(|change| change.placement) {
        let kind = change.text.split(' ').next().unwrap_or_default();
        let points = kinds.entry(kind).or_insert_with(|| vec![(0.0, Some(0.0))]);
        let before = points.last().and_then(|point| point.1).unwrap_or(0.0);
        // A step, not a slope.
        points.extend([(change.t_s, Some(before)), (change.t_s, Some(before + 1.0))]);
    }
    if kinds.is_empty() {
        return;
    }
    let line = |(style, (kind, mut points)): (usize, (&str, Points))| {
        let last = points.last().and_then(|point| point.1);
        points.push((run.duration_s, last));
        Line { name: kind.to_owned(), style: style % COLOURS.len(), points }
    };
    let title = "Placement actions so far";
    let lines = kinds.into_iter().enumerate().map(line).collect();
    let chart = Chart { title, duration_s: run.duration_s, lines, limits: vec![], marks: vec![], stacked: false, cap: None };
    let _ = write!(body, "<h2>Actions</h2><h3>{title}</h3>{}", chart.to_svg());
}

fn changes(run: &Run, body: &mut String) {
    body.push_str("<h2>What changed, and why</h2>");
    if run.changes.is_empty() {
        body.push_str("<p>Nothing.</p>");
        return;
    }
    body.push_str("<table><tr><th class=\"n\">At</th><th>What and why</th></tr>");
    for change in &run.changes {
        let _ = write!(body, "<tr><td class=\"n\">{:.1} s</td><td>{}</td></tr>", change.t_s, escape(&change.text));
    }
    body.push_str("</table>");
}
