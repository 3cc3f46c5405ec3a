use super::*;

fn scenario(rest: &str) -> Scenario {
    let text = format!("intent = \"A test.\"\n{rest}");
    Scenario::parse(&text, weal_scenario::no_files).unwrap_or_else(|error| panic!("{error}\n{text}"))
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
fn another_chance_changes_the_machine_and_not_the_load() {
    let with = |chance: u64| {
        let head = format!("duration = \"40s\"\n[simulation]\nslices-of = 2\nchance = {chance}");
        run(&one_node(&head, "rate = \"80/s\"")).run.flows[0].summary
    };
    let (once, again, other) = (with(1), with(1), with(2));
    assert_eq!(once, again);
    assert_eq!(once.sent, other.sent);
    assert_ne!(once.mean_ms, other.mean_ms);
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
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|kind| kind == "toml")).collect();
    files.sort();
    assert!(files.len() >= 9, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}"));
        let scenario = Scenario::parse(&text, read).unwrap();
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

/// One node with one application, and a session that asks now and then.
fn alone(simulation: &str, simulate: &str, rest: &str) -> Simulated {
    run(&scenario(&format!(
        "duration = \"200s\"\n[simulation]\n{simulation}\n[[node]]\nname = \"n1\"\ncpu = 2.0\nmemory = \"4GiB\"\n[class.gold]\ngoal = \"mean < 500ms\"\n\
         [app.web]\nmemory = \"1024MiB\"\nwork = \"10ms\"\nspread = \"constant\"\n[[simulate]]\napp = \"web\"\n{simulate}\n\
         [[load]]\napp = \"web\"\nclass = \"gold\"\n{rest}\n"
    )))
}

#[test]
fn answers_share_their_nodes_link() {
    let mean_ms = |sessions: u32| {
        let simulated = alone(
            "bandwidth = \"100Mbit/s\"\nlatency = \"1ms\"",
            "response = \"1024KiB\"",
            &format!("sessions = {sessions}\nthink = \"0s\""),
        );
        assert!(simulated.findings.is_empty(), "{:?}", simulated.findings);
        let summary = &simulated.run.flows[0].summary;
        (summary.mean_ms, summary.answered as f64 / 200.0)
    };
    let send_ms = 1024.0 * 1024.0 / 12.5e6 * 1e3;
    let (one, _) = mean_ms(1);
    assert!((one - (2.0 + 10.0 + send_ms)).abs() < 0.5, "{one}");
    // Eight at a time use up the link, whatever the CPU could do; seats leave it idle now and then. Little's law gives the rest.
    let (eight, per_s) = mean_ms(8);
    let used = per_s * send_ms / 1e3;
    assert!((0.9..=1.0).contains(&used) && (eight * per_s / 1e3 - 8.0).abs() < 0.1, "{eight} ms, {per_s}/s");
}

#[test]
fn requests_calls_and_their_answers_leave_through_the_links_of_who_sends_them() {
    let mean_ms = |db_on: &str| {
        let scenario = scenario(&format!(
            "duration = \"100s\"\n[simulation]\nlatency = \"1ms\"\nbandwidth = \"8Mbit/s\"\n[[node]]\nname = \"n1\"\ncpu = 2.0\nmemory = \"1GiB\"\n\
             [[node]]\nname = \"n2\"\ncpu = 2.0\nmemory = \"1GiB\"\n[class.gold]\ngoal = \"mean < 500ms\"\n\
             [app.web]\nmemory = \"300MiB\"\nwork = \"4ms\"\nspread = \"constant\"\nneeds = [\"db\"]\nnodes = [\"n1\"]\n\
             [app.db]\nmemory = \"300MiB\"\nwork = \"3ms\"\nspread = \"constant\"\nnodes = [\"{db_on}\"]\n\
             [[simulate]]\napp = \"web\"\ncalls = [{{ app = \"db\", count = 2 }}]\nrequest = \"10KiB\"\nresponse = \"40KiB\"\n\
             [[simulate]]\napp = \"db\"\nrequest = \"2KiB\"\nresponse = \"20KiB\"\n\
             [[load]]\napp = \"web\"\nclass = \"gold\"\nsessions = 1\nthink = \"100ms\"\n"
        ));
        let simulated = run(&scenario);
        assert!(simulated.findings.is_empty(), "{:?}", simulated.findings);
        simulated.run.flows[0].summary.mean_ms
    };
    let kib_ms = 1.024;
    // The way, the request, the work, the answer, and two calls with theirs.
    let own_ms = 2.0 + 10.0 * kib_ms + 4.0 + 40.0 * kib_ms + 2.0 * (2.0 + 3.0);
    assert!((mean_ms("n2") - (own_ms + 2.0 * (2.0 + 20.0) * kib_ms)).abs() < 1.0, "{}", mean_ms("n2"));
    assert!((mean_ms("n1") - own_ms).abs() < 1.0, "what stays on a node passes no link: {}", mean_ms("n1"));
}

