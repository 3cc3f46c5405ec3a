//! Line and area charts as SVG text.
//!
//! No chart library: what is needed is two shapes, and what matters (dashes and labels for people who see no colours,
//! `currentColor` for dark pages, gaps for missing values) is what libraries leave to their users.

use std::fmt::Write;

/// Colours that people with any kind of colour blindness tell apart (Okabe and Ito 2008), as CSS classes `c0`..`c6`.
pub const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7a6f00"];
/// Dash patterns, so that lines differ without colour.
const DASHES: [&str; 7] = ["none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 2"];

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
    pub fn to_svg(&self) -> String {
        let (low, high) = self.range();
        let duration = if self.duration_s > 0.0 { self.duration_s } else { 1.0 };
        let scale = Scale { low, high, duration };
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\"><title>{}</title>", escape(self.title));
        self.axes(&scale, &mut svg);
        for &at in &self.marks {
            let x = scale.x(at);
            let _ = write!(svg, "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>", HEIGHT - BOTTOM);
        }
        if self.stacked {
            self.areas(&scale, &mut svg)
        } else {
            self.curves(&scale, &mut svg)
        }
        svg.push_str("</svg>");
        svg
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

    fn axes(&self, scale: &Scale, svg: &mut String) {
        for value in ticks(scale.low, scale.high, 4) {
            let y = scale.y(value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                number(value)
            );
        }
        for value in ticks(0.0, scale.duration, 6) {
            let _ = write!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                scale.x(value),
                HEIGHT - 8.0,
                span(value)
            );
        }
        for (value, label, style) in &self.limits {
            let y = scale.y(*value);
            let _ = write!(
                svg,
                "<line class=\"limit c{style}\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"f{style}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                WIDTH - RIGHT,
                LEFT + 4.0,
                y - 3.0,
                escape(label)
            );
        }
    }

    fn curves(&self, scale: &Scale, svg: &mut String) {
        let mut labels = Vec::new();
        for line in &self.lines {
            let style = line.style % COLOURS.len();
            let mut path = String::new();
            let mut broken = true;
            for &(at, value) in &line.points {
                let Some(value) = value.filter(|value| value.is_finite()) else {
                    broken = true;
                    continue;
                };
                let _ = write!(path, "{}{:.1} {:.1}", if broken { "M" } else { "L" }, scale.x(at), scale.y(value));
                broken = false;
            }
            let _ = write!(svg, "<path class=\"line c{style}\" stroke-dasharray=\"{}\" d=\"{path}\"/>", DASHES[style]);
            if let Some(last) = line.points.iter().rev().find_map(|&(_, value)| value) {
                labels.push((scale.y(last), style, &line.name));
            }
        }
        write_labels(labels, svg);
    }

    fn areas(&self, scale: &Scale, svg: &mut String) {
        let count = self.lines.iter().map(|line| line.points.len()).max().unwrap_or(0);
        let mut below = vec![0.0; count];
        let mut labels = Vec::new();
        for line in &self.lines {
            let style = line.style % COLOURS.len();
            let lower = below.clone();
            let mut forth = String::new();
            let mut back = String::new();
            for (i, &(at, value)) in line.points.iter().enumerate() {
                below[i] += value.unwrap_or(0.0).max(0.0);
                let _ = write!(forth, "{}{:.1} {:.1}", if i == 0 { "M" } else { "L" }, scale.x(at), scale.y(below[i]));
                back.insert_str(0, &format!("L{:.1} {:.1}", scale.x(at), scale.y(lower[i])));
            }
            if line.points.is_empty() {
                continue;
            }
            let _ = write!(
                svg,
                "<path class=\"area a{style}\" d=\"{forth}{back}Z\"/><path class=\"line c{style}\" stroke-dasharray=\"{}\" d=\"{forth}\"/>",
                DASHES[style]
            );
            let middle = (below[count - 1] + lower[count - 1]) / 2.0;
            labels.push((scale.y(middle), style, &line.name));
        }
        write_labels(labels, svg);
    }
}

/// Writes labels at the right end, moved apart so that none covers another.
fn write_labels(mut labels: Vec<(f64, usize, &String)>, svg: &mut String) {
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut lowest = TOP;
    for (y, style, name) in labels {
        let y = y.max(lowest).min(HEIGHT - 4.0);
        lowest = y + 12.0;
        let shown: String = if name.chars().count() > 20 { name.chars().take(19).chain(['…']).collect() } else { name.clone() };
        let _ = write!(
            svg,
            "<text class=\"f{style}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT + 6.0,
            y + 4.0,
            escape(&shown)
        );
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

/// About `count` round values from `low` to `high`.
fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let raw = (high - low) / count as f64;
    let power = 10.0_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|&step| step >= raw).unwrap_or(raw);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|i| i as f64 * step).collect()
}

fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn span(seconds: f64) -> String {
    if seconds >= 120.0 { format!("{} min", number(seconds / 60.0)) } else { format!("{} s", number(seconds)) }
}

/// Text that is safe between tags and in attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() && c != '\n' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}
