//! `weal logs`: who wrote what and when, also of instances and pools that are gone.

use std::process::{Child, Stdio};
use std::sync::mpsc::Receiver;

use serde_json::Value;

use crate::pool::{PATIENCE, Pool, text};
use crate::posts::posts;

/// Two instances that write lines, JSON and a line without an end, and more when they are asked to end.
const WRITER: &str = r#"[app.writer]
run = ["sh", "-c", '''
echo "$INSTANCE begins"
printf '{"level":"warn","msg":"slow","ms":7}\n'
printf 'a line without an end'
trap 'echo; echo goodbye; printf "last words"; exit 0' TERM
while :; do sleep 0.1; done
''']
health = { command = ["true"] }
memory = "32MiB"
instances = 2
"#;

fn logs(pool: &Pool, more: &[&str]) -> String {
    let output = pool.run(&[&["logs", "writer"], more].concat());
    assert!(output.status.success(), "{more:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn entries(pool: &Pool, more: &[&str]) -> Vec<Value> {
    let said = logs(pool, &[more, &["-o", "json"]].concat());
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn lines_of_all_instances_come_by_time_and_stay_when_instances_and_the_pool_are_gone() {
    let mut pool = Pool::new(WRITER);
    pool.up();
    let both = pool.eventually("both have written", || {
        let said = logs(&pool, &[]);
        (said.matches("begins").count() == 2 && said.matches("slow").count() == 2).then_some(said)
    });
    let line = both.lines().find(|line| line.ends_with("writer-1 | writer-1 begins")).expect(&both);
    assert!(
        line.as_bytes()[..23].iter().enumerate().all(|(at, byte)| byte.is_ascii_digit() || b"-:. ".contains(byte) && at > 3),
        "{line}"
    );
    assert!(both.contains("writer-2 | WARN slow ms=7\n"), "{both}");
    assert_eq!(logs(&pool, &["--instance", "writer-2", "--raw", "-n", "1"]), "{\"level\":\"warn\",\"msg\":\"slow\",\"ms\":7}\n");

    let follower = pool.command(&["logs", "writer", "--follow", "-n", "0", "--raw"]).stdout(Stdio::piped()).spawn().unwrap();
    let restarted = pool.run(&["restart", "writer"]);
    assert!(restarted.status.success(), "{}", text(&restarted.stderr));
    let after = pool.eventually("the first ones are gone and have said so", || {
        let after = entries(&pool, &[]);
        (after.iter().filter(|entry| entry["line"] == "last words").count() == 2).then_some(after)
    });
    let times: Vec<u64> = after.iter().map(|entry| entry["time"].as_u64().expect("each has a time")).collect();
    assert!(times.is_sorted(), "{times:?}");
    let of_first: Vec<&str> =
        after.iter().filter(|entry| entry["instance"] == "writer-1").filter_map(|entry| entry["line"].as_str()).collect();
    assert_eq!(
        of_first[2..],
        ["a line without an end", "goodbye", "last words"],
        "the end of a line that was never ended is added"
    );
    let slow = after.iter().find(|entry| entry["message"] == "slow").unwrap();
    assert_eq!((&slow["level"], &slow["fields"]["ms"]), (&"warn".into(), &7.into()));

    let first_end = after.iter().find(|entry| entry["line"] == "goodbye").unwrap()["time"].as_i64().unwrap();
    let since = jiff::Timestamp::from_millisecond(first_end / 1_000_000).unwrap().to_string();
    let later = entries(&pool, &["--since", &since]);
    assert!(later.len() < after.len() && later.iter().any(|entry| entry["line"] == "goodbye"), "{later:?}");
    assert!(later.iter().all(|entry| entry["time"].as_i64().unwrap() >= first_end / 1_000_000 * 1_000_000), "{later:?}");
    assert_eq!(logs(&pool, &["--since", "0s"]), "", "nothing since now");

    let down = pool.run(&["down"]);
    assert!(down.status.success(), "{}", text(&down.stderr));
    let followed = followed(follower, &pool);
    assert!(followed.contains("goodbye\nlast words\n"), "{followed}");
    let kept = entries(&pool, &[]);
    assert_eq!(kept.iter().filter(|entry| entry["line"] == "last words").count(), 4, "the end of the pool too: {kept:?}");
    let strange = pool.run(&["logs", "nobody"]);
    assert_eq!(strange.status.code(), Some(4), "no pool runs, and nothing is kept of it: {}", text(&strange.stderr));
}

/// What a follower wrote, once it has ended with the pool.
fn followed(mut follower: Child, pool: &Pool) -> String {
    pool.eventually("the follower's end", || follower.try_wait().unwrap());
    text(&follower.wait_with_output().unwrap().stdout)
}

#[test]
fn a_jobs_lines_are_read_like_those_of_an_application() {
    let mut pool = Pool::echo();
    pool.up();
    let output = pool.run(&["submit", "--done-by", "10m", "--wait", "--name", "sum", "--", "sh", "-c", "echo one; printf two"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&pool.run(&["logs", "sum-1"]).stdout);
    let lines: Vec<&str> = said.lines().filter_map(|line| line.split(" | ").nth(1)).collect();
    assert_eq!(lines, ["one", "two"], "{said}");
    assert_eq!(text(&pool.run(&["logs", "sum-1", "--raw", "--follow"]).stdout), "one\ntwo\n", "following ends with the job");
}

/// Instance and message of each record that was posted until one of them says `last`.
fn records(posted: &Receiver<Value>, last: &str) -> Vec<(String, String)> {
    let mut records = Vec::new();
    while !records.iter().any(|(_, message): &(String, String)| message == last) {
        let body = posted.recv_timeout(*PATIENCE).unwrap_or_else(|_| panic!("no `{last}` after {records:?}"));
        for resource in body["resourceLogs"].as_array().unwrap() {
            let attributes = resource["resource"]["attributes"].as_array().unwrap();
            let id = attributes.iter().find(|one| one["key"] == "service.instance.id").unwrap()["value"]["stringValue"].clone();
            let of =
                |record: &Value| (id.as_str().unwrap().to_owned(), record["body"]["stringValue"].as_str().unwrap().to_owned());
            records.extend(resource["scopeLogs"][0]["logRecords"].as_array().unwrap().iter().map(of));
        }
    }
    records
}

#[test]
fn a_collector_gets_every_line_once_also_the_last_words_and_those_of_jobs() {
    let (port, posted) = posts("/v1/logs");
    let one = WRITER.replace("instances = 2", "instances = 1");
    let mut pool = Pool::new(&one);
    let with = std::fs::read_to_string(pool.config()).unwrap();
    let with = with.replace("[pool]\n", &format!("[pool]\nlogs-to = \"http://127.0.0.1:{port}\"\n"));
    pool.write_text(&with);
    pool.up();
    let mut all = records(&posted, "slow");
    let restarted = pool.run(&["restart", "writer"]);
    assert!(restarted.status.success(), "{}", text(&restarted.stderr));
    let job = pool.run(&["submit", "--done-by", "10m", "--wait", "--name", "sum", "--", "sh", "-c", "echo summed"]);
    assert!(job.status.success(), "{}", text(&job.stderr));
    // Both come, in whichever order.
    all.extend(records(&posted, "last words"));
    if !all.iter().any(|(_, message)| message == "summed") {
        all.extend(records(&posted, "summed"));
    }
    if !all.iter().any(|(instance, message)| instance == "writer-2" && message == "slow") {
        all.extend(records(&posted, "slow"));
    }
    let of = |wanted: &str| -> Vec<&str> {
        all.iter().filter(|(instance, _)| instance == wanted).map(|(_, message)| message.as_str()).collect()
    };
    assert_eq!(of("writer-1"), ["writer-1 begins", "slow", "a line without an end", "goodbye", "last words"]);
    assert_eq!(of("writer-2")[..2], ["writer-2 begins", "slow"]);
    assert_eq!(of("job.sum-1.1"), ["summed"]);
    assert!(pool.printed().contains("logs-to: ") && pool.printed().contains("lines are taken again"), "{}", pool.printed());
}
