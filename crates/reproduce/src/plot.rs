//! Figures as SVG for the page, and as gnuplot scripts beside their CSV.

use std::fmt::Write;

use maud::{Markup, html};
use weal_scenario::report::axes::{DASHES, tenths, ticks};

use crate::Figure;
use crate::number::number;

/// Colours that people with any kind of colour blindness tell apart (Okabe and Ito 2008); each has its own dashes too. The
/// fifth and the sixth are darker than there and in reports, since here single points are drawn in them too.
const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07700", "#3A8FC0", "#7a6f00"];
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 260.0;
/// Room for the axes' numbers and names.
const LEFT: f64 = 70.0;
const BOTTOM: f64 = 44.0;
const TOP: f64 = 8.0;

/// The figure as one `<svg>` element, with its legend below.
pub(super) fn svg(figure: &Figure) -> Markup {
    let axes = Axes::of(figure);
    let height = HEIGHT + 16.0 * figure.curves.len().div_ceil(3) as f64;
    html! {
        svg viewBox={ "0 0 " (WIDTH) " " (height) } role="img" {
            title { (figure.title) }
            (axes.draw(figure))
            @for (i, name) in figure.curves.iter().enumerate() {
                @let (colour, dashes) = (COLOURS[i % COLOURS.len()], DASHES[i % DASHES.len()]);
                @if figure.points {
                    @for (x, y) in values(figure, i) {
                        circle cx=(tenths(axes.x(x))) cy=(tenths(axes.y(y))) r="3" fill=(colour) {}
                    }
                } @else {
                    path fill="none" stroke-width="1.6" stroke=(colour) stroke-dasharray=(dashes) d=(path(figure, i, &axes)) {}
                }
                @let (x, y) = (LEFT + (i % 3) as f64 * 190.0, HEIGHT + 12.0 + 16.0 * (i / 3) as f64);
                path stroke-width="2" stroke=(colour) stroke-dasharray=(dashes) d={ "M" (x) " " (tenths(y - 4.0)) "h22" } {}
                text x=(tenths(x + 26.0)) y=(tenths(y)) { (name) }
            }
        }
    }
}

/// A gnuplot script that draws all figures of a case from their CSV, as SVG files.
pub(super) fn gnuplot(case: &str, figures: &[Figure]) -> String {
    let mut script = format!("# Draws the figures of {case} from the CSV beside this script: gnuplot plot.gp\n");
    script += "set terminal svg size 800,420 dynamic\nset datafile separator comma\nset key outside below\nset grid\n";
    for figure in figures {
        let name = &figure.name;
        let with = if figure.points { "points" } else { "linespoints pointsize 0.4" };
        let _ = write!(
            script,
            "\nset output '{name}.svg'\nset title '{}' noenhanced\nset xlabel '{}' noenhanced\nset ylabel '{}' noenhanced\n\
             plot for [column=2:{}] '{name}.csv' using 1:column with {with} title columnheader(column) noenhanced\n",
            figure.title,
            figure.x,
            figure.y,
            figure.curves.len() + 1
        );
    }
    script
}

fn values(figure: &Figure, curve: usize) -> impl Iterator<Item = (f64, f64)> + '_ {
    figure.rows.iter().filter_map(move |(x, values)| Some((*x, values[curve]?)))
}

fn path(figure: &Figure, curve: usize, axes: &Axes) -> String {
    let mut path = String::new();
    let mut pen = 'M';
    for (x, values) in &figure.rows {
        match values[curve] {
            Some(y) => {
                let _ = write!(path, "{pen}{:.1} {:.1}", axes.x(*x), axes.y(y));
                pen = 'L';
            }
            // Curves over time go on after a gap from point to point: a gap means that nothing was done then.
            None => continue,
        }
    }
    path
}

struct Axes {
    x: (f64, f64),
    y: (f64, f64),
}

impl Axes {
    fn of(figure: &Figure) -> Self {
        let span = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
            if high > low { (low, high) } else { (low.min(0.0), low.max(0.0) + 1.0) }
        };
        let x = span(&mut figure.rows.iter().map(|(x, _)| *x));
        let (low, high) = span(&mut (0..figure.curves.len()).flat_map(|i| values(figure, i)).map(|(_, y)| y));
        // Zero belongs to the picture, unless all happens in a narrow band far from it.
        let y = if low > 0.0 && low < 0.7 * high { (0.0, high) } else { (low, high) };
        Self { x, y }
    }

    fn x(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (WIDTH - LEFT - 10.0)
    }

    fn y(&self, y: f64) -> f64 {
        HEIGHT - BOTTOM - (y - self.y.0) / (self.y.1 - self.y.0) * (HEIGHT - BOTTOM - TOP)
    }

    fn draw(&self, figure: &Figure) -> Markup {
        let middle = tenths(0.5 * (HEIGHT - BOTTOM));
        html! {
            @for value in ticks(self.y.0, self.y.1, 5) {
                @let y = self.y(value);
                path class="grid" d={ "M" (LEFT) " " (tenths(y)) "H" (tenths(WIDTH - 10.0)) } {}
                text x=(tenths(LEFT - 6.0)) y=(tenths(y + 4.0)) text-anchor="end" { (number(value)) }
            }
            @for value in ticks(self.x.0, self.x.1, 7) {
                text x=(tenths(self.x(value))) y=(tenths(HEIGHT - BOTTOM + 15.0)) text-anchor="middle" { (number(value)) }
            }
            text x=(tenths(0.5 * (LEFT + WIDTH))) y=(tenths(HEIGHT - 12.0)) text-anchor="middle" { (figure.x) }
            text transform={ "translate(12 " (middle) ") rotate(-90)" } text-anchor="middle" { (figure.y) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_drawn_with_its_names_and_one_path_per_curve() {
        let mut figure = Figure::new("f", "a < b", ["x", "y"], &["one", "two"]);
        figure.row(0.0, &[1.0, 5.0]);
        figure.row(10.0, &[2.0, f64::NAN]);
        let svg = svg(&figure).into_string();
        assert!(svg.contains("a &lt; b") && svg.contains(">two<"), "{svg}");
        assert_eq!(svg.matches("fill=\"none\"").count(), 2);
        assert!(!svg.contains("NaN"), "{svg}");
        assert!(gnuplot("X", &[figure]).contains("[column=2:3] 'f.csv'"));
    }
}
