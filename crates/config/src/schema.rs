//! The JSON Schema of `weal.toml`, for editors. docs/weal.schema.json is this, checked by a test; so are the tables of docs/config.md.
//!
//! It knows every key with its type, its default and what it is for. What no schema can say (names that must exist, cycles,
//! sizes that must fit) is for [`crate::parse`].

mod flows;
mod jobs;
mod manners;
mod notify;
mod parts;
mod pool;
mod process;

use serde_json::{Value, json};
use weal_model::{AppKind, Importance, Permit, ProxyVersion, SandboxSpec};

use crate::defaults;
use parts::{SPAN, argv, describe, quoted, size, span, table};
use weal_model::written::show_size;

const NAME: &str = "^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$";
const GOAL: &str = r"^\s*((mean|p[0-9.]+)\s*<=?\s*[0-9.]+\s*(us|µs|ms|s|m|min|h)|throughput\s*>=?\s*[0-9.]+\s*/\s*(s|min|h))\s*$";

/// The JSON Schema (draft 2020-12) of a config.
pub fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "weal.toml",
        "description": "A pool of machines and the applications that share it.",
        "type": "object",
        "additionalProperties": false,
        "required": ["app"],
        "properties": {
            "pool": table("The pool itself.", &[], pool::keys()),
            "node": {
                "description": "Slices of this machine. Without any, the machine is one node.",
                "type": "array",
                "items": table("One node.", &["name", "cpu", "memory"], node_keys()),
            },
            "class": named("Service classes: what is asked for a kind of request, and how much it matters.", table("One class.", &[], class_keys())),
            "tls": named("Certificates for https. A client gets the one that names the host it asks for.", table("One certificate: two files, or one that weal makes.", &[], pool::tls_keys())),
            "notify": {
                "description": "Who is told when something happens.",
                "type": "array",
                "items": table("One receiver: `url` or `run`.", &[], notify::keys()),
            },
            "job": named("Jobs that are submitted at their dates.", table("One schedule, and what it runs.", &["schedule", "run"], jobs::keys())),
            "app": named("The applications.", app()),
        },
    })
}

fn node_keys() -> Vec<(&'static str, Value)> {
    let limit = json!({ "type": "number", "minimum": 0.1, "maximum": 1 });
    vec![
        ("name", describe(json!({ "type": "string", "pattern": NAME }), "The node's name.", "")),
        ("cpu", describe(cpu(), "Its computing power, in cores.", "")),
        ("memory", describe(size(), "Its memory for instances.", "")),
        (
            "utilization-limit",
            describe(limit, "The share of its CPU that plans may fill.", &defaults::UTILIZATION_LIMIT.to_string()),
        ),
    ]
}

fn class_keys() -> Vec<(&'static str, Value)> {
    let words: Vec<&str> = Importance::WORDS.iter().map(|(word, _)| *word).collect();
    let importance = json!({ "anyOf": [{ "enum": words }, { "type": "number", "minimum": 0.001, "maximum": 1000 }] });
    let goal = json!({ "type": "string", "pattern": GOAL });
    let mut keys = vec![
        ("goal", describe(goal, "`p95 < 250ms`, `mean < 1200ms` or `throughput > 50/s`.", "none: best effort")),
        ("importance", describe(importance, "How much a miss matters: a word, or the weight of a miss.", "\"normal\"")),
    ];
    keys.extend(flows::class_keys());
    keys
}

/// An image may say what is run.
fn app() -> Value {
    let mut app = table("One application: a cluster of equal instances.", &[], app_keys());
    app["anyOf"] = json!([{ "required": ["run"] }, { "required": ["image"] }]);
    app
}

