//! M/M/1 stations at load 0.8 on NeXosim, one model a station, on one thread; prints one JSON object.
//!
//! `cargo xtask bench sim` makes a project of its own of this file, so that the workspace does not depend on NeXosim.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use nexosim::model::{Context, Model, schedulable};
use nexosim::simulation::{Mailbox, SimInit};
use nexosim::time::MonotonicTime;
use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

static EVENTS: AtomicU64 = AtomicU64::new(0);
/// Customers as arrivals see them, in sum: their mean is the mean over time (PASTA).
static SEEN: AtomicU64 = AtomicU64::new(0);
static ARRIVALS: AtomicU64 = AtomicU64::new(0);

#[derive(Serialize, Deserialize)]
struct Station {
    customers: u64,
    arrivals: Pcg64,
    services: Pcg64,
}

fn after(rng: &mut Pcg64, mean_s: f64) -> Duration {
    let span: f64 = Exp1.sample(rng);
    Duration::from_nanos(((span * mean_s * 1e9) as u64).max(1))
}

#[Model]
impl Station {
    #[nexosim(init)]
    async fn init(&mut self, context: &Context<Self>) {
        context.schedule_event(after(&mut self.arrivals, 1.25), schedulable!(Self::arrive), ()).unwrap();
    }

    #[nexosim(schedulable)]
    async fn arrive(&mut self, _: (), context: &Context<Self>) {
        EVENTS.fetch_add(1, Relaxed);
        ARRIVALS.fetch_add(1, Relaxed);
        SEEN.fetch_add(self.customers, Relaxed);
        context.schedule_event(after(&mut self.arrivals, 1.25), schedulable!(Self::arrive), ()).unwrap();
        self.customers += 1;
        if self.customers == 1 {
            context.schedule_event(after(&mut self.services, 1.0), schedulable!(Self::depart), ()).unwrap();
        }
    }

    #[nexosim(schedulable)]
    async fn depart(&mut self, _: (), context: &Context<Self>) {
        EVENTS.fetch_add(1, Relaxed);
        self.customers -= 1;
        if self.customers > 0 {
            context.schedule_event(after(&mut self.services, 1.0), schedulable!(Self::depart), ()).unwrap();
        }
    }
}

/// Seconds that this process has had a processor, which is what counts on a machine that does other work too.
fn on_cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells what a process had of its processors");
    let nanoseconds: f64 = text.split(' ').next().and_then(|number| number.parse().ok()).expect("nanoseconds come first");
    nanoseconds / 1e9
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>().expect("a number"));
    let (stations, events) = (arguments.next().expect("STATIONS"), arguments.next().expect("EVENTS"));
    let mut bench = SimInit::with_num_threads(1);
    for number in 0..stations {
        let random = |stream: u64| Pcg64::new(u128::from(number), u128::from(stream));
        let station = Station { customers: 0, arrivals: random(2 * number), services: random(2 * number + 1) };
        bench = bench.add_model(station, Mailbox::new(), &format!("station-{number}"));
    }
    let mut simulation = bench.init(MonotonicTime::EPOCH).unwrap();
    let before = on_cpu_s();
    // 1.6 events a unit of time at each station.
    simulation.step_until(Duration::from_secs_f64(events as f64 / 1.6 / stations as f64)).unwrap();
    let seconds = on_cpu_s() - before;
    let customers = SEEN.load(Relaxed) as f64 / ARRIVALS.load(Relaxed).max(1) as f64;
    println!("{{\"events\":{},\"seconds\":{seconds},\"customers\":{customers}}}", EVENTS.load(Relaxed));
}
