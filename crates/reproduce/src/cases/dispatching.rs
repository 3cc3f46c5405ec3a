//! T3: dispatching to servers that cache (Tsai 3.5.3-3.5.4, Figures 3.7-3.10), request by request.
//!
//! Four servers, each with a cache (least recently used goes first), a disk and a network link, both first come first served.
//! Clients keep a fixed number of requests outstanding. What is not in the cache is read from the disk; everything goes over
//! the link.

use rand::RngExt;
use rand_distr::{Distribution, LogNormal};
use weal_control::dispatch::locality::servers_of;

use crate::{Figure, Record, Reproduction, Setting, near};
use weal_rng::{self as random, Rng};
use weal_sim::engine::Agenda;

const SERVERS: usize = 4;
/// LARD's parameters as published: loads from which a server is looked at as overloaded, and below which it is free.
const LARD_HIGH: usize = 65;
const LARD_LOW: usize = 25;
/// The resource agent of Vibra: seconds between two allocations, and the smoothing factor of (3.1).
const AGENT_S: f64 = 3.0;
const SMOOTHING: f64 = 0.9;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Dispatching {
    RoundRobin,
    LeastConnection,
    Lard,
    /// With this replication factor, and links that follow the load.
    UrlHash(usize),
}

const POLICIES: [(&str, Dispatching); 5] = [
    ("round robin", Dispatching::RoundRobin),
    ("least connection", Dispatching::LeastConnection),
    ("LARD", Dispatching::Lard),
    ("URL hash, R = 1", Dispatching::UrlHash(1)),
    ("URL hash, R = 2", Dispatching::UrlHash(2)),
];

/// The hot files: splash screen, program and statistics in English and in French, and two embedded images. Charsum puts `english` where
/// `french` is and `prog` where `stat` is (3.5.1); all eight fall into one part, as those of the World Cup did.
const HOT: [&str; 8] = [
    "/english/splash.html",
    "/french/splash.html",
    "/english/prog29.html",
    "/french/prog29.html",
    "/english/stat29.html",
    "/french/stat29.html",
    "/images/flag.gif",
    "/images/star.gif",
];

/// The part of the name space that a URL falls into (3.4.3): the sum of its characters' codes, modulo the number of servers.
fn charsum(url: &str) -> usize {
    url.bytes().map(usize::from).sum::<usize>() % SERVERS
}

/// What is asked for, and what serves it. Sizes in MB, speeds in MB/s.
struct Site {
    sizes: Vec<f64>,
    /// The part of the name space that each file is in.
    parts: Vec<usize>,
    /// Cumulated popularity.
    popularity: Vec<f64>,
    cache: f64,
    seek_s: f64,
    disk: f64,
    /// All links together.
    link: f64,
    requests: usize,
}

impl Site {
    /// In kind the World Cup's: 3,000 small files, and 8 hot ones that the hash puts together and that are most of the traffic.
    fn world_cup(seed: u64, requests: usize) -> Self {
        let mut rng = random::stream(seed, "files");
        let small = LogNormal::new(0.005f64.ln(), 1.2).expect("a constant in range");
        let mut sizes: Vec<f64> = (0..3000).map(|_| small.sample(&mut rng)).collect();
        let mut weights: Vec<f64> = (0..3000).map(|rank| 1.0 / (rank as f64 + 10.0).powf(0.8)).collect();
        let total: f64 = weights.iter().sum();
        (0..HOT.len()).for_each(|hot| {
            sizes.push(0.04);
            weights.push(total * 0.3 / (hot as f64 + 2.0));
        });
        let parts = (0..3000).map(|file| charsum(&format!("/english/page{file}.html"))).chain(HOT.map(charsum)).collect();
        Self { popularity: cumulated(&weights), sizes, parts, cache: 12.0, seek_s: 0.015, disk: 30.0, link: 24.0, requests }
    }