fn app_keys() -> Vec<(&'static str, Value)> {
    let mut keys = vec![
        (
            "run",
            describe(
                argv(),
                "Program and arguments. `$PORT`, `$DATA`, `$INSTANCE`, `$NODE`, `$NAME_ADDR` of needed applications and `env` are filled in; `$$` is a dollar sign. With `image`, what follows its entry point.",
                "with `image`, the command of the image",
            ),
        ),
        (
            "image",
            describe(
                json!({ "type": "string", "minLength": 1 }),
                "An image whose program is run, with its files in the place of the machine's: an archive (OCI or `docker save`) or a folder (OCI), relative to the config's folder.",
                "none",
            ),
        ),
        (
            "entrypoint",
            describe(
                json!({ "type": "array", "items": { "type": "string" } }),
                "What takes the place of the image's entry point. Then the image's own arguments do not follow it.",
                "the image's",
            ),
        ),
        (
            "kind",
            describe(
                json!({ "enum": AppKind::ALL.map(AppKind::as_str) }),
                "A `task` runs to its end once per deploy, such as a migration; it has no `health`, `instances` and `routes`.",
                "\"service\"",
            ),
        ),
        (
            "release",
            describe(
                argv(),
                "Run once per deploy before its new instances start, with its environment, folder and user.",
                "nothing",
            ),
        ),
        ("health", describe(health(), "How readiness and health are told: a path, or a table.", "a TCP connection to $PORT")),
        (
            "memory",
            describe(size(), "Memory per instance: what placement counts, and its limit.", &quoted(&show_size(defaults::MEMORY))),
        ),
        ("cpu", describe(cpu(), "The most cores that one instance can use.", "no limit but the node's")),
        (
            "instances",
            describe(
                instances(),
                "How many instances there may be: a number, or `{ min = 1, max = 4 }`.",
                &defaults::INSTANCES.to_string(),
            ),
        ),
        ("per-node", describe(count(1), "How many instances one node may hold.", "as many as `instances.max`")),
        (
            "routes",
            describe(
                json!({ "type": "array", "items": route() }),
                "Which requests it gets. Without any it is not reached from outside.",
                "none",
            ),
        ),
        (
            "needs",
            describe(
                json!({ "anyOf": [names(), { "type": "object", "additionalProperties": { "enum": ["ready", "done"] } }] }),
                "Applications that it calls: it starts when they are healthy, and gets NAME_ADDR, NAME_HOST and NAME_PORT. `{ db = \"ready\", migrate = \"done\" }` also waits for tasks.",
                "none",
            ),
        ),
        (
            "user",
            describe(
                json!({ "type": "string", "minLength": 1 }),
                "The user that instances run as. `root` means all rights of this machine; `weal up`, `weal status` and `weal doctor` then name the application.",
                "one of the application's own where root runs weal; else the one that runs weal",
            ),
        ),
        (
            "sandbox",
            describe(
                sandbox(),
                "How far instances are confined: `\"strict\"`, `\"off\"`, or a table of what is open in the strict one.",
                "\"strict\", with `user = \"root\"` \"off\"",
            ),
        ),
    ];
    let env = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let nodes = json!({ "type": "array", "minItems": 1, "uniqueItems": true, "items": { "type": "string" } });
    let on_resume = json!({ "type": "array", "items": { "type": "string" } });
    let flag = json!({ "type": "boolean" });
    let restart = json!({ "enum": ["always", "on-failure", "never"] });
    keys.extend([
        ("env", describe(env, "Added to the environment.", "nothing")),
        (
            "cwd",
            describe(
                json!({ "type": "string" }),
                "The working directory, relative to the config's folder. With `image`, a folder of the image, from its root.",
                "the config's folder, or what the image says",
            ),
        ),
        ("stop-timeout", span("From SIGTERM to SIGKILL.", defaults::STOP_TIMEOUT_S)),
        (
            "on-resume",
            describe(
                on_resume,
                "Run in an instance that was woken, before its first request; what slept too long is renewed here.",
                "nothing",
            ),
        ),
        (
            "singleton",
            describe(
                flag.clone(),
                "Two instances never run at a time: a rollout stops the old one before it starts the new one.",
                "false: the new one is ready before the old one stops",
            ),
        ),
        (
            "drain-timeout",
            describe(
                json!({ "type": "string", "pattern": SPAN }),
                "What requests and connections of an instance may take to end before it is stopped, beside its successor.",
                "as long as `request-timeout`",
            ),
        ),
        (
            "pass-socket",
            describe(
                flag.clone(),
                "Whether an instance is given its listening socket as descriptor 3, with `LISTEN_FDS` and `LISTEN_PID` as systemd has them, instead of binding `$PORT`. Then nobody else can take the port, and clients wait while it is started again.",
                "false",
            ),
        ),
        ("nodes", describe(nodes, "Nodes that it may run on.", "all")),
        ("together", describe(names(), "Applications that must be on the same node wherever this one is.", "none")),
        ("apart", describe(names(), "Applications that must not share a node with this one.", "none")),
        ("pinned", describe(flag.clone(), "Its instances are never stopped or moved to make room.", "false")),
        ("manual", describe(flag, "weal never changes its placement, beyond bringing up `instances.min`.", "false")),
        ("restart", describe(restart, "What happens when an instance ends by itself.", "\"always\"")),
        (
            "queue-limit",
            describe(
                count(0),
                "Requests that may wait per flow before new ones are rejected.",
                &defaults::QUEUE_LIMIT.to_string(),
            ),
        ),
        (
            "request-timeout",
            span(
                "How long a request may wait for its answer, queue included, before it is answered 504. While its body flows, the time does not run.",
                defaults::REQUEST_TIMEOUT_S,
            ),
        ),
        (
            "upgrades",
            describe(
                json!({ "type": "array", "uniqueItems": true, "items": { "type": "string", "minLength": 1 } }),
                "Protocols that a connection may be upgraded to; `\"*\"` is any. Requests for others are answered as if they had not asked.",
                "[\"websocket\"]",
            ),
        ),
        (
            "protocol",
            describe(
                json!({ "enum": ["http1", "h2c"] }),
                "What instances speak: HTTP/1.1, or HTTP/2 without TLS, as gRPC needs it. Clients may speak either in any case.",
                "\"http1\"",
            ),
        ),
        (
            "send-proxy",
            describe(
                json!({ "enum": ProxyVersion::ALL }),
                "Each connection to an instance begins with a header of the PROXY protocol of this version, which says whose it is.",
                "none",
            ),
        ),
        (
            "normalize-paths",
            describe(
                json!({ "type": "boolean" }),
                "Whether routes are compared with normalised paths: `//admin` and `/%61dmin` are `/admin`.",
                "true",
            ),
        ),
        (
            "sleep",
            describe(
                json!({ "type": "boolean" }),
                "Whether its instances may sleep. With `false` at least one runs, whether or not requests come.",
                "true",
            ),
        ),
        (
            "sleep-after",
            describe(
                json!({ "type": "string", "pattern": SPAN }),
                "Without a request for so long, it sleeps as far as `instances.min` allows.",
                "when its memory is worth more than the time to wake it",
            ),
        ),
        ("keep-awake", keep_awake()),
    ]);
    keys.extend(flows::app_keys());
    keys.extend(process::app_keys());
    keys
}