#[test]
fn idle_instances_begin_housekeeping() {
    let used = |simulate: &str| {
        let simulated = alone("", simulate, "rate = \"1/min\"");
        simulated.run.nodes[0].points.iter().map(|point| point.cpu_used).sum::<f64>() / 200.0
    };
    let (quiet, busy) = (used(""), used("housekeeping = { every = \"10s\", work = \"500ms\" }"));
    assert!((busy - quiet - 0.05).abs() < 0.004, "half a second every ten: {busy} and {quiet}");
}

/// A crowd comes to one of two applications that have room for one instance, so that instances go to sleep and are woken.
fn woken(simulate: &str) -> f64 {
    let text = format!(
        "duration = \"500s\"\n[[node]]\nname = \"n1\"\ncpu = 2.0\nmemory = \"1100MiB\"\n[class.gold]\ngoal = \"mean < 500ms\"\n\
         [app.web]\nmemory = \"1024MiB\"\nwork = \"10ms\"\ninstances = \"0..1\"\n\
         [[simulate]]\napp = \"web\"\n{simulate}\n\
         [[load]]\napp = \"web\"\nclass = \"gold\"\nrate = \"5/s\"\nsteps = [{{ at = \"50s\", rate = \"0/s\" }}, {{ at = \"450s\", rate = \"5/s\" }}]\n"
    );
    let simulated = run(&scenario(&text));
    assert!(simulated.findings.is_empty(), "{:?}", simulated.findings);
    let ready = &simulated.run.apps[0].ready;
    let asleep = ready.iter().any(|&(t_s, ready)| t_s > 60.0 && t_s < 450.0 && ready == 0);
    assert!(asleep, "it never slept: {:?}", simulated.run.changes);
    ready.iter().find(|&&(t_s, ready)| t_s > 450.0 && ready == 1).map_or(f64::INFINITY, |found| found.0) - 450.0
}

#[test]
fn waking_takes_the_page_in_and_by_table_5_1_the_whole_image() {
    let quick = woken("resume = \"100ms\"\npage-in = \"0s\"");
    let paged = woken("resume = \"100ms\"\npage-in = \"9s\"");
    let virtual_machine = woken("costs = \"carrera-5.1\"");
    assert!(quick < 3.0, "{quick}");
    assert!((paged - quick - 9.0).abs() <= 1.0, "{paged} and {quick}");
    // 1,024 MiB at 33.3 ms each; the time is read once a second.
    assert!((virtual_machine - quick - 34.1).abs() <= 1.1, "{virtual_machine} and {quick}");
}

