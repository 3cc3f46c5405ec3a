//! What a person sees who presses keys, on a terminal of a test.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{Event as Input, KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};
use weal_model::{Event, JobStatus, Status, Utility, Why};
use weal_protocol::controller::LogLine;

use super::draw::{bar, utility_bar};
use super::pages::{Detail, Wanted};
use super::screen::draw;
use super::state::{Look, Top};

#[test]
fn a_missed_goal_points_left_and_a_met_one_right() {
    assert_eq!(utility_bar(Some(Utility(-0.5))).0, "  ███|     ");
    assert_eq!(utility_bar(Some(Utility(0.2))).0, "     |█    ");
    assert_eq!(utility_bar(None).0, "     |     ");
}

#[test]
fn a_bar_is_never_longer_than_its_place() {
    assert_eq!(bar(7.0, 4), "████");
    assert_eq!(bar(0.5, 4), "██░░");
}

#[test]
fn the_screen_says_who_is_worst_off_and_shows_every_part_and_what_to_press() {
    let mut top = shown(status(2));
    let whole = screen(&mut top, 100, 30);
    assert!(whole.starts_with("demo "), "{whole}");
    assert!(whole.lines().next().unwrap().contains("worst off: app1/gold at -0.50"), "{whole}");
    for part in
        ["nodes", "applications", "flows", "events", "n1 (down)", "0.25 of 1.00", "mean < 250ms", "0 of 1..4", "app0-1 crashed"]
    {
        assert!(whole.contains(part), "{part} in\n{whole}");
    }
    assert_eq!(last_line(&whole), "↑↓ select  enter open  tab next part  s sort  r reverse  ? help  q quit");
    top.handle_problem("the controller broke off".into());
    assert!(screen(&mut top, 100, 30).lines().next().unwrap().contains("the controller broke off"));
    top.handle_look(look(status(2)));
    assert!(!screen(&mut top, 100, 30).contains("broke off"), "it answers again");
}

#[test]
fn what_fails_and_what_is_worst_off_stands_first_until_another_order_is_chosen() {
    let mut status = status(3);
    status.apps[0].state = weal_model::AppState::Failed;
    let mut top = shown(status);
    let order = |top: &mut Top| names(&screen(top, 120, 40), "applications", "app");
    assert_eq!(order(&mut top), ["app0", "app2", "app1"], "one fails, the others by utility");
    assert!(screen(&mut top, 120, 40).contains("applications, worst first"));
    press(&mut top, KeyCode::Char('s'));
    assert_eq!(order(&mut top), ["app0", "app1", "app2"]);
    press(&mut top, KeyCode::Char('r'));
    assert!(screen(&mut top, 120, 40).contains("applications, by name, reversed"));
    assert_eq!(order(&mut top), ["app2", "app1", "app0"]);
    press(&mut top, KeyCode::Char('s'));
    assert!(screen(&mut top, 120, 40).contains("applications, by CPU"));
    assert_eq!(order(&mut top), ["app2", "app1", "app0"], "each uses more than the one before");
    (0..2).for_each(|_| press(&mut top, KeyCode::Char('s')));
    assert!(screen(&mut top, 120, 40).contains("applications, worst first"), "the first order again");
}

#[test]
fn the_selected_row_stays_selected_when_its_place_changes() {
    let mut top = shown(status(3));
    press(&mut top, KeyCode::Char('s'));
    press(&mut top, KeyCode::Down);
    assert_eq!(opened(&mut top), "app1");
    let mut other = status(3);
    other.apps.remove(0);
    top.handle_look(look(other));
    press(&mut top, KeyCode::Char('r'));
    assert_eq!(opened(&mut top), "app1");
    let mut gone = status(3);
    gone.apps.truncate(1);
    top.handle_look(look(gone));
    assert_eq!(opened(&mut top), "app0", "the first, where the selected one is gone");
}

