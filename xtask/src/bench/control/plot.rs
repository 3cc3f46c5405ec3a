//! Cost against size as an SVG picture, both axes logarithmic.

use std::fmt::Write;

/// One size of pool.
pub struct Point {
    pub nodes: f64,
    pub cold_ms: f64,
    pub cycle_ms: f64,
    pub peak_mib: f64,
}

/// A curve: its name, its colour, its value.
type Curve = (&'static str, &'static str, fn(&Point) -> f64);

const CURVES: [Curve; 3] = [
    ("cold, ms", "#1f6feb", |point| point.cold_ms),
    ("one demand changed, ms", "#2da44e", |point| point.cycle_ms),
    ("peak memory, MiB", "#bf8700", |point| point.peak_mib),
];

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const MARGIN: f64 = 50.0;

/// The picture.
pub fn svg(points: &[Point]) -> String {
    let all = || points.iter().flat_map(|point| CURVES.map(|(_, _, value)| value(point)));
    let x = Axis::over(points.iter().map(|point| point.nodes), MARGIN, WIDTH - MARGIN);
    let y = Axis::over(all(), HEIGHT - MARGIN, MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Cost of planning against the number of nodes</title>\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    for power in x.powers() {
        let at = x.at(10f64.powi(power));
        let _ = writeln!(svg, "<path d=\"M{at:.1} {MARGIN}V{:.1}\" stroke=\"#ddd\"/>", HEIGHT - MARGIN);
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">10^{power}</text>", HEIGHT - MARGIN + 18.0);
    }
    for power in y.powers() {
        let at = y.at(10f64.powi(power));
        let _ = writeln!(svg, "<path d=\"M{MARGIN} {at:.1}H{:.1}\" stroke=\"#ddd\"/>", WIDTH - MARGIN);
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">10^{power}</text>", MARGIN - 6.0, at + 4.0);
    }
    let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">nodes</text>", WIDTH / 2.0, HEIGHT - 12.0);
    for (row, (name, colour, value)) in CURVES.iter().enumerate() {
        let line: Vec<String> =
            points.iter().map(|point| format!("{:.1},{:.1}", x.at(point.nodes), y.at(value(point)))).collect();
        let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", line.join(" "));
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            MARGIN + 10.0,
            MARGIN + 16.0 * (row as f64 + 1.0)
        );
    }
    svg + "</svg>\n"
}

/// A logarithmic axis from `from` to `to` in the picture.
struct Axis {
    low: i32,
    high: i32,
    from: f64,
    to: f64,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let power = |value: f64| value.max(1e-6).log10();
        let low = power(low).floor() as i32;
        Self { low, high: (power(high).ceil() as i32).max(low + 1), from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(1e-6).log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    fn powers(&self) -> std::ops::RangeInclusive<i32> {
        self.low..=self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_times_as_much_is_as_far_everywhere() {
        let axis = Axis::over([3.0, 2000.0].into_iter(), 0.0, 400.0);
        assert_eq!((axis.at(1.0), axis.at(10.0), axis.at(10_000.0)), (0.0, 100.0, 400.0));
    }

    #[test]
    fn each_size_is_on_each_curve() {
        let point = |nodes: f64| Point { nodes, cold_ms: nodes, cycle_ms: 0.0, peak_mib: 2.0 };
        let svg = svg(&[point(10.0), point(100.0)]);
        let curves: Vec<&str> = svg.lines().filter(|line| line.starts_with("<polyline")).collect();
        assert_eq!(curves.len(), 3);
        assert!(curves.iter().all(|curve| curve.matches(',').count() == 2), "{curves:?}");
    }
}