    /// In kind YouTube's: 2,000 videos of 12 GB, popularity by Zipf's law with 0.56.
    fn videos(seed: u64, requests: usize) -> Self {
        let mut rng = random::stream(seed, "files");
        let video = LogNormal::new(5.0f64.ln(), 0.6).expect("a constant in range");
        let sizes: Vec<f64> = (0..2000).map(|_| video.sample(&mut rng)).collect();
        let weights: Vec<f64> = (1..=2000).map(|rank| f64::from(rank).powf(-0.56)).collect();
        // Names of eleven random letters, which divide into parts of nearly equal size (3.5.4).
        let mut names = random::stream(seed, "names");
        let mut name = || (0..11).map(|_| char::from(b'a' + names.random_range(0..26u8))).collect::<String>();
        let parts = (0..2000).map(|_| charsum(&name())).collect();
        Self { popularity: cumulated(&weights), sizes, parts, cache: 768.0, seek_s: 0.01, disk: 10.0, link: 80.0, requests }
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let point = rng.random::<f64>() * self.popularity[self.popularity.len() - 1];
        self.popularity.partition_point(|&sum| sum <= point).min(self.sizes.len() - 1)
    }
}

fn cumulated(weights: &[f64]) -> Vec<f64> {
    weights.iter().scan(0.0, |sum, weight| Some((*sum += weight, *sum).1)).collect()
}

#[derive(Default)]
struct Server {
    outstanding: usize,
    /// (file, when it was last used), most of them a few hundred.
    cached: Vec<Option<u64>>,
    used: f64,
    disk_free_s: f64,
    link_free_s: f64,
    link: f64,
    /// MB sent since the agent looked, and its estimate of the demand.
    sent: f64,
    demand: f64,
}

#[derive(Clone, Copy)]
struct Request {
    file: usize,
    server: usize,
    since_s: f64,
}

#[derive(Clone, Copy)]
enum Event {
    Read(Request),
    Answered(Request),
    Agent,
}

/// Requests per second, mean response in seconds and reads from disk per request, after a third of the requests to warm up.
struct DispatchResult {
    rate: f64,
    response_s: f64,
    reads: f64,
}

struct Run<'a> {
    site: &'a Site,
    policy: Dispatching,
    servers: Vec<Server>,
    /// LARD's table.
    assigned: Vec<Option<usize>>,
    turn: usize,
    clock: u64,
    rng: Rng,
    agenda: Agenda<Event>,
    reads: usize,
}

impl<'a> Run<'a> {
    fn new(site: &'a Site, policy: Dispatching, seed: u64) -> Self {
        let files = site.sizes.len();
        let link = site.link / SERVERS as f64;
        let server = || Server { cached: vec![None; files], link, demand: link, ..Server::default() };
        Self {
            site,
            policy,
            servers: (0..SERVERS).map(|_| server()).collect(),
            assigned: vec![None; files],
            turn: 0,
            clock: 0,
            rng: random::stream(seed, "requests"),
            agenda: Agenda::default(),
            reads: 0,
        }
    }

    fn play(mut self, clients: usize) -> DispatchResult {
        (0..clients).for_each(|_| self.issue());
        if matches!(self.policy, Dispatching::UrlHash(_)) {
            self.agenda.enter(AGENT_S, Event::Agent);
        }
        let (mut done, mut warm_s, mut warm_reads, mut responses) = (0, 0.0, 0, 0.0);
        let warm = self.site.requests / 3;
        while done < self.site.requests {
            match self.agenda.take().expect("clients keep asking") {
                Event::Read(request) => self.send(request),
                Event::Agent => self.allocate(),
                Event::Answered(request) => {
                    self.servers[request.server].outstanding -= 1;
                    done += 1;
                    if done == warm {
                        (warm_s, warm_reads) = (self.agenda.now_s(), self.reads);
                    }
                    responses += if done > warm { self.agenda.now_s() - request.since_s } else { 0.0 };
                    self.issue();
                }
            }
        }
        let counted = (done - warm) as f64;
        DispatchResult {
            rate: counted / (self.agenda.now_s() - warm_s),
            response_s: responses / counted,
            reads: (self.reads - warm_reads) as f64 / counted,
        }
    }

    fn issue(&mut self) {
        let file = self.site.draw(&mut self.rng);
        let server = self.choose(file);
        let request = Request { file, server, since_s: self.agenda.now_s() };
        self.clock += 1;
        self.servers[server].outstanding += 1;
        if self.servers[server].cached[file].is_some() {
            self.servers[server].cached[file] = Some(self.clock);
            return self.send(request);
        }
        self.reads += 1;
        let (now_s, read_s) = (self.agenda.now_s(), self.site.seek_s + self.site.sizes[file] / self.site.disk);
        let server = &mut self.servers[server];
        server.disk_free_s = server.disk_free_s.max(now_s) + read_s;
        self.agenda.enter(server.disk_free_s, Event::Read(request));
        self.keep(request);
    }