fn keep_awake() -> Value {
    let mut keys = jobs::schedule();
    let span = json!({ "type": "string", "pattern": SPAN });
    keys.push(("for", describe(span, "For how long from each date on, from a minute to a week.", "")));
    let what = "When it is kept awake, whether or not requests come: from each date of a schedule on for so long. In between it may sleep.";
    let table = table(what, &["schedule", "for"], keys);
    describe(table, what, "never")
}

fn health() -> Value {
    let keys = vec![
        ("http", describe(json!({ "type": "string", "pattern": "^/" }), "`GET` of this path answers 2xx or 3xx.", "")),
        ("tcp", describe(json!({ "const": true }), "The port accepts a connection.", "true")),
        ("command", describe(argv(), "This command ends with 0.", "")),
        (
            "host",
            describe(
                json!({ "type": "string", "minLength": 1 }),
                "The host that `http` asks for.",
                "the first exact host of its routes, or else the instance's address",
            ),
        ),
        ("interval", span("Between two checks of a ready instance.", defaults::HEALTH_INTERVAL_S)),
        ("timeout", span("What one check may take.", defaults::HEALTH_TIMEOUT_S)),
        (
            "start-timeout",
            span("What a new instance may take to become ready; then it counts as failed.", defaults::HEALTH_START_TIMEOUT_S),
        ),
        (
            "failures",
            describe(count(1), "So many failed checks in a row make it unhealthy.", &defaults::HEALTH_FAILURES.to_string()),
        ),
        (
            "replace-after",
            describe(
                count(0),
                "After so many failed checks in a row it is ended and started anew; 0 is never.",
                &format!("{} times `failures`", defaults::HEALTH_ROUNDS),
            ),
        ),
    ];
    json!({ "anyOf": [{ "type": "string", "pattern": "^/" }, table("A check.", &[], keys)] })
}

fn sandbox() -> Value {
    let texts = || json!({ "type": "array", "items": { "type": "string", "minLength": 1 } });
    let devices = json!({ "type": "array", "items": { "type": "string", "pattern": "^/dev/" } });
    let permit = json!({ "type": "array", "items": { "enum": Permit::ALL.map(Permit::as_str) } });
    let flag = json!({ "type": "boolean" });
    let keys = vec![
        (
            "write",
            describe(texts(), "Folders and files that it may write besides `$DATA`, relative to the config's folder.", "none"),
        ),
        ("devices", describe(devices, "Devices that it may open besides those that hold nothing.", "none")),
        (
            "permit",
            describe(
                permit,
                "What no ordinary service does: make namespaces, debug other processes, run in real time, make any system call.",
                "nothing",
            ),
        ),
        ("tmp", describe(json!({ "enum": ["private", "shared"] }), "Whose /tmp and /var/tmp it sees.", "\"private\"")),
        ("processes", describe(count(1), "Processes and threads of an instance at most.", &SandboxSpec::PROCESSES.to_string())),
        ("open-files", describe(count(16), "Files that each process may have open.", &SandboxSpec::OPEN_FILES.to_string())),
        ("core-dumps", describe(flag, "Whether a crash writes the memory to a file.", "false")),
    ];
    json!({ "anyOf": [{ "enum": ["strict", "off"] }, table("What is open in the strict sandbox.", &[], keys)] })
}

