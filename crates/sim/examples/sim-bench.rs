//! M/M/1 stations at load 0.8 on the engine, and on a bare binary heap; prints one JSON object. `cargo xtask bench sim` runs it.
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rand_distr::{Distribution, Exp1};
use weal_rng::{Rng, stream};
use weal_sim::engine::Agenda;

/// Arrivals per unit of time; service takes a unit in the mean.
const LOAD: f64 = 0.8;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [engine, stations, events] = arguments.as_slice() else {
        panic!("usage: sim-bench agenda|heap STATIONS EVENTS");
    };
    let (stations, events) = (stations.parse().expect("a number of stations"), events.parse().expect("a number of events"));
    let before = on_cpu_s();
    let (mean_customers, counted) = match engine.as_str() {
        "agenda" => on_agenda(stations, events),
        "heap" => on_heap(stations, events),
        other => panic!("there is no engine {other}"),
    };
    let seconds = on_cpu_s() - before;
    println!("{{\"events\":{counted},\"seconds\":{seconds},\"customers\":{mean_customers}}}");
}

/// Seconds that this process has had a processor, which is what counts on a machine that does other work too.
fn on_cpu_s() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux tells what a process had of its processors");
    let nanoseconds: f64 = text.split(' ').next().and_then(|number| number.parse().ok()).expect("nanoseconds come first");
    nanoseconds / 1e9
}

/// A queue with one server, with random numbers of its own, and the integral of its customers over time.
struct Station {
    customers: u32,
    integral: f64,
    since: f64,
    arrivals: Rng,
    services: Rng,
}

#[derive(Clone, Copy)]
enum Event {
    Arrival(u32),
    Departure(u32),
}

impl Station {
    fn all(count: u32) -> Vec<Self> {
        let station = |number| Self {
            customers: 0,
            integral: 0.0,
            since: 0.0,
            arrivals: stream(1, &format!("arrivals/{number}")),
            services: stream(1, &format!("services/{number}")),
        };
        (0..count).map(station).collect()
    }

    fn next_arrival(&mut self) -> f64 {
        let gap: f64 = Exp1.sample(&mut self.arrivals);
        gap / LOAD
    }

    fn next_service(&mut self) -> f64 {
        Exp1.sample(&mut self.services)
    }

    fn count(&mut self, now: f64) {
        self.integral += f64::from(self.customers) * (now - self.since);
        self.since = now;
    }

    /// One more; true when it is served at once.
    fn arrive(&mut self, now: f64) -> bool {
        self.count(now);
        self.customers += 1;
        self.customers == 1
    }

    /// One less; true when another is served now.
    fn depart(&mut self, now: f64) -> bool {
        self.count(now);
        self.customers -= 1;
        self.customers > 0
    }
}

/// Mean customers a station: theory says `0.8 / (1 - 0.8) = 4`.
fn mean_customers(stations: &[Station]) -> f64 {
    stations.iter().map(|station| station.integral / station.since.max(1e-9)).sum::<f64>() / stations.len() as f64
}

fn on_agenda(stations: u32, events: u64) -> (f64, u64) {
    let mut all = Station::all(stations);
    let mut agenda = Agenda::default();
    for (number, station) in (0..).zip(&mut all) {
        agenda.enter(station.next_arrival(), Event::Arrival(number));
    }
    for _ in 0..events {
        let Some(event) = agenda.take() else { break };
        let now = agenda.now_s();
        match event {
            Event::Arrival(number) => {
                let station = &mut all[number as usize];
                agenda.enter(now + station.next_arrival(), event);
                if station.arrive(now) {
                    agenda.enter(now + station.next_service(), Event::Departure(number));
                }
            }
            Event::Departure(number) => {
                let station = &mut all[number as usize];
                if station.depart(now) {
                    agenda.enter(now + station.next_service(), event);
                }
            }
        }
    }
    (mean_customers(&all), events)
}

/// The same with nothing around the standard library's heap: what an engine on it can reach at most.
fn on_heap(stations: u32, events: u64) -> (f64, u64) {
    let mut all = Station::all(stations);
    // Times that are not negative are in the order of their bits; the lowest bit of the second tells departures.
    let mut heap: BinaryHeap<Reverse<(u64, u32)>> = BinaryHeap::new();
    for (number, station) in (0..).zip(&mut all) {
        heap.push(Reverse((station.next_arrival().to_bits(), number << 1)));
    }
    for _ in 0..events {
        let Some(Reverse((at, what))) = heap.pop() else { break };
        let (now, station) = (f64::from_bits(at), &mut all[(what >> 1) as usize]);
        let served = if what & 1 == 0 {
            heap.push(Reverse(((now + station.next_arrival()).to_bits(), what)));
            station.arrive(now)
        } else {
            station.depart(now)
        };
        if served {
            heap.push(Reverse(((now + station.next_service()).to_bits(), what | 1)));
        }
    }
    (mean_customers(&all), events)
}