#[test]
fn a_request_wakes_who_sleeps_without_a_controller_and_again_after_a_failure() {
    let after = |fault: &str| woken(&format!("resume = \"100ms\"\n[[fault]]\nat = \"440s\"\n{fault}"));
    let alone = after("for = \"40s\"\nkind = \"controller-down\"");
    let failed = after("for = \"15s\"\nkind = \"action-fails\"\namount = 1.0");
    // The first request comes at a random moment, and the time is read once a second. A wake is asked for again after a second at most.
    assert!(alone <= 2.0, "{alone}");
    assert!((5.0..=7.0).contains(&failed), "{failed}");
}

#[test]
fn a_gateway_that_comes_back_without_a_controller_serves_by_its_last_config() {
    let simulated = run(&one_node(
        "duration = \"100s\"\n[[fault]]\nkind = \"controller-down\"\nat = \"40s\"\nfor = \"60s\"\n\
         [[fault]]\nkind = \"gateway-down\"\nat = \"50s\"\nfor = \"1s\"",
        "rate = \"20/s\"",
    ));
    let summary = simulated.run.flows[0].summary;
    assert!(summary.answered + 40 > summary.sent && summary.sent > 1_800, "{summary:?}");
    assert!(simulated.findings.is_empty(), "{:?}", simulated.findings);
}

#[test]
fn an_instance_that_gets_ready_while_the_controller_is_away_takes_who_waits() {
    let simulated = run(&scenario(
        "duration = \"200s\"\n[[node]]\nname = \"n1\"\ncpu = 2.0\nmemory = \"1GiB\"\n[class.gold]\ngoal = \"mean < 500ms\"\n\
         [app.web]\nmemory = \"512MiB\"\nwork = \"10ms\"\ninstances = \"0..1\"\n[[simulate]]\napp = \"web\"\nstart = \"8s\"\n\
         [[load]]\napp = \"web\"\nclass = \"gold\"\nrate = \"5/s\"\nat = \"50s\"\n\
         [[fault]]\nkind = \"controller-down\"\nat = \"55s\"\nfor = \"145s\"\n",
    ));
    let summary = simulated.run.flows[0].summary;
    assert!(summary.answered + 5 > summary.sent && summary.sent > 650, "{summary:?} {:?}", simulated.run.changes);
    assert!(simulated.findings.is_empty(), "{:?}", simulated.findings);
}

#[test]
fn editing_one_application_leaves_the_others_as_they_were() {
    let shop = |blog: &str| {
        let simulated = run(&scenario(&format!(
            "duration = \"60s\"\n[pool]\ncontrol = false\n[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n\
             [[node]]\nname = \"n2\"\ncpu = 1.0\nmemory = \"1GiB\"\n[class.gold]\ngoal = \"mean < 100ms\"\n\
             [app.shop]\nmemory = \"300MiB\"\nwork = \"10ms\"\ninitially = [\"n1\"]\nnodes = [\"n1\"]\n\
             [app.blog]\nmemory = \"300MiB\"\nwork = \"20ms\"\ninitially = [\"n2\"]\nnodes = [\"n2\"]\n\
             [[load]]\napp = \"shop\"\nclass = \"gold\"\nsessions = 5\nthink = \"100ms\"\n[[load]]\napp = \"blog\"\nclass = \"gold\"\n{blog}\n"
        )));
        simulated.run.flows.into_iter().find(|flow| flow.name == "shop/gold").unwrap()
    };
    assert_eq!(shop("rate = \"5/s\""), shop("sessions = 3\nthink = \"1s\""));
}

/// Two nodes of two cores with an idle shop, and jobs.
fn with_jobs(head: &str, jobs: &str) -> Simulated {
    let simulated = run(&scenario(&format!(
        "{head}\n[[node]]\nname = \"n1\"\ncpu = 2.0\nmemory = \"1GiB\"\n[[node]]\nname = \"n2\"\ncpu = 2.0\nmemory = \"1GiB\"\n\
         [class.gold]\ngoal = \"mean < 100ms\"\n[app.shop]\nmemory = \"100MiB\"\nwork = \"10ms\"\ninitially = [\"n1\"]\n\
         [[load]]\napp = \"shop\"\nclass = \"gold\"\nrate = \"1/s\"\n{jobs}"
    )));
    assert_eq!(simulated.findings, Vec::<String>::new());
    simulated
}

