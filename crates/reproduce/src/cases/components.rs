//! S1: where the components of an online service should stand (Stewart & Shen 5.1, Tables 2 and 4).

use weal_control::components::{Component, Placement, Server, Service, anneal, replicate_all, sample};

use crate::{Figure, Record, Reproduction, Setting};

const NAMES: [&str; 7] = ["Web server", "Database", "Account", "Item", "Holding", "StockTX", "Broker"];
/// Table 2: percent of a Pentium 4 per request per second, and at rest.
const PROFILE: [(f64, f64); 7] =
    [(0.904, 0.779), (0.008, 4.832), (0.219, 0.789), (0.346, 0.781), (0.268, 0.674), (0.222, 0.490), (1.829, 0.533)];
/// Table 4, with W for the web server, D for the database and the initials A, I, H, S, B of the other components.
const RANDOM: [&str; 12] =
    ["ISBW", "IBD", "AIHSB", "HSB", "AISBW", "AISBW", "AISBW", "AISBW", "AISBW", "AISBW", "AISBW", "AISBW"];
const ANNEALED: [&str; 12] = ["HSBD", "ISB", "ISB", "IHB", "HBW", "HBW", "HBW", "ABW", "ABW", "ABW", "ABW", "ABW"];
const LOW: [&str; 12] = ["IB", "IB", "W", "W", "AB", "HB", "SB", "B", "BW", "BW", "BW", "D"];

pub(super) fn placements(setting: &Setting) -> Reproduction {
    let (examined, seeds) = setting.pick((10_000, 20), (10_000, 3));
    let mut record = Record::new(
        "S1",
        "Stewart & Shen 5.1, Tables 2 and 4, Figures 17-18",
        "an annealed placement carries most, then everything everywhere, then the best of 10,000 random ones, then low replication",
        &format!(
            "StockOnline's profile, 12 machines, {examined} placements examined, {seeds} seeds from 1; base model without remote calls"
        ),
    );
    record.assume("a Xeon is as fast as the Pentium 4 of the profile, which the text does not say");
    record.assume("response times: exponential execution times");
    record
        .chose_late("the temperature at which annealing starts, raised because it stayed in a local optimum of a small service");
    let service = stock_online();
    let carried = |places: &[&str; 12]| service.saturation(&placement(places));
    let all = replicate_all(&service);
    let rows = [
        ("annealed (Table 4)", 287.0, carried(&ANNEALED)),
        ("everything everywhere", 282.0, all.saturation),
        ("random (Table 4)", 267.0, carried(&RANDOM)),
        ("low replication (Table 4)", 210.0, carried(&LOW)),
    ];
    for (name, expected, got) in rows {
        record.near(&format!("{name}: requests per second at saturation"), expected, got, 0.1 * expected);
    }
    record.claim("in this order", rows.windows(2).all(|pair| pair[0].2 > pair[1].2));
    let annealed = setting.seeds(seeds, |seed| anneal(&service, examined, seed));
    let sampled = setting.seeds(seeds, |seed| sample(&service, examined, seed));
    let of = |found: &[weal_control::components::Searched]| found.iter().map(|one| one.saturation).collect::<Vec<f64>>();
    record.at_least("weal's annealing", &of(&annealed), "everything everywhere", &[all.saturation], 0.0);
    record.at_least("weal's annealing", &of(&annealed), "weal's sampling", &of(&sampled), 0.0);
    record.near_mean("weal's annealing: requests per second at saturation", 287.0, &of(&annealed), 28.7);
    record.near_mean("weal's sampling: requests per second at saturation", 267.0, &of(&sampled), 26.7);
    let own = annealed.iter().max_by(|a, b| a.saturation.total_cmp(&b.saturation)).expect("there are seeds");
    let at_250 = |placement: &Placement| 1000.0 * service.response_s(placement, 250.0, 1.0);
    let (ours, everywhere) = (at_250(&own.placement), at_250(&all.placement));
    record.claim("annealed responds sooner at 250 requests per second than everything everywhere", ours < everywhere);
    record.tell("response at 250 requests per second, ms: annealed", ours);
    record.tell("response at 250 requests per second, ms: everything everywhere", everywhere);
    record.figure(responses(&service, &own.placement, &all.placement));
    record.done()
}

fn stock_online() -> Service {
    let component = |(name, (per_request, standing)): (&&str, &(f64, f64))| Component {
        name: (*name).to_owned(),
        per_request: per_request / 100.0,
        standing: standing / 100.0,
        replicable: *name != "Database",
    };
    Service {
        components: NAMES.iter().zip(&PROFILE).map(component).collect(),
        calls: Vec::new(),
        servers: vec![Server { speed: 1.0 }; 12],
    }
}

fn placement(places: &[&str; 12]) -> Placement {
    Placement(places.iter().map(|here| "WDAIHSB".chars().map(|initial| here.contains(initial)).collect()).collect())
}

fn responses(service: &Service, own: &Placement, all: &Placement) -> Figure {
    let curves = ["annealed (weal)", "annealed (Table 4)", "everything everywhere", "random (Table 4)", "low replication"];
    let title = "mean response time by the base model";
    let mut figure = Figure::new("figure-18", title, ["requests per second", "ms"], &curves);
    let places = [own.clone(), placement(&ANNEALED), all.clone(), placement(&RANDOM), placement(&LOW)];
    for rate in (20..=300).step_by(10) {
        let response = |placement: &Placement| 1000.0 * service.response_s(placement, f64::from(rate), 1.0);
        // Beyond a tenfold of the idle response nobody waits; the curves end there.
        let shown = |value: f64| if value < 1000.0 { value } else { f64::NAN };
        let values: Vec<f64> = places.iter().map(|placement| shown(response(placement))).collect();
        figure.row(f64::from(rate), &values);
    }
    figure
}
