//! Every default of a config, once, with the reason for its value. docs/config.md lists the same table; a test compares them.

use weal_model::{Bytes, Cpu};

/// Where clients connect. Loopback: nothing is reachable from outside unless the config says so.
pub const LISTEN: &str = "127.0.0.1:8080";
/// Where clients connect over TLS, in examples: there is no such address unless the config names one.
pub const LISTEN_TLS: &str = "127.0.0.1:8443";
/// Where the API and the dashboard are. Loopback, for the same reason.
pub const API: &str = "127.0.0.1:8081";
/// Seats follow the load on average within two cycles, and 2 s still hold enough requests to average over at 5 requests/s.
pub const FLOW_CYCLE_S: f64 = 2.0;
/// Long against the seconds that an instance takes to start, short against the minutes in which load changes; arrivals,
/// failures and flash crowds do not wait for it.
pub const PLACEMENT_CYCLE_S: f64 = 15.0;
/// The compared autoscaler acts as fast as in life.
pub const AUTOSCALER_SPEED: f64 = 1.0;
/// The name of the only node of a pool that names none.
pub const NODE: &str = "local";
/// What a node may be filled to: queues inside a node grow as 1/(1 - utilisation), so the last tenth costs more response
/// time than it gives throughput (Pacifici section 3 uses such a limit, without a value).
pub const UTILIZATION_LIMIT: f64 = 0.9;
/// The share of the machine's memory that its only node gets: the rest is the system's and weal's own.
pub const MACHINE_MEMORY_SHARE: f64 = 0.9;
/// The class of routes that name none: best effort, it gets what goals leave over.
pub const CLASS: &str = "default";
/// Enough for a small web application; one that needs more is killed by its own limit, visibly, and not by another's.
pub const MEMORY: Bytes = Bytes::mib(256);
/// A job's program that says nothing has one thread.
pub const JOB_CPUS: Cpu = Cpu(1.0);
/// Where no zone is named, dates must not depend on the machine's settings.
pub const TIME_ZONE: &str = "UTC";
/// One instance: whether an application may run twice (a database may not) is for its owner to say.
pub const INSTANCES: u32 = 1;
/// Often enough to take a broken instance out of service within 15 s, rare enough to cost nothing.
pub const HEALTH_INTERVAL_S: f64 = 5.0;
/// A check waits in the same queues as requests do: much shorter, and load alone would make an instance unhealthy.
pub const HEALTH_TIMEOUT_S: f64 = 5.0;
/// A large Java server needs half of this on a busy machine.
pub const HEALTH_START_TIMEOUT_S: f64 = 60.0;
/// One failed check may be a pause for garbage collection; three in a row are not.
pub const HEALTH_FAILURES: u32 = 3;
/// Rounds of `health.failures` after which an instance is replaced.
pub const HEALTH_ROUNDS: u32 = 3;
/// Most servers finish their requests within this; systemd waits 90 s, Docker 10 s.
pub const STOP_TIMEOUT_S: f64 = 10.0;
/// Bounds memory (a waiting request holds a connection and its headers, some 20 KiB) while a burst of a second or two still fits.
pub const QUEUE_LIMIT: u32 = 1000;
/// Browsers and proxies give up after 60 s or later: nobody waits for what takes longer.
pub const REQUEST_TIMEOUT_S: f64 = 60.0;

/// What `[[notify]]` tells of must have lasted so long: a burst that goes by itself is no news.
pub const NOTIFY_AFTER_S: f64 = 300.0;