    /// Puts a file into a cache, and takes out what was not used for longest.
    fn keep(&mut self, request: Request) {
        let (site, server) = (self.site, &mut self.servers[request.server]);
        server.cached[request.file] = Some(self.clock);
        server.used += site.sizes[request.file];
        while server.used > site.cache {
            let kept = server.cached.iter().enumerate().filter_map(|(file, used)| Some((used.as_ref()?, file)));
            let (_, oldest) = kept.min().expect("a full cache is not empty");
            server.cached[oldest] = None;
            server.used -= site.sizes[oldest];
        }
    }

    fn send(&mut self, request: Request) {
        let (now_s, size) = (self.agenda.now_s(), self.site.sizes[request.file]);
        let server = &mut self.servers[request.server];
        server.link_free_s = server.link_free_s.max(now_s) + size / server.link;
        server.sent += size;
        self.agenda.enter(server.link_free_s, Event::Answered(request));
    }

    /// Links in proportion to smoothed demand (3.1, 3.2).
    fn allocate(&mut self) {
        for server in &mut self.servers {
            server.demand = SMOOTHING * server.demand + (1.0 - SMOOTHING) * server.sent / AGENT_S;
            server.sent = 0.0;
        }
        let total: f64 = self.servers.iter().map(|server| server.demand).sum();
        let link = self.site.link;
        self.servers.iter_mut().for_each(|server| server.link = link * (server.demand / total).max(0.01));
        self.agenda.enter(self.agenda.now_s() + AGENT_S, Event::Agent);
    }

    fn choose(&mut self, file: usize) -> usize {
        let load = |server: &usize| self.servers[*server].outstanding;
        match self.policy {
            Dispatching::RoundRobin => {
                self.turn = (self.turn + 1) % SERVERS;
                self.turn
            }
            Dispatching::LeastConnection => (0..SERVERS).min_by_key(load).expect("there are servers"),
            Dispatching::UrlHash(replication) => {
                let subset = servers_of(self.site.parts[file], replication, &[true; SERVERS]);
                subset.into_iter().min_by_key(load).expect("all servers are available")
            }
            Dispatching::Lard => {
                let least = (0..SERVERS).min_by_key(load).expect("there are servers");
                let keeps = |server: usize| {
                    let load = load(&server);
                    !(load > LARD_HIGH && self.servers[least].outstanding < LARD_LOW || load >= 2 * LARD_HIGH)
                };
                let server = self.assigned[file].filter(|&server| keeps(server)).unwrap_or(least);
                self.assigned[file] = Some(server);
                server
            }
        }
    }
}