#[test]
fn a_job_takes_its_start_and_its_work_and_a_gang_runs_as_a_whole() {
    let simulated = with_jobs(
        "duration = \"100s\"",
        "[[job]]\nname = \"one\"\nwork = \"30s\"\nmemory = \"100MiB\"\ngoal = \"90s\"\n\
         [[job]]\nname = \"gang\"\nwork = \"10s\"\ntasks = 2\nmemory = \"500MiB\"\ngoal = \"90s\"\nat = \"5s\"\n",
    );
    let ends = &simulated.run.jobs.as_ref().unwrap().ends;
    let took_s = |job: usize| ends[job].finished_s.unwrap() - ends[job].submitted_s;
    // A start takes half a second, and a plan comes within a second of an event.
    assert!((30.5..32.0).contains(&took_s(0)), "{ends:?}");
    assert!((10.5..12.0).contains(&took_s(1)), "{ends:?}");
    assert!((ends[0].utility.unwrap() - (90.0 - took_s(0)) / 90.0).abs() < 1e-9, "{ends:?}");
}

/// A build takes what it gets; requests that come seldom, and then in a crowd, are answered all the same as if it were not there.
#[test]
fn a_burst_goes_before_a_job_that_has_the_whole_node() {
    let simulated = run(&scenario(
        "duration = \"60s\"\n[[node]]\nname = \"n1\"\ncpu = 2.0\nmemory = \"1GiB\"\n\
         [class.gold]\ngoal = \"p95 < 50ms\"\n[app.site]\nmemory = \"64MiB\"\nwork = \"3ms\"\ninitially = [\"n1\"]\n\
         [[load]]\napp = \"site\"\nclass = \"gold\"\nrate = \"1/s\"\nsteps = [{ at = \"40s\", rate = \"100/s\" }]\n\
         [[job]]\nname = \"build\"\nat = \"5s\"\nwork = \"1000s\"\ncpu = 2.0\nmemory = \"100MiB\"\ngoal = \"10h\"\n",
    ));
    assert_eq!(simulated.findings, Vec::<String>::new());
    let points = &simulated.run.flows[0].points;
    let slowest = |from_s: f64, to_s: f64| {
        let within = points.iter().filter(|point| (from_s..to_s).contains(&point.t_s));
        within.filter_map(|point| point.p95_ms).fold(0.0, f64::max)
    };
    assert!(slowest(15.0, 40.0) < 10.0, "seldom: {} ms", slowest(15.0, 40.0));
    assert!(slowest(40.0, 60.0) < 25.0, "a crowd: {} ms", slowest(40.0, 60.0));
    let busy = simulated.run.nodes[0].points.iter().filter(|point| point.t_s > 10.0).all(|point| point.cpu_used > 1.9);
    assert!(busy, "the build has what is left");
}

#[test]
fn stages_follow_each_other() {
    let simulated = with_jobs(
        "duration = \"100s\"",
        "[[job]]\nname = \"staged\"\ngoal = \"90s\"\nstages = [{ work = \"10s\", memory = \"100MiB\" }, \
         { work = \"20s\", cpu = 2.0, memory = \"300MiB\" }, { work = \"5s\", cpu = 0.5, memory = \"50MiB\" }]\n",
    );
    let end = &simulated.run.jobs.as_ref().unwrap().ends[0];
    // 10 s at one core, 10 at two, 10 at half a one; the shop uses little of them, and a new speed comes with the next plan.
    assert!((30.5..34.0).contains(&end.finished_s.unwrap()), "{end:?}");
}

