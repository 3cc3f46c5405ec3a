//! Line and area charts as SVG.
//!
//! No chart library: what is needed is two shapes, and what matters (dashes and labels for people who see no colours,
//! `currentColor` for dark pages, gaps for missing values) is what libraries leave to their users.

use std::fmt::Write;

use maud::{Markup, html};

use super::axes::{DASHES, tenths, ticks};

/// Colours that people with any kind of colour blindness tell apart (Okabe and Ito 2008), as CSS classes `c0`..`c6`.
pub const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7a6f00"];
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 130.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 26.0;

/// (seconds, value); `None` is a gap.
pub type Points = Vec<(f64, Option<f64>)>;

/// One line of a chart.
pub struct Line {
    /// Its label.
    pub name: String,
    /// Which colour and dashes.
    pub style: usize,
    /// What it goes through.
    pub points: Points,
}

/// A chart.
pub struct Chart<'a> {
    /// What it shows, with its unit.
    pub title: &'a str,
    /// Seconds on the time axis.
    pub duration_s: f64,
    /// The lines; for an area chart they are stacked in order.
    pub lines: Vec<Line>,
    /// Horizontal lines, such as goals: value, label, style of the line they belong to.
    pub limits: Vec<(f64, String, usize)>,
    /// Vertical lines, such as placement changes, in seconds.
    pub marks: Vec<f64>,
    /// Stacked areas instead of lines.
    pub stacked: bool,
    /// Values above this are cut off, so that one outlier does not hide the rest.
    pub cap: Option<f64>,
}

impl Chart<'_> {
    /// The chart as one `<svg>` element with a title for screen readers.
    pub fn to_svg(&self) -> Markup {
        let (low, high) = self.range();
        let duration = if self.duration_s > 0.0 { self.duration_s } else { 1.0 };
        let scale = Scale { low, high, duration };
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" {
                title { (self.title) }
                (self.axes(&scale))
                @for x in self.marks.iter().map(|&at| tenths(scale.x(at))) {
                    line class="mark" x1=(x) x2=(x) y1=(TOP) y2=(tenths(HEIGHT - BOTTOM)) {}
                }
                @if self.stacked { (self.areas(&scale)) } @else { (self.curves(&scale)) }
            }
        }
    }

    fn range(&self) -> (f64, f64) {
        let values = self.lines.iter().flat_map(|line| line.points.iter().filter_map(|&(_, value)| value));
        let limits = self.limits.iter().map(|&(value, ..)| value);
        let (mut low, mut high) = (0.0_f64, f64::MIN_POSITIVE);
        if self.stacked {
            let count = self.lines.iter().map(|line| line.points.len()).max().unwrap_or(0);
            for i in 0..count {
                high = high.max(self.lines.iter().filter_map(|line| line.points.get(i).and_then(|&(_, value)| value)).sum());
            }
            high = limits.fold(high, f64::max);
        } else {
            for value in values.chain(limits).filter(|value| value.is_finite()) {
                low = low.min(value);
                high = high.max(value);
            }
        }
        if let Some(cap) = self.cap {
            high = high.min(cap);
            low = low.max(-cap);
        }
        if high - low < 1e-9 { (low, low + 1.0) } else { (low, high + (high - low) * 0.05) }
    }

    fn axes(&self, scale: &Scale) -> Markup {
        let right = tenths(WIDTH - RIGHT);
        html! {
            @for value in ticks(scale.low, scale.high, 4) {
                @let y = scale.y(value);
                line class="grid" x1=(LEFT) x2=(right) y1=(tenths(y)) y2=(tenths(y)) {}
                text x=(tenths(LEFT - 6.0)) y=(tenths(y + 4.0)) text-anchor="end" { (number(value)) }
            }
            @for value in ticks(0.0, scale.duration, 6) {
                text x=(tenths(scale.x(value))) y=(tenths(HEIGHT - 8.0)) text-anchor="middle" { (span(value)) }
            }
            @for (value, label, style) in &self.limits {
                @let y = scale.y(*value);
                line class={ "limit c" (style) } x1=(LEFT) x2=(right) y1=(tenths(y)) y2=(tenths(y)) {}
                text class={ "f" (style) } x=(tenths(LEFT + 4.0)) y=(tenths(y - 3.0)) { (label) }
            }
        }
    }

    fn curves(&self, scale: &Scale) -> Markup {
        let last = |line: &Line| line.points.iter().rev().find_map(|&(_, value)| value);
        let label = |line| Some(Label { y: scale.y(last(line)?), style: line.style % COLOURS.len(), name: &line.name });
        html! {
            @for line in &self.lines {
                @let style = line.style % COLOURS.len();
                path class={ "line c" (style) } stroke-dasharray=(DASHES[style]) d=(curve(&line.points, scale)) {}
            }
            (labels(self.lines.iter().filter_map(label).collect()))
        }
    }

    fn areas(&self, scale: &Scale) -> Markup {
        let count = self.lines.iter().map(|line| line.points.len()).max().unwrap_or(0);
        let mut below = vec![0.0; count];
        let mut areas = Vec::new();
        for line in self.lines.iter().filter(|line| !line.points.is_empty()) {
            let style = line.style % COLOURS.len();
            let lower = below.clone();
            let mut forth = String::new();
            let mut back = String::new();
            for (i, &(at, value)) in line.points.iter().enumerate() {
                below[i] += value.unwrap_or(0.0).max(0.0);
                // Writing into a string cannot fail.
                let _ = write!(forth, "{}{:.1} {:.1}", if i == 0 { "M" } else { "L" }, scale.x(at), scale.y(below[i]));
                back.insert_str(0, &format!("L{:.1} {:.1}", scale.x(at), scale.y(lower[i])));
            }
            let middle = (below[count - 1] + lower[count - 1]) / 2.0;
            areas.push((forth, back, Label { y: scale.y(middle), style, name: &line.name }));
        }
        html! {
            @for (forth, back, Label { style, .. }) in &areas {
                path class={ "area a" (style) } d={ (forth) (back) "Z" } {}
                path class={ "line c" (style) } stroke-dasharray=(DASHES[*style]) d=(forth) {}
            }
            (labels(areas.into_iter().map(|(.., label)| label).collect()))
        }
    }
}