#[test]
fn an_application_has_a_page_with_why_its_instances_and_what_they_wrote() {
    let mut top = shown(status(2));
    press(&mut top, KeyCode::Enter);
    assert!(top.asks_at_once());
    assert_eq!(top.wanted(), Wanted::App { app: "app1".into(), instance: None });
    assert!(screen(&mut top, 120, 40).contains("asked for"), "nothing is known yet");
    top.handle_look(Look { detail: Some(told("app1")), ..look(status(2)) });
    assert!(!top.asks_at_once());
    let page = screen(&mut top, 120, 40);
    for part in [
        "app1 ready",
        "utility -0.50",
        "app1 is over its goal because n1 is full.",
        "app1-1",
        "app1-2",
        "unhealthy",
        "512MiB",
        "logs of all instances",
        "app1-2 WARN slow query ms=912",
        "app1-1 \\x1b[2Jplain",
        "started 3 times again; it does not answer",
    ] {
        assert!(page.contains(part), "{part} in\n{page}");
    }
    assert_eq!(last_line(&page), "↑↓ select  enter its log  l logs  w why  e events  esc back  ? help  q quit");
    top.handle_look(Look { detail: Some(told("app0")), ..look(status(2)) });
    assert!(screen(&mut top, 120, 40).contains("app1 is over its goal"), "an answer about another one is late");
}

#[test]
fn the_log_of_one_instance_is_asked_for_and_left_again() {
    let mut top = shown(status(2));
    press(&mut top, KeyCode::Enter);
    top.handle_look(Look { detail: Some(told("app1")), ..look(status(2)) });
    press(&mut top, KeyCode::Down);
    press(&mut top, KeyCode::Enter);
    assert!(top.asks_at_once());
    assert_eq!(top.wanted(), Wanted::App { app: "app1".into(), instance: Some("app1-2".into()) });
    assert!(screen(&mut top, 120, 40).contains("logs of app1-2"));
    press(&mut top, KeyCode::Char('a'));
    assert_eq!(top.wanted(), Wanted::App { app: "app1".into(), instance: None });
    press(&mut top, KeyCode::Esc);
    assert!(screen(&mut top, 120, 40).contains("instances"), "back to the page");
    press(&mut top, KeyCode::Esc);
    assert_eq!(top.wanted(), Wanted::Nothing);
    assert!(screen(&mut top, 120, 40).contains("applications"), "back to all of them");
    assert!(!top.is_over());
    press(&mut top, KeyCode::Esc);
    assert!(top.is_over());
}

#[test]
fn a_long_log_is_read_back_from_its_end_and_why_from_its_beginning() {
    let mut top = shown(status(2));
    press(&mut top, KeyCode::Enter);
    let Detail::App { mut why, .. } = told("app1") else { unreachable!() };
    why.sentences = (0..100).map(|number| format!("reason {number}.")).collect();
    let lines = (0..300).map(|number| line("app1-1", &format!("line {number}."))).collect();
    top.handle_look(Look { detail: Some(Detail::App { why, lines }), ..look(status(2)) });
    press(&mut top, KeyCode::Char('l'));
    let end = screen(&mut top, 80, 24);
    assert!(end.contains("line 299.") && end.contains("line 280.") && !end.contains("instances,"), "{end}");
    press(&mut top, KeyCode::PageUp);
    let back = screen(&mut top, 80, 24);
    assert!(back.contains("line 289.") && !back.contains("line 290."), "{back}");
    press(&mut top, KeyCode::Home);
    assert!(screen(&mut top, 80, 24).contains("line 0."), "the oldest line that is known");
    press(&mut top, KeyCode::Down);
    let further = screen(&mut top, 80, 24);
    assert!(further.contains("line 20.") && !further.contains("line 0."), "one key moves it from its end: {further}");
    press(&mut top, KeyCode::End);
    assert!(screen(&mut top, 80, 24).contains("line 299."));
    press(&mut top, KeyCode::Char('w'));
    assert!(screen(&mut top, 80, 24).contains("- reason 0."));
    (0..5).for_each(|_| press(&mut top, KeyCode::Down));
    let moved = screen(&mut top, 80, 24);
    assert!(moved.contains("- reason 5.") && !moved.contains("- reason 4."), "{moved}");
    press(&mut top, KeyCode::Char('e'));
    let events = screen(&mut top, 80, 24);
    assert!(
        events.contains("events of app1") && events.contains("app1-1 crashed") && !events.contains("app0-1 crashed"),
        "{events}"
    );
}

