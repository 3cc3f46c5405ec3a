//! A person's questions to a real pool: why is it slow, why is it not on that node, why was that request rejected?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;

use crate::load::get;
use crate::pool::{Pool, demo_program, text};

const POOL: &str = r#"
[[node]]
name = "n1"
cpu = 0.3
memory = "128MiB"

[[node]]
name = "n2"
cpu = 0.3
memory = "128MiB"

[class.gold]
goal = "mean < 50ms"

"#;

fn app(name: &str, more: &str) -> String {
    let program = demo_program("weal-demo-search");
    format!(
        "[app.{name}]\nrun = [\"{}\", \"--port\", \"$PORT\"]\nhealth = \"/healthz\"\nmemory = \"100MiB\"\n\
         routes = [{{ host = \"{name}.localhost\", class = \"gold\" }}]\n{more}\n",
        program.display()
    )
}

/// Clients that ask shop for work, and wait a little before they ask again.
struct Clients {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    fn start(port: u16, count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |stop: Arc<AtomicBool>| {
            move || {
                while !stop.load(Ordering::Relaxed) {
                    // Rejected or not: what becomes of it is not what is tested.
                    let _ = get(port, "shop.localhost", "/work?cpu_ms=20");
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        };
        let threads = (0..count).map(|_| std::thread::spawn(client(Arc::clone(&stop)))).collect();
        Self { stop, threads }
    }

    fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}

fn why(pool: &Pool, args: &[&str]) -> Value {
    pool.json(&[&["why"], args].concat())
}

fn said(value: &Value) -> String {
    let sentences = value["sentences"].as_array().unwrap();
    sentences.iter().map(|sentence| sentence.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn weal_why_answers_a_persons_questions_on_a_real_pool() {
    let shop = app("shop", "nodes = [\"n1\"]\nqueue-limit = 5\n");
    let search = app("search", "nodes = [\"n2\"]\ninstances = { min = 1, max = 1 }\n");
    let feed = app("feed", "nodes = [\"n1\", \"n2\"]\ninstances = { min = 0, max = 1 }\n");
    let mut pool = Pool::new(&format!("{POOL}{shop}{search}{feed}"));
    pool.start();
    pool.eventually("shop and search are ready", || {
        let status = pool.status()?;
        let ready =
            |name: &str| status["apps"].as_array().unwrap().iter().any(|app| app["name"] == name && app["state"] == "ready");
        (ready("shop") && ready("search")).then_some(())
    });

    let node = why(&pool, &["search", "--node", "n1"])["node"].clone();
    assert_eq!(node["verdict"], "forbidden", "{node}");
    assert!(said(&node).contains("only on n2"), "{node}");
    assert_eq!(why(&pool, &["search", "--node", "n2"])["node"]["verdict"], "there");
    assert_eq!(why(&pool, &["search", "--node", "n9"])["node"]["verdict"], "no-node");
    let memory = why(&pool, &["feed", "--node", "n1"])["node"].clone();
    assert_eq!(memory["verdict"], "memory", "shop fills it: {memory}");
    assert!(said(&memory).contains("shop holds 100MiB"), "{memory}");
    let printed = text(&pool.run(&["why", "search", "--node", "n1"]).stdout);
    assert!(printed.starts_with("- The config allows search only on n2"), "{printed}");

    let clients = Clients::start(pool.listen, 30);
    let slow = pool.eventually("shop misses its goal and it is said why", || {
        let slow = said(&why(&pool, &["shop"]));
        (slow.contains("misses its goal mean < 50ms") && slow.contains("CPU of n1") && slow.contains("more CPU on n1"))
            .then_some(slow)
    });
    assert!(slow.contains("shop uses 0."), "who has the CPU: {slow}");

    let rejected = pool.eventually("a request is rejected", || {
        let (status, answer) = get(pool.listen, "shop.localhost", "/work?cpu_ms=20").ok()?;
        (status == 503).then_some(answer)
    });
    clients.finish();
    let header = |name: &str| {
        let line = rejected.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name} in {rejected}"));
        line.trim().to_owned()
    };
    assert_eq!(header("x-weal-reason:"), "queue-full");
    let id = header("x-request-id:");
    let request = why(&pool, &["--request", &id]);
    assert_eq!(request["request"]["crowd"]["queue_limit"], 5, "{request}");
    assert!(said(&request).contains("the queue is full") && said(&request).contains("of at most 5"), "{request}");
    let list = why(&pool, &["shop", "--rejected"]);
    assert!(list["refused"].as_array().unwrap().iter().any(|one| one["id"] == id.as_str()), "{list}");
    let printed = text(&pool.run(&["why", "shop", "--rejected"]).stdout);
    assert!(printed.contains("queue-full (503)"), "{printed}");
    let unknown = pool.run(&["why", "--request", "nosuch"]);
    assert!(!unknown.status.success() && text(&unknown.stderr).contains("an instance answered it"), "{}", text(&unknown.stderr));
}
