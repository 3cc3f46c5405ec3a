//! How numbers, means and their tolerances are written.

/// A number with the digits that matter.
pub(crate) fn number(value: f64) -> String {
    let text = if value.abs() >= 1000.0 { format!("{value:.0}") } else { format!("{value:.4}") };
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text };
    if text == "-0" { "0".to_owned() } else { text }
}

/// A number and how far another may be from it; tolerances for rounding keep their power of ten.
pub(crate) fn with_tolerance(value: f64, tolerance: f64) -> String {
    match tolerance {
        0.0 => number(value),
        small if small < 1e-4 => format!("{} ±{small:e}", number(value)),
        _ => format!("{} ±{}", number(value), number(tolerance)),
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The mean with the half width of its 95% confidence interval (Student's t); without one for a single value.
pub(crate) fn interval(values: &[f64]) -> String {
    let half = half_width(values);
    if half > 0.0 { format!("{} ± {}", number(mean(values)), number(half)) } else { number(mean(values)) }
}

fn half_width(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let n = values.len() as f64;
    let centre = mean(values);
    let variance = values.iter().map(|value| (value - centre).powi(2)).sum::<f64>() / (n - 1.0);
    student_975(n - 1.0) * (variance / n).sqrt()
}

/// The 0.975 quantile of Student's t by its expansion in 1/n around the normal one (Abramowitz and Stegun 26.7.5).
fn student_975(freedom: f64) -> f64 {
    let z: f64 = 1.959_964;
    let (z3, z5, z7) = (z.powi(3), z.powi(5), z.powi(7));
    z + (z3 + z) / (4.0 * freedom)
        + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * freedom.powi(2))
        + (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * freedom.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_those_of_student() {
        assert!((student_975(19.0) - 2.093).abs() < 1e-3);
        assert!((student_975(4.0) - 2.776).abs() < 0.02);
        assert_eq!(interval(&[2.0]), "2");
        assert_eq!(interval(&[1.0, 2.0, 3.0, 4.0, 5.0]), format!("3 ± {}", number(student_975(4.0) * 0.5f64.sqrt())));
    }

    #[test]
    fn a_tolerance_is_written_unless_it_is_nothing() {
        assert_eq!(with_tolerance(17_600.0, 0.0), "17600");
        assert_eq!(with_tolerance(0.7, 0.05), "0.7 ±0.05");
        assert_eq!(with_tolerance(0.0, 1e-9), "0 ±1e-9");
    }
}