#[test]
fn a_node_has_a_page_with_what_runs_there() {
    let mut top = shown(status(2));
    press(&mut top, KeyCode::BackTab);
    assert_eq!(last_line(&screen(&mut top, 100, 30)).split("  ").next(), Some("↑↓ select"));
    press(&mut top, KeyCode::Enter);
    let page = screen(&mut top, 120, 40);
    for part in ["node", "n0", "2 instances there", "app0-1", "app1-1"] {
        assert!(page.contains(part), "{part} in\n{page}");
    }
    assert!(!page.contains("app1-2") && top.wanted() == Wanted::Nothing, "{page}");
}

#[test]
fn the_page_of_a_flow_is_that_of_its_application() {
    let mut top = shown(status(2));
    press(&mut top, KeyCode::Tab);
    press(&mut top, KeyCode::End);
    press(&mut top, KeyCode::Enter);
    assert_eq!(top.wanted(), Wanted::App { app: "app0".into(), instance: None }, "the best off stands last");
}

#[test]
fn the_help_names_every_key_and_goes_with_any() {
    let mut top = shown(status(2));
    press(&mut top, KeyCode::Char('?'));
    let help = screen(&mut top, 80, 24);
    for part in ["keys", "tab", "the next order of this part", "what its instances wrote"] {
        assert!(help.contains(part), "{part} in\n{help}");
    }
    press(&mut top, KeyCode::Enter);
    assert_eq!(top.wanted(), Wanted::Nothing, "the key that ended the help did nothing else");
    assert!(!screen(&mut top, 80, 24).contains("the next order of this part"));
}