fn instances() -> Value {
    let keys = vec![
        ("min", describe(count(0), "At least so many run.", &defaults::INSTANCES.to_string())),
        ("max", describe(count(1), "At most so many run.", "`min`, at least 1")),
    ];
    json!({ "anyOf": [count(1), table("Bounds.", &[], keys)] })
}

fn route() -> Value {
    let name = || json!({ "type": "string", "minLength": 1 });
    let header_keys = vec![
        ("name", describe(name(), "The header's name.", "")),
        ("value", describe(json!({ "type": "string" }), "Its exact value.", "any")),
    ];
    let header = json!({ "anyOf": [name(), table("A header to match.", &["name"], header_keys)] });
    let port = |what: &str| {
        let address = json!({ "type": "string", "pattern": ":[0-9]+$" });
        let port = json!({ "type": "integer", "minimum": 1, "maximum": 65535 });
        describe(json!({ "anyOf": [port, address] }), what, "none: the route is for HTTP")
    };
    let keys = vec![
        ("tcp", port("A port whose connections are passed on as they come: `5432` on loopback, or `\"0.0.0.0:5432\"`.")),
        ("udp", port("The same for datagrams. `host`, `path` and `header` do not go with either.")),
        ("host", describe(name(), "`shop.example`, or `*.shop.example` for all names below it.", "every host")),
        ("path", describe(json!({ "type": "string", "pattern": "^/" }), "`/exact` or `/prefix/*`.", "every path")),
        ("header", describe(header, "A header that must be there: its name, or `{ name = .., value = .. }`.", "none")),
        ("class", describe(name(), "The service class of the requests that match.", "\"default\", best effort")),
        (
            "idle-timeout",
            describe(
                json!({ "type": "string", "pattern": SPAN }),
                "A request ends when nothing of it or its answer has moved for so long, and so does a connection or a session of a port.",
                "`request-timeout`, and 300s once the answer has begun; 1h for `tcp`, 60s for `udp`",
            ),
        ),
        (
            "total-timeout",
            describe(
                json!({ "type": "string", "pattern": SPAN }),
                "From a request's arrival to the last byte of its answer; from a connection's to its end.",
                "no limit",
            ),
        ),
        (
            "tunnel-idle-timeout",
            describe(
                json!({ "type": "string", "pattern": SPAN }),
                "A connection that is no longer HTTP, such as a WebSocket, ends when nothing has moved on it for so long.",
                "1h",
            ),
        ),
    ];
    let keys = keys.into_iter().chain(manners::route_keys()).collect();
    table("One route. Every part that is given must match; the most specific route wins.", &[], keys)
}

fn named(description: &str, entry: Value) -> Value {
    json!({
        "description": description,
        "type": "object",
        "propertyNames": { "pattern": NAME },
        "additionalProperties": entry,
    })
}

fn cpu() -> Value {
    json!({ "type": "number", "minimum": 0.01, "maximum": 4096 })
}

fn count(least: u32) -> Value {
    json!({ "type": "integer", "minimum": least })
}

fn names() -> Value {
    json!({ "type": "array", "uniqueItems": true, "items": { "type": "string", "pattern": NAME } })
}

/// The keys of one table of the schema as a Markdown table, in alphabetical order.
pub(crate) fn markdown(keys: &Value) -> String {
    let mut lines = vec!["| key | meaning | default |".to_owned(), "| --- | --- | --- |".to_owned()];
    for (key, value) in keys.as_object().into_iter().flatten() {
        let description = value["description"].as_str().unwrap_or_default();
        let (meaning, default) = description.rsplit_once(" Default: ").unwrap_or((description, "required."));
        lines.push(format!("| `{key}` | {meaning} | {} |", default.trim_end_matches('.')));
    }
    lines.join("\n")
}

/// The tables of docs/config.md, each under the name that its marker there has.
pub fn documentation() -> Vec<(&'static str, String)> {
    let schema = schema();
    let app = &schema["properties"]["app"]["additionalProperties"]["properties"];
    vec![
        ("pool", markdown(&schema["properties"]["pool"]["properties"])),
        ("tls", markdown(&schema["properties"]["tls"]["additionalProperties"]["properties"])),
        ("node", markdown(&schema["properties"]["node"]["items"]["properties"])),
        ("class", markdown(&schema["properties"]["class"]["additionalProperties"]["properties"])),
        ("notify", markdown(&schema["properties"]["notify"]["items"]["properties"])),
        ("job", markdown(&schema["properties"]["job"]["additionalProperties"]["properties"])),
        ("app", markdown(app)),
        ("health", markdown(&app["health"]["anyOf"][1]["properties"])),
        ("sandbox", markdown(&app["sandbox"]["anyOf"][1]["properties"])),
        ("route", markdown(&app["routes"]["items"]["properties"])),
    ]
}