/// The path through these points, with a gap where one has no value.
fn curve(points: &Points, scale: &Scale) -> String {
    let mut path = String::new();
    let mut broken = true;
    for &(at, value) in points {
        let Some(value) = value.filter(|value| value.is_finite()) else {
            broken = true;
            continue;
        };
        // Writing into a string cannot fail.
        let _ = write!(path, "{}{:.1} {:.1}", if broken { "M" } else { "L" }, scale.x(at), scale.y(value));
        broken = false;
    }
    path
}

/// The name of a line at its right end.
struct Label<'a> {
    y: f64,
    style: usize,
    name: &'a str,
}

/// Labels at the right end, moved apart so that none covers another.
fn labels(mut labels: Vec<Label>) -> Markup {
    labels.sort_by(|a, b| a.y.total_cmp(&b.y));
    let mut lowest = TOP;
    for label in &mut labels {
        label.y = label.y.max(lowest).min(HEIGHT - 4.0);
        lowest = label.y + 12.0;
    }
    html! {
        @for Label { y, style, name } in &labels {
            text class={ "f" (style) } x=(tenths(WIDTH - RIGHT + 6.0)) y=(tenths(y + 4.0)) {
                @if name.chars().count() > 20 { (name.chars().take(19).collect::<String>()) "…" } @else { (name) }
            }
        }
    }
}

struct Scale {
    low: f64,
    high: f64,
    duration: f64,
}

impl Scale {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (seconds / self.duration).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn span(seconds: f64) -> String {
    if seconds >= 120.0 { format!("{} min", number(seconds / 60.0)) } else { format!("{} s", number(seconds)) }
}