#[test]
fn jobs_are_shown_with_what_they_take_from_applications() {
    assert!(!screen(&mut with_jobs(0), 120, 40).contains("given to jobs"));
    let shown = screen(&mut with_jobs(1), 120, 40);
    for part in [
        "jobs: 0.75 CPU given to jobs, 1.00 to applications, of 2.00",
        "render-1",
        "running   n1",
        " 50%",
        "in 10m 0s",
        "in 3m 20s",
        "+0.66",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
}

#[test]
fn a_job_is_selected_stays_selected_and_has_a_page_of_its_own() {
    let mut top = with_jobs(40);
    press(&mut top, KeyCode::Tab);
    (0..30).for_each(|_| press(&mut top, KeyCode::Down));
    assert!(screen(&mut top, 120, 40).contains("render-31 "), "it scrolls along");
    let mut fewer = jobs_status(40);
    fewer.jobs.remove(0);
    top.handle_look(look(fewer));
    press(&mut top, KeyCode::Enter);
    assert_eq!(top.wanted(), Wanted::Job("render-31".into()));
    top.handle_look(look(jobs_status(0)));
    let page = screen(&mut top, 120, 40);
    for part in ["render-31 is running", "in 10m 0s", "50.0 s of about 100.0 s", "it has written nothing yet"] {
        assert!(page.contains(part), "{part} in\n{page}");
    }
    let output = vec!["frame 7".to_owned()];
    top.handle_look(Look { detail: Some(Detail::Job { job: Box::new(job(31)), output }), ..look(jobs_status(0)) });
    assert!(screen(&mut top, 120, 40).contains("frame 7"));
    press(&mut top, KeyCode::Esc);
    assert_eq!(top.wanted(), Wanted::Nothing);
    top.handle_look(look(jobs_status(0)));
    press(&mut top, KeyCode::Enter);
    assert!(matches!(top.wanted(), Wanted::App { .. }), "a part without rows keeps no key");
}

#[test]
fn arrows_scroll_within_a_part_and_q_ends() {
    let mut top = shown(status(30));
    press(&mut top, KeyCode::Tab);
    let flows = |top: &mut Top| names(&screen(top, 80, 24), "flows", "flow");
    assert_eq!(flows(&mut top)[0], "app29/gold");
    (0..99).for_each(|_| press(&mut top, KeyCode::Down));
    assert_eq!(flows(&mut top).last().map(String::as_str), Some("app0/gold"));
    (0..99).for_each(|_| press(&mut top, KeyCode::Up));
    assert_eq!(flows(&mut top)[0], "app29/gold");
    press(&mut top, KeyCode::Char('q'));
    assert!(top.is_over());
    let mut interrupted = shown(status(1));
    interrupted.handle_event(&Input::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(interrupted.is_over());
}

#[test]
fn the_smallest_screen_and_an_empty_pool_are_drawn_too() {
    let keys = [
        KeyCode::Enter,
        KeyCode::Char('l'),
        KeyCode::Char('w'),
        KeyCode::Char('e'),
        KeyCode::Esc,
        KeyCode::Esc,
        KeyCode::Char('?'),
    ];
    for (width, height) in [(1, 1), (20, 5), (300, 100)] {
        for apps in [0, 3] {
            for part in 0..3 {
                let mut top = shown(status(apps));
                (0..part).for_each(|_| press(&mut top, KeyCode::Tab));
                for key in keys {
                    press(&mut top, key);
                    screen(&mut top, width, height);
                }
            }
        }
    }
}

fn shown(status: Status) -> Top {
    let mut top = Top::default();
    top.handle_look(look(status));
    top
}

fn look(status: Status) -> Look {
    let event = |id: u64, app: &str| -> Event {
        serde_json::from_value(json!({
            "id": id, "time": 0, "severity": "warning", "kind": "instance", "app": app, "instance": format!("{app}-1"), "node": "n0",
            "text": format!("{app}-1 crashed")
        }))
        .unwrap()
    };
    Look { status, events: vec![event(1, "app0"), event(2, "app1")], detail: None }
}

/// What the pool tells of an application.
fn told(app: &str) -> Detail {
    let status = status(2).apps.into_iter().find(|one| one.name.as_str() == app).unwrap();
    let why = Why {
        app: app.into(),
        answer: vec![format!("{app} is over its goal because n1 is full.")],
        sentences: vec!["It uses all of its CPU.".to_owned()],
        status,
        flows: Vec::new(),
        events: Vec::new(),
        node: None,
        refused: Vec::new(),
    };
    let slow = r#"{"level":"warn","msg":"slow query","ms":912}"#;
    Detail::App { why: Box::new(why), lines: vec![line(&format!("{app}-2"), slow), line(&format!("{app}-1"), "\x1b[2Jplain")] }
}

fn line(instance: &str, line: &str) -> LogLine {
    LogLine { time: None, instance: instance.into(), line: line.to_owned() }
}

/// What the machine shows.
fn screen(top: &mut Top, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, top)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| line(y).trim_end().to_owned() + "\n").collect()
}

fn last_line(screen: &str) -> &str {
    screen.lines().last().unwrap()
}

