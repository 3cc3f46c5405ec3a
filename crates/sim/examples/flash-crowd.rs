//! Two applications on nodes that have memory for one instance each; crowds come to one, then to the other, then to the first again. What
//! a Kubernetes-like autoscaler makes of it, weal with starts only, and weal with instances that sleep. Prints one JSON object a line;
//! `cargo xtask bench flash-crowd` shows them.

use weal_scenario::Scenario;
use weal_scenario::report::Run;
use weal_sim::world::simulate;

/// When crowds come, to whom.
const CROWDS: [(f64, &str); 3] = [(300.0, "shop"), (1200.0, "news"), (2100.0, "shop")];
const HOLDS_S: f64 = 300.0;

fn main() {
    for start_s in [10.0, 30.0, 90.0] {
        for (name, placement, resume_s) in
            [("autoscaler, starts", "autoscaler", start_s), ("weal, starts", "weal", start_s), ("weal, wakes", "weal", 0.25)]
        {
            let text = scenario(placement, start_s, resume_s);
            let scenario = Scenario::parse(&text, weal_scenario::no_files).expect("the scenario is sound");
            let simulated = simulate(&scenario, &mut |_| {}).expect("it has a pool");
            assert!(simulated.findings.is_empty(), "{:?}", simulated.findings);
            let missed = CROWDS.map(|(from_s, app)| missed_s(&simulated.run, app, from_s));
            let changes = simulated.run.changes.iter().filter(|change| change.placement).count();
            let rejected: u64 = simulated.run.flows.iter().map(|flow| flow.summary.rejected).sum();
            println!(
                "{{\"start_s\":{start_s},\"name\":\"{name}\",\"missed_s\":{missed:?},\"changes\":{changes},\"rejected\":{rejected}}}"
            );
        }
    }
}

fn scenario(placement: &str, start_s: f64, resume_s: f64) -> String {
    let node = |n: usize| format!("[[node]]\nname = \"n{n}\"\ncpu = 2.0\nmemory = \"1GiB\"\n\n");
    let app = |name: &str, node: &str| {
        let crowds: Vec<String> = CROWDS
            .iter()
            .filter(|crowd| crowd.1 == name)
            .map(|(at, _)| {
                format!("{{ at = \"{at}s\", extra = \"220/s\", rise = \"5s\", hold = \"{HOLDS_S}s\", fall = \"5s\" }}")
            })
            .collect();
        format!(
            "[app.{name}]\nmemory = \"700MiB\"\ninstances = \"1..3\"\nwork = \"20ms\"\nstart = \"{start_s}s\"\nresume = \"{resume_s}s\"\n\
             cpu = 2.0\ninitially = [\"{node}\"]\n\n[[simulate]]\napp = \"{name}\"\npage-in = \"{}s\"\n\n\
             [[load]]\napp = \"{name}\"\nclass = \"gold\"\nrate = \"30/s\"\nflash = [{}]\n\n",
            if resume_s < start_s { 0.5 } else { 0.0 },
            crowds.join(", ")
        )
    };
    format!(
        "intent = \"Crowds come to one application and then to another.\"\nduration = \"2700s\"\n[pool]\nplacement = \"{placement}\"\n\n\
         [class.gold]\ngoal = \"mean < 200ms\"\n\n{}{}{}",
        (1..=4).map(node).collect::<String>(),
        app("shop", "n1"),
        app("news", "n2")
    )
}

/// Seconds from a crowd's beginning until two minutes after its end in which its application missed its goal.
fn missed_s(run: &Run, app: &str, from_s: f64) -> f64 {
    let to_s = from_s + HOLDS_S + 120.0;
    let flow = run.flows.iter().find(|flow| flow.name == format!("{app}/gold")).expect("each application has a flow");
    let (mut missed_s, mut before_s) = (0.0, 0.0);
    for point in &flow.points {
        let within = point.t_s >= from_s && point.t_s < to_s;
        if within && point.utility.is_none_or(|utility| utility < 0.0) {
            missed_s += point.t_s - before_s;
        }
        before_s = point.t_s;
    }
    missed_s
}
