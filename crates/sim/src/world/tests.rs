use super::*;

fn scenario(rest: &str) -> Scenario {
    let text = format!("intent = \"A test.\"\n{rest}");
    Scenario::parse(&text, |name| Err(format!("no file `{name}`"))).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// A node with one core and one instance with 10 ms per request.
fn one_node(head: &str, load: &str) -> Scenario {
    scenario(&format!(
        "{head}\n[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n[class.gold]\ngoal = \"mean < 100ms\"\n\
         [app.shop]\nmemory = \"300MiB\"\nwork = \"10ms\"\ninitially = [\"n1\"]\n[[load]]\napp = \"shop\"\nclass = \"gold\"\n{load}\n"
    ))
}

fn run(scenario: &Scenario) -> Simulated {
    simulate(scenario, &mut |_| {}).unwrap()
}

#[test]
fn an_open_queue_without_control_waits_as_theory_says() {
    // M/M/1 with processor sharing: R = S / (1 - rho) = 10 ms / (1 - 0.5).
    let simulated = run(&one_node("duration = \"200s\"\n[pool]\ncontrol = false", "rate = \"50/s\""));
    let summary = simulated.run.flows[0].summary;
    assert!((summary.mean_ms - 20.0).abs() < 2.0, "{summary:?}");
    assert!(summary.sent > 9_500 && summary.sent - summary.answered < 30, "{summary:?}");
}

#[test]
fn a_closed_queue_reaches_the_throughput_that_theory_says() {
    // Saturated: 100 requests per second; by Little's law R = N / lambda - Z = 40 / 100 - 0.2.
    let simulated = run(&one_node("duration = \"200s\"", "sessions = 40\nthink = \"200ms\""));
    let summary = simulated.run.flows[0].summary;
    assert!((summary.answered as f64 / 200.0 - 100.0).abs() < 3.0, "{summary:?}");
    assert!((summary.mean_ms - 200.0).abs() < 15.0, "{summary:?}");
    assert!(simulated.findings.is_empty(), "{:?}", simulated.findings);
}

#[test]
fn equal_scenarios_give_equal_runs() {
    let once = || run(&one_node("duration = \"20s\"", "rate = \"80/s\"")).run;
    assert_eq!(once(), once());
}

#[test]
fn a_scenario_for_real_processes_needs_its_pool() {
    let only_real = scenario("duration = \"1s\"\nconfig = \"weal.toml\"");
    assert_eq!(simulate(&only_real, &mut |_| {}).unwrap_err(), NothingToSimulate);
}

/// Every file under `scenarios/simulated` has what it expects; those with bad measurements bound the number of placement changes.
#[test]
fn the_simulated_scenarios_come_out_as_expected() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/simulated");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let scenario = Scenario::parse(&text, |name| Err(format!("no file `{name}`"))).unwrap();
        let simulated = run(&scenario);
        let missed: Vec<_> = simulated.run.checks.iter().filter(|check| !check.met).collect();
        assert!(missed.is_empty() && !simulated.run.checks.is_empty(), "{}: {missed:?}", file.display());
        assert!(simulated.findings.is_empty(), "{}: {:?}", file.display(), simulated.findings);
    }
}

#[test]
fn a_call_to_another_application_uses_that_ones_cpu_and_takes_its_time() {
    let scenario = scenario(
        "duration = \"100s\"\n[simulation]\nlatency = \"1ms\"\n[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n\
         [[node]]\nname = \"n2\"\ncpu = 1.0\nmemory = \"1GiB\"\n[class.gold]\ngoal = \"mean < 100ms\"\n\
         [app.web]\nmemory = \"300MiB\"\nwork = \"4ms\"\nspread = \"constant\"\ndelay = \"7ms\"\nneeds = [\"db\"]\nnodes = [\"n1\"]\n\
         [app.db]\nmemory = \"300MiB\"\nwork = \"3ms\"\nspread = \"constant\"\nnodes = [\"n2\"]\n\
         [[simulate]]\napp = \"web\"\ncalls = [{ app = \"db\", count = 2 }]\n\
         [[load]]\napp = \"web\"\nclass = \"gold\"\nsessions = 1\nthink = \"100ms\"\n",
    );
    let simulated = run(&scenario);
    let mean_ms = simulated.run.flows[0].summary.mean_ms;
    // Its own way and work, and two calls with theirs: 2 + 4 + 7 + 2 * (2 + 3).
    assert!((mean_ms - 23.0).abs() < 0.3, "{mean_ms}");
    let throughput = simulated.run.flows[0].summary.answered as f64 / 100.0;
    let used = simulated.run.nodes[1].points.iter().map(|point| point.cpu_used).sum::<f64>() / 100.0;
    assert!((used - throughput * 0.006).abs() < 0.002, "{used} cores at {throughput} requests/s");
    assert!(simulated.findings.is_empty(), "{:?}", simulated.findings);
}

#[test]
fn a_start_takes_longer_on_a_busy_node() {
    let started_at = |load: &str| {
        let scenario = scenario(&format!(
            "duration = \"120s\"\n[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n[class.gold]\ngoal = \"mean < 100ms\"\n\
             [app.shop]\nmemory = \"100MiB\"\nwork = \"10ms\"\n[app.late]\nmemory = \"100MiB\"\nwork = \"10ms\"\n\
             [[simulate]]\napp = \"late\"\nstart = \"4s\"\nstart-work = \"3s\"\n\
             [[load]]\napp = \"late\"\nclass = \"gold\"\nrate = \"1/s\"\n\
             [[load]]\napp = \"shop\"\nclass = \"gold\"\n{load}\n\
             [[fault]]\nkind = \"instance-down\"\napp = \"late\"\nat = \"10s\"\n"
        ));
        let ready = &run(&scenario).run.apps[0].ready;
        ready.iter().find(|&&(t_s, ready)| t_s > 12.0 && ready == 1).unwrap().0
    };
    let (calm_s, busy_s) = (started_at("rate = \"1/s\""), started_at("sessions = 20"));
    assert!((15.0..=16.5).contains(&calm_s), "a second of pause and four to start: {calm_s}");
    assert!(busy_s >= calm_s + 1.0, "{busy_s}");
}