pub(super) fn caches(setting: &Setting) -> Reproduction {
    let seeds = setting.pick(20, 1);
    let (small, large) = setting.pick((150_000, 6_000), (6_000, 1_500));
    let mut record = Record::new(
        "T3",
        "Tsai 3.5.3-3.5.4, Figures 3.7-3.10",
        "dispatching by a hash of the URL reads less from disk and answers sooner than least connection, and does not break down under load as LARD does",
        &format!("4 servers; 3,008 files in kind the World Cup's and 2,000 videos in kind YouTube's; {seeds} seeds from 1"),
    );
    record.assume("own files: sizes log-normal; 8 hot files that Charsum puts together are most of the World Cup's traffic; links 24 and 80 MB/s in all");
    record.assume("the trace that the paper plays is public, but is not played here: own files, asked for by a fixed number of clients, in Figures 3.7 and 3.8 too");
    record.chose_late("the disks' speeds and how many requests are played");
    record.assume(
        "caches of 12 and 768 MB a server; disks of 30 MB/s with 5 ms, and of 10 MB/s with 10 ms under hundreds of streams",
    );
    let play = |video: bool, policy: Dispatching, clients: usize| {
        setting.seeds(seeds, |seed| {
            let site = if video { Site::videos(seed, large) } else { Site::world_cup(seed, small) };
            Run::new(&site, policy, seed).play(clients)
        })
    };
    let over = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| 100.0 * (a / b - 1.0)).collect::<Vec<f64>>();
    let rates = |outcomes: &[DispatchResult]| outcomes.iter().map(|one| one.rate).collect::<Vec<f64>>();
    let [_, least, lard, _, two] = POLICIES.map(|(_, policy)| play(false, policy, 140));
    let times = |outcomes: &[DispatchResult]| outcomes.iter().map(|one| one.response_s).collect::<Vec<f64>>();
    let mut judge = |what: &str, printed: f64, own: &[f64], other: &[f64]| {
        record.mean(what, &over(own, other)).paper(near(printed, 10.0));
    };
    let [of_two, of_lard, of_least] = [&two, &lard, &least].map(|outcomes| times(outcomes));
    judge("World Cup: response, URL hash R = 2 over least connection, % (Figure 3.7)", -35.0, &of_two, &of_least);
    judge("World Cup: response, URL hash R = 2 over LARD, % (Figure 3.7)", -51.0, &of_two, &of_lard);
    let reads = |outcomes: &[DispatchResult]| outcomes.iter().map(|one| one.reads).collect::<Vec<f64>>();
    let [of_two, of_lard, of_least] = [&two, &lard, &least].map(|outcomes| reads(outcomes));
    judge("World Cup: reads from disk, URL hash R = 2 over least connection, % (Figure 3.8)", -33.0, &of_two, &of_least);
    judge("World Cup: reads from disk, LARD over least connection, % (Figure 3.8)", -49.0, &of_lard, &of_least);
    let [of_two, of_lard, of_least] = [&two, &lard, &least].map(|outcomes| rates(outcomes));
    judge("World Cup, 140 clients: throughput, LARD over least connection, % (Figure 3.9)", 26.0, &of_lard, &of_least);
    judge("World Cup, 140 clients: throughput, URL hash R = 2 over least connection, % (Figure 3.9)", 23.0, &of_two, &of_least);
    let [_, least, lard, one, two] = POLICIES.map(|(_, policy)| rates(&play(true, policy, 440)));
    for (name, printed, own) in [("LARD", 40.0, &lard), ("URL hash R = 1", 30.0, &one), ("URL hash R = 2", 14.0, &two)] {
        judge(&format!("videos, 440 clients: throughput, {name} over least connection, % (Figure 3.10)"), printed, own, &least);
    }
    let [least, lard, two] =
        [Dispatching::LeastConnection, Dispatching::Lard, Dispatching::UrlHash(2)].map(|policy| rates(&play(true, policy, 560)));
    judge("videos, 560 clients: throughput, LARD over least connection, % (Figure 3.10)", 0.0, &lard, &least);
    judge("videos, 560 clients: throughput, URL hash R = 2 over LARD, % (Figure 3.10)", 32.0, &two, &lard);
    for (name, title, video, clients) in [
        ("figure-3.9", "throughput, World Cup", false, setting.pick(vec![140, 160, 180, 200, 220], vec![140])),
        ("figure-3.10", "throughput, videos", true, setting.pick(vec![400, 440, 480, 520, 560, 600], vec![400])),
    ] {
        let mut figure = Figure::new(name, title, ["clients", "requests per second"], &POLICIES.map(|(name, _)| name));
        for clients in clients {
            // Figures show the first seed.
            let site = if video { Site::videos(1, large) } else { Site::world_cup(1, small) };
            let row = setting.map(POLICIES.len(), |i| Run::new(&site, POLICIES[i].1, 1).play(clients).rate);
            figure.row(clients as f64, &row);
        }
        record.figure(figure);
    }
    record.done()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tsai_3_5_1_charsum_puts_both_languages_and_both_pages_of_a_game_together() {
        assert_eq!(charsum("english"), charsum("french"));
        assert_eq!(charsum("prog"), charsum("stat"));
        assert!(HOT.iter().all(|url| charsum(url) == charsum(HOT[0])), "{:?}", HOT.map(charsum));
    }

    #[test]
    fn the_parts_of_videos_are_nearly_equal() {
        let site = Site::videos(1, 1);
        let counts: Vec<usize> = (0..SERVERS).map(|part| site.parts.iter().filter(|&&of| of == part).count()).collect();
        assert!(counts.iter().all(|count| (450..550).contains(count)), "{counts:?}");
    }
}
