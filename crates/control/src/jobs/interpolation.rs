//! Hypothetical utility as the thesis computes it: sampled and interpolated (Carrera 5.14-5.21). Kept for the reproduction;
//! `hypothetical` solves the same exactly.
//!
//! Readings of the misprints: 5.20 compares relative differences, `(dSum / Sum) / (dW_m / W_m)`, which then sums exactly;
//! 5.21's condition is `V_i = u_i`. As in the thesis' second example, all members of the group use the application ratio as
//! soon as one of them is constrained in the interval; ratios are clamped to 0..=1.

/// The matrices W and V over sampling points.
#[derive(Debug, Clone, PartialEq)]
pub struct Samples {
    /// `u_i`, ascending.
    targets: Vec<f64>,
    /// `w[i][m]`: CPU for member m at target i, or at its maximum (5.14).
    w: Vec<Vec<f64>>,
    /// `v[i][m]`: the utility that this gives (5.15).
    v: Vec<Vec<f64>>,
}

/// What the interpolation gives for one group allocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Interpolated {
    /// By the group's ratio alone (5.19).
    pub by_group: Vec<f64>,
    /// With the application ratio where a member is constrained (5.20, 5.21).
    pub by_app: Vec<f64>,
}

impl Samples {
    /// Samples `demand(m, u)` at ascending `targets`; member m cannot exceed `max_utility[m]`.
    pub fn new(targets: Vec<f64>, demand: impl Fn(usize, f64) -> f64, max_utility: &[f64]) -> Self {
        let v: Vec<Vec<f64>> = targets.iter().map(|&u| max_utility.iter().map(|&max| u.min(max)).collect()).collect();
        let w = v.iter().map(|row: &Vec<f64>| row.iter().enumerate().map(|(m, &u)| demand(m, u)).collect()).collect();
        Self { targets, w, v }
    }

    /// Each member's allocation for a group allocation of `cpu`; outside the sampled range, that of its nearest end.
    pub fn interpolate(&self, cpu: f64) -> Interpolated {
        let sum = |row: &[f64]| row.iter().sum::<f64>();
        let Some(k) = self.w.windows(2).position(|pair| sum(&pair[0]) <= cpu && cpu <= sum(&pair[1])) else {
            let below = self.w.first().is_some_and(|row| cpu < sum(row));
            let row = if below { self.w.first() } else { self.w.last() }.cloned().unwrap_or_default();
            return Interpolated { by_group: row.clone(), by_app: row };
        };
        let (low, high) = (&self.w[k], &self.w[k + 1]);
        let (sum_low, span) = (sum(low), sum(high) - sum(low));
        let ratio_g = if span > 0.0 { (cpu - sum_low) / span } else { 0.0 };
        let constrained = |i: usize| self.v[i].iter().any(|&v| v != self.targets[i]);
        let any_constrained = constrained(k) || constrained(k + 1);
        let ratio = |m: usize| {
            let (relative_sum, relative_own) = (span / sum_low, (high[m] - low[m]) / low[m]);
            let app_ratio = if relative_own > 0.0 { relative_sum / relative_own } else { 0.0 };
            if any_constrained && app_ratio.is_finite() { (ratio_g * app_ratio).clamp(0.0, 1.0) } else { ratio_g }
        };
        let at = |m: usize, ratio: f64| low[m] + (high[m] - low[m]) * ratio;
        Interpolated {
            by_group: (0..low.len()).map(|m| at(m, ratio_g)).collect(),
            by_app: (0..low.len()).map(|m| at(m, ratio(m))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(m: usize, u: f64) -> f64 {
        if m == 0 { u.powi(3) } else { u.powi(2) }
    }

    #[test]
    fn the_first_example_gives_131_32_and_18_68() {
        // Carrera 5.4.2.4, Figure 5.5.
        let got = Samples::new(vec![2.0, 8.0], demand, &[100.0, 100.0]).interpolate(150.0);
        assert!((got.by_app[0] - 131.32).abs() < 0.1 && (got.by_app[1] - 18.68).abs() < 0.1, "{got:?}");
    }

    #[test]
    fn the_second_example_needs_the_application_ratio() {
        // Carrera 5.4.2.4, Figure 5.6.
        let got = Samples::new(vec![5.0, 30.0], demand, &[10.0, 100.0]).interpolate(1180.0);
        assert!((got.by_group[0] - 640.0).abs() < 0.5 && (got.by_group[1] - 540.0).abs() < 0.5, "{got:?}");
        assert!((got.by_app[0] - 983.3).abs() < 0.5 && (got.by_app[1] - 196.7).abs() < 0.5, "{got:?}");
    }

    #[test]
    fn outside_the_samples_the_nearest_end_counts() {
        let samples = Samples::new(vec![2.0, 8.0], demand, &[100.0, 100.0]);
        assert_eq!(samples.interpolate(1.0).by_app, [8.0, 4.0]);
        assert_eq!(samples.interpolate(1e6).by_app, [512.0, 64.0]);
    }
}