#[test]
fn a_job_begins_anew_when_its_node_dies() {
    let simulated = with_jobs(
        "duration = \"120s\"",
        "[[job]]\nname = \"one\"\nwork = \"40s\"\nmemory = \"100MiB\"\ngoal = \"110s\"\n\
         [[fault]]\nkind = \"node-down\"\nnode = \"n1\"\nat = \"20s\"\nfor = \"10s\"\n\
         [[fault]]\nkind = \"node-down\"\nnode = \"n2\"\nat = \"35s\"\nfor = \"10s\"\n",
    );
    let end = &simulated.run.jobs.as_ref().unwrap().ends[0];
    // Wherever it was, it was hit once at least, at 20 or at 35 s.
    let finished_s = end.finished_s.unwrap();
    assert!((60.0..78.0).contains(&finished_s), "{end:?}");
    assert!(simulated.run.changes.iter().any(|change| change.text.contains("begins anew")), "{:?}", simulated.run.changes);
}

/// Three equal jobs come while another has the only place.
#[test]
fn equal_jobs_are_done_in_the_order_in_which_they_come_and_those_of_higher_priority_first() {
    let ended = |priorities: [i32; 3]| {
        let needs = "work = \"10s\"\nmemory = \"600MiB\"\ngoal = \"200s\"";
        let job =
            |(name, priority): (&str, i32)| format!("[[job]]\nname = \"{name}\"\n{needs}\nat = \"5s\"\npriority = {priority}\n");
        let others: String = ["c", "b", "a"].into_iter().zip(priorities).map(job).collect();
        let jobs = format!("[[job]]\nname = \"first\"\n{needs}\n{others}");
        let simulated =
            run(&scenario(&format!("duration = \"100s\"\n[[node]]\nname = \"n1\"\ncpu = 1.0\nmemory = \"1GiB\"\n{jobs}")));
        assert_eq!(simulated.findings, Vec::<String>::new());
        let mut ends = simulated.run.jobs.unwrap().ends;
        ends.sort_by(|one, other| one.finished_s.unwrap().total_cmp(&other.finished_s.unwrap()));
        ends.into_iter().map(|end| end.name).collect::<Vec<_>>()
    };
    assert_eq!(ended([0, 0, 0]), ["first", "c", "b", "a"]);
    assert_eq!(ended([-1, 0, 3]), ["first", "a", "b", "c"]);
}

#[test]
fn jobs_have_what_a_shop_leaves_and_give_it_back_to_a_crowd() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/simulated/jobs-beside-a-shop.toml"))
        .unwrap();
    let simulated = run(&Scenario::parse(&text, weal_scenario::no_files).unwrap());
    assert_eq!(simulated.findings, Vec::<String>::new());
    let points = &simulated.run.jobs.as_ref().unwrap().points;
    let cpu = |from_s: f64, to_s: f64| {
        let span: Vec<f64> = points.iter().filter(|p| p.t_s >= from_s && p.t_s < to_s).map(|p| p.cpu).collect();
        span.iter().sum::<f64>() / span.len() as f64
    };
    assert!(cpu(60.0, 120.0) > 2.0 && cpu(150.0, 240.0) < 0.75 * cpu(60.0, 120.0), "{} {}", cpu(60.0, 120.0), cpu(150.0, 240.0));
}

/// Carrera 5.7.2, whose pool of two nodes is in a config that both have the same tables for.
#[test]
fn six_jobs_on_two_machines_come_and_go_in_the_order_of_the_thesis() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/carrera");
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).unwrap();
    let own = read("long-running.toml").replace("config = \"long-running.weal.toml\"\n", "");
    let scenario = Scenario::parse(&(own + &read("long-running.weal.toml")), weal_scenario::no_files).unwrap();
    let simulated = run(&scenario);
    let missed: Vec<_> = simulated.run.checks.iter().filter(|check| !check.met).collect();
    assert!(missed.is_empty() && simulated.run.checks.len() >= 4, "{missed:?} {:#?}", simulated.run.jobs);
    assert_eq!(simulated.findings, Vec::<String>::new());
    // In another order the expectation is missed.
    let mut other = scenario;
    other.expectations[0].order.reverse();
    assert!(!run(&other).run.checks[0].met);
}