/// The first words of the rows of the part with this title, which begin alike.
fn names(screen: &str, title: &str, heading: &str) -> Vec<String> {
    let lines = screen.lines().skip_while(|line| !line.contains(title)).skip(1);
    let rows = lines.skip_while(|line| line.starts_with(&format!("{heading} "))).take_while(|line| !line.contains('─'));
    rows.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

fn press(top: &mut Top, code: KeyCode) {
    top.handle_event(&Input::Key(KeyEvent::new(code, KeyModifiers::NONE)));
}

/// The application whose page the selected row opens, and back.
fn opened(top: &mut Top) -> String {
    press(top, KeyCode::Enter);
    let Wanted::App { app, .. } = top.wanted() else { panic!("it opens {:?}", top.wanted()) };
    press(top, KeyCode::Esc);
    app.to_string()
}

fn jobs_status(count: usize) -> Status {
    Status { jobs: (1..=count).map(job).collect(), ..status(2) }
}

fn with_jobs(count: usize) -> Top {
    shown(jobs_status(count))
}

fn job(number: usize) -> JobStatus {
    let job = json!({
        "id": format!("render-{number}"), "state": "running", "detail": "", "command": ["povray"], "class": null, "submitted": 0,
        "deadline": 600_000_000_000_u64, "expected_end": 200_000_000_000_u64, "utility": 0.66, "began": 0, "node": "n1", "attempt": 1,
        "cpu_used": 50.0, "work": 100.0, "work_source": "as submitted", "progress": 0.5, "cpu_allocated": 0.75, "cpus": 1.0,
        "memory_limit": 1_048_576, "memory_used": null, "end": null
    });
    serde_json::from_value(job).unwrap()
}

/// A pool of two nodes and so many applications, each with a flow that is worse off than the one before, and two instances.
fn status(apps: usize) -> Status {
    let all = |value: &dyn Fn(usize) -> Value, count: usize| (0..count).map(value).collect::<Vec<_>>();
    let latency = serde_json::to_value(weal_model::LatencySummary::default()).unwrap();
    let flow = |number: usize| {
        let id = weal_model::FlowId { gateway: "gw".into(), app: format!("app{number}").into(), class: "gold".into() };
        json!({
            "id": id, "app": id.app, "class": "gold", "goal": null, "goal_text": "mean < 250ms", "importance": weal_model::Importance::NORMAL,
            "achieved": null, "utility": Utility(0.5 - number as f64), "predicted_utility": null, "arrival_per_s": 7.0,
            "throughput_per_s": 7.0, "rejected_per_s": 0.0, "errors_per_s": 0.0, "response": latency, "service": latency,
            "queue_mean": 3.0, "in_service_mean": 1.0, "seats": 4, "weight": 1.0, "cpu_used": 0.2, "cpu_allocated": 0.5,
            "work_factors": [], "binding": { "limit": "satisfied" }
        })
    };
    let app = |number: usize| {
        json!({
            "name": format!("app{number}"), "state": "ready", "detail": "", "min": 1, "max": 4, "cpu_used": 0.2 + number as f64,
            "cpu_demand": 0.5, "cpu_allocated": 0.5, "utility": 0.5 - number as f64,
            "instances": [instance(number, 1, "starting", 0), instance(number, 2, "unhealthy", 3)]
        })
    };
    let node = |number: usize| {
        json!({
            "name": format!("n{number}"), "up": number == 0, "cpu_capacity": 1.0, "cpu_used": 0.25, "cpu_allocated": 0.5,
            "memory_capacity": 1_073_741_824, "memory_used": 1_048_576
        })
    };
    let whole = json!({
        "pool": "demo", "version": "0", "time": 0, "config_generation": 1, "config_error": null, "control": true, "listen": "", "api": "",
        "limits": [], "problems": [], "nodes": all(&node, 2), "apps": all(&app, apps), "flows": all(&flow, apps), "plan": null
    });
    serde_json::from_value(whole).unwrap()
}

fn instance(app: usize, number: usize, state: &str, restarts: u32) -> Value {
    let id = weal_model::naming::instance_id(&format!("app{app}").into(), number as u64);
    json!({
        "id": id, "node": format!("n{}", number - 1), "state": state, "pid": 7, "address": "127.0.0.1:4000",
        "detail": if restarts > 0 { "it does not answer" } else { "" }, "cpu_used": 0.1, "cpu_allocated": 0.2, "memory_used": 536_870_912,
        "in_flight": 2, "restarts": restarts, "since": 0
    })
}
