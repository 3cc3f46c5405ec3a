//! What the clients of a session ask for, one request after the other.

use std::time::Duration;

use weal_control::seeded::Seeded;

/// Requests of a session over static files: the thesis' mean (Carrera 4.4.2.1).
const FILE_REQUESTS: u32 = 6;
/// Files, and the largest. Surge's sizes have no upper bound; clients, gateway and server that share a machine need one.
const FILES: usize = 2000;
const LARGEST_FILE: usize = 1 << 20;
/// CPU time that a server takes for a file, besides its bytes.
const FILE_CPU: Duration = Duration::from_micros(200);

/// Requests of a session at an auction, in the mean. The thesis has 300; a tenth of that comes to its end within a run.
const AUCTION_REQUESTS: f64 = 30.0;

/// What a request asks for. Its path says so, and `sessions-bench threads` goes by that.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub bytes: usize,
    pub cpu: Duration,
}

impl Wanted {
    fn path(self) -> String {
        format!("/{}/{}", self.bytes, self.cpu.as_micros())
    }

    /// `None` for a path that asks for nothing in particular.
    pub fn of_path(path: &str) -> Option<Self> {
        let (bytes, cpu_us) = path.strip_prefix('/')?.split_once('/')?;
        let bytes = bytes.parse().ok().filter(|bytes| *bytes <= LARGEST_FILE)?;
        Some(Self { bytes, cpu: Duration::from_micros(cpu_us.parse().ok()?) })
    }
}

/// What sessions are like.
pub enum Shape {
    /// So many connections, with so many requests for `/` over each.
    Even { visits: u32, requests: u32 },
    /// A site of static files, as Surge makes them (Barford and Crovella 1998). One connection.
    Files(Vec<File>),
    /// An auction, in the manner of RUBiS: a client goes from page to page by chance, until it has had enough. One connection.
    Auction,
}

/// A static file.
pub struct File {
    wanted: Wanted,
    /// The probability of it or of one before it.
    up_to: f64,
}

/// How far a session has come.
#[derive(Default)]
pub struct Way {
    /// Requests so far, with the present one.
    pub asked: u32,
    /// The page of the auction.
    page: usize,
}

/// The next request of a session.
pub struct Step {
    /// It goes over a connection of its own.
    pub opens: bool,
    pub path: String,
}

impl Shape {
    /// As the command line has it: `surge`, `rubis`, or `4x2` for four connections with two requests each.
    pub fn read(word: &str) -> Option<Self> {
        match word {
            "surge" => Some(Self::Files(files())),
            "rubis" => Some(Self::Auction),
            _ => {
                let (visits, requests) = word.split_once('x')?;
                Some(Self::Even { visits: visits.parse().ok()?, requests: requests.parse().ok()? })
            }
        }
    }

    /// The next request; `None` at the end of the session.
    pub fn next(&self, way: &mut Way, random: &mut Seeded) -> Option<Step> {
        let before = way.asked;
        way.asked += 1;
        let (opens, path) = match self {
            Self::Even { visits, requests } if before < visits * requests => (before.is_multiple_of(*requests), "/".to_owned()),
            Self::Files(files) if before < FILE_REQUESTS => (before == 0, pick(files, random).path()),
            Self::Auction if before == 0 => (true, PAGES[way.page].wanted().path()),
            Self::Auction if !random.chance(1.0 / AUCTION_REQUESTS) => {
                way.page = PAGES[way.page].next(random);
                (false, PAGES[way.page].wanted().path())
            }
            _ => return None,
        };
        Some(Step { opens, path })
    }
}

/// The files of the site, the most popular first: sizes with a lognormal body and a Pareto tail, and popularity by Zipf.
fn files() -> Vec<File> {
    let mut random = Seeded::new(1998);
    let whole: f64 = (1..=FILES).map(|rank| 1.0 / rank as f64).sum();
    let mut up_to = 0.0;
    let file = |rank: usize| {
        up_to += 1.0 / rank as f64 / whole;
        File { wanted: Wanted { bytes: size(&mut random), cpu: FILE_CPU }, up_to }
    };
    (1..=FILES).map(file).collect()
}

/// Bytes of a file, by Surge's parameters.
fn size(random: &mut Seeded) -> usize {
    const IN_TAIL: f64 = 0.07;
    const TAIL: (f64, f64) = (133e3, 1.1);
    const BODY: (f64, f64) = (9.357, 1.318);
    let bytes = if random.chance(IN_TAIL) {
        TAIL.0 / (1.0 - random.between(0.0, 1.0)).powf(1.0 / TAIL.1)
    } else {
        (BODY.0 + BODY.1 * normal(random)).exp()
    };
    bytes.clamp(1.0, LARGEST_FILE as f64) as usize
}

/// With mean 0 and deviation 1 (Box and Muller).
fn normal(random: &mut Seeded) -> f64 {
    let (radius, turn) = (1.0 - random.between(0.0, 1.0), random.between(0.0, 1.0));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
}

fn pick(files: &[File], random: &mut Seeded) -> Wanted {
    let drawn = random.between(0.0, 1.0);
    let at = files.partition_point(|file| file.up_to < drawn);
    files[at.min(files.len() - 1)].wanted
}

/// A page of the auction: what it takes, and where clients go from there, each page as often as its weight says.
struct Page {
    bytes: usize,
    cpu_us: u64,
    next: &'static [(usize, u64)],
}

const HOME: usize = 0;
const CATEGORIES: usize = 1;
const SEARCH: usize = 2;
const ITEM: usize = 3;
const USER: usize = 4;
const BID: usize = 5;
const STORE_BID: usize = 6;
const ABOUT_ME: usize = 7;

/// In the order of the constants above. One request in seven writes, about the 15% of RUBiS' bidding mix. A request takes 1.1 ms in the mean.
static PAGES: [Page; 8] = [
    Page { bytes: 3 << 10, cpu_us: 200, next: &[(CATEGORIES, 1)] },
    Page { bytes: 4 << 10, cpu_us: 500, next: &[(SEARCH, 9), (HOME, 1)] },
    Page { bytes: 12 << 10, cpu_us: 2000, next: &[(ITEM, 8), (SEARCH, 1), (CATEGORIES, 1)] },
    Page { bytes: 6 << 10, cpu_us: 800, next: &[(BID, 7), (SEARCH, 2), (USER, 1)] },
    Page { bytes: 5 << 10, cpu_us: 900, next: &[(ITEM, 1)] },
    Page { bytes: 4 << 10, cpu_us: 600, next: &[(STORE_BID, 9), (ITEM, 1)] },
    Page { bytes: 3 << 10, cpu_us: 1500, next: &[(SEARCH, 5), (CATEGORIES, 3), (ABOUT_ME, 2)] },
    Page { bytes: 8 << 10, cpu_us: 1800, next: &[(ITEM, 1), (CATEGORIES, 1)] },
];

impl Page {
    fn wanted(&self) -> Wanted {
        Wanted { bytes: self.bytes, cpu: Duration::from_micros(self.cpu_us) }
    }

    fn next(&self, random: &mut Seeded) -> usize {
        let mut drawn = random.below(self.next.iter().map(|(_, weight)| weight).sum());
        for &(page, weight) in self.next {
            if drawn < weight {
                return page;
            }
            drawn -= weight;
        }
        HOME
    }
}