/// Two fresh loops are fed what one was told in a run with sleep, wakes and a crashed instance.
#[test]
fn equal_inputs_give_a_loop_equal_effects() {
    let scenario = one_node(
        "duration = \"200s\"",
        "rate = \"60/s\"\nsteps = [{ at = \"50s\", rate = \"0/s\" }, { at = \"150s\", rate = \"60/s\" }]\n\
         [[fault]]\nkind = \"instance-down\"\napp = \"shop\"\nat = \"20s\"\nfor = \"1s\"",
    );
    let Decisions { start, begins, steps } = decisions(&scenario, &[]).unwrap();
    let recorded: Vec<String> =
        begins.iter().chain(steps.iter().flat_map(|step| &step.effects)).map(|effect| format!("{effect:?}")).collect();
    assert!(steps.len() > 500 && recorded.len() > 500, "{} inputs", steps.len());
    for _ in 0..2 {
        let mut cycle = weal_control::cycle::Cycle::new(weal_model::Time::ZERO, start.clone());
        let mut effects = Vec::new();
        let mut drain = |cycle: &mut weal_control::cycle::Cycle| {
            while let Some(effect) = cycle.poll_effect() {
                effects.push(format!("{effect:?}"));
            }
        };
        drain(&mut cycle);
        for step in &steps {
            cycle.handle(step.at, step.input.clone());
            drain(&mut cycle);
        }
        assert_eq!(effects.len(), recorded.len());
        let differs = effects.iter().zip(&recorded).find(|(replayed, recorded)| replayed != recorded);
        assert_eq!(differs, None);
    }
}

/// Crashes at 20, 40, 60 and 150 s; the last one after more than a minute in which it was ready.
#[test]
fn one_that_crashes_again_and_again_pauses_longer_each_time_until_it_recovers() {
    let crashes: String = [20, 40, 60, 150]
        .iter()
        .map(|at| format!("[[fault]]\nkind = \"instance-down\"\napp = \"shop\"\nat = \"{at}s\"\nfor = \"1s\"\n"))
        .collect();
    let scenario = one_node("duration = \"170s\"", &format!("rate = \"10/s\"\n{crashes}"));
    let steps = decisions(&scenario, &[]).unwrap().steps;
    let events = steps.iter().filter_map(|step| match &step.input {
        weal_control::cycle::Input::Events(events) => Some(events.clone()),
        _ => None,
    });
    let events: Vec<_> = events.flatten().collect();
    let pauses = events.windows(2).filter(|pair| pair[0].state == weal_model::InstanceState::Backoff);
    let pauses_s: Vec<f64> = pauses.map(|pair| pair[1].time.since(pair[0].time).as_secs_f64()).collect();
    assert_eq!(pauses_s, [0.5, 1.0, 2.0, 0.5]);
}

#[test]
fn who_sleeps_with_its_memory_is_parked_where_less_is_free_than_is_to_be() {
    use super::parts::instance::OperationKind;
    use weal_model::{Bytes, InstanceState, Rung};
    let scenario = one_node("duration = \"10s\"", "rate = \"0/s\"");
    let mut world = World::new(&scenario);
    world.bring_up();
    world.nodes[0].reserve = Bytes::mib(900);
    world.uphold_reserve(0);
    assert_eq!(world.instances[0].change(), None, "it is awake");
    world.set_state(0, InstanceState::Suspended);
    world.nodes[0].reserve = Bytes::mib(700);
    world.uphold_reserve(0);
    assert_eq!(world.instances[0].change(), None, "724 MiB are free");
    world.nodes[0].reserve = Bytes::mib(900);
    world.uphold_reserve(0);
    world.uphold_reserve(0);
    assert_eq!(world.instances[0].change(), Some(OperationKind::Sleep(Rung::Parked)));
    assert_eq!(world.nodes[0].parked_for_reserve, 1);
}
