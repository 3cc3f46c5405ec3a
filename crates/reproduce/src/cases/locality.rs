//! V1: what a failed server costs in locality (Tsai 4.3.3, Figure 4.1).

use weal_control::dispatch::locality::servers_of;

use crate::{Figure, Record, Reproduction, Setting, mean, near};

/// Points of the name space at which the mappings are compared, times both numbers of ranges: ranges are hit evenly.
const POINTS: usize = 16;

pub(super) fn lost_by_a_failure(_: &Setting) -> Reproduction {
    let mut record = Record::new(
        "V1",
        "Tsai 4.3.3, Figure 4.1",
        "renumbering loses 36.7% of the locality on average with ten servers, 50% at worst; skipping the failed one loses 1/N",
        "N servers, replication factor R, each server failing once",
    );
    record.assume("hash ranges are contiguous: literally modulo N, renumbering loses 90% at N = 10");
    let renumbered = |n: usize, r: usize| (0..n).map(|failed| lost(n, r, failed, true)).collect::<Vec<f64>>();
    let skipped = |n: usize, r: usize| (0..n).map(|failed| lost(n, r, failed, false)).collect::<Vec<f64>>();
    let percent = |share: f64| 100.0 * share;
    for n in [4, 10, 20] {
        let expected = (n as f64 + 1.0) / (3.0 * n as f64);
        let row = record.number(&format!("renumbered, N = {n}, R = 1: lost, %"), percent(mean(&renumbered(n, 1))));
        let row = row.recalculated(near(percent(expected), 1e-9));
        if n == 10 {
            row.paper(near(37.0, 0.5));
        }
    }
    let worst = renumbered(10, 1).into_iter().fold(0.0, f64::max);
    let row = record.number("renumbered, N = 10, R = 1: lost at worst, %", percent(worst));
    row.paper(near(50.0, 1e-9)).recalculated(near(50.0, 1e-9));
    record.number("renumbered, N = 10, R = 2: lost, %", percent(mean(&renumbered(10, 2)))).recalculated(near(21.3, 0.05));
    let off = (2..=20).flat_map(|n| (1..n.min(4)).map(move |r| (n, r))).flat_map(|(n, r)| {
        let each = skipped(n, r).into_iter();
        each.map(move |lost| (lost - 1.0 / n as f64).abs())
    });
    let row = record.number("skipped, N = 2..20, R = 1..3: furthest from 1/N", off.fold(0.0, f64::max));
    row.paper(near(0.0, 1e-12)).recalculated(near(0.0, 1e-12));
    let title = "locality lost by the failure of one server";
    let curves = ["renumbered, R = 1", "renumbered, R = 2", "renumbered, R = 3", "skipped, any R"];
    let mut figure = Figure::new("figure-4.1", title, ["servers", "lost, %"], &curves);
    for n in 4..=20 {
        let values = [mean(&renumbered(n, 1)), mean(&renumbered(n, 2)), mean(&renumbered(n, 3)), mean(&skipped(n, 1))];
        figure.row(n as f64, &values.map(percent));
    }
    record.figure(figure);
    record.done()
}

/// The share of (name, server) instances after the failure that were not there before: what has to be fetched anew.
fn lost(n: usize, r: usize, failed: usize, renumber: bool) -> f64 {
    let survivors: Vec<usize> = (0..n).filter(|&server| server != failed).collect();
    let available: Vec<bool> = (0..n).map(|server| server != failed).collect();
    let points = n * (n - 1) * POINTS;
    let mut missing = 0;
    for point in 0..points {
        let before = servers_of(point * n / points, r, &vec![true; n]);
        let after = if renumber {
            let numbers = servers_of(point * (n - 1) / points, r, &vec![true; n - 1]);
            numbers.into_iter().map(|number| survivors[number]).collect()
        } else {
            servers_of(point * n / points, r, &available)
        };
        missing += after.iter().filter(|server| !before.contains(server)).count();
    }
    missing as f64 / (points * r) as f64
}
