//! What all charts have in common: dashes, round values on an axis, coordinates.

/// Dash patterns, so that lines differ without colour.
pub const DASHES: [&str; 7] = ["none", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2", "1 2"];

/// About `count` round values from `low` to `high`.
pub fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let raw = (high - low) / count as f64;
    let power = 10.0_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|&step| step >= raw).unwrap_or(raw);
    ((low / step).ceil() as i64..=(high / step).floor() as i64).map(|i| i as f64 * step).collect()
}

/// A coordinate: a tenth of a unit is finer than any screen shows.
pub fn tenths(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(-0.3, 0.7, 5), [-0.2, 0.0, 0.2, 0.4, 0.6000000000000001]);
    }
}
