//! A monotone piecewise-linear function and its inverse.

use serde::{Deserialize, Serialize};
use weal_model::{Cpu, Utility};

/// Utility as a function of CPU: non-decreasing, linear between its points, flat outside them.
///
/// Invariant: at least one point; `cpu` strictly increases and is finite and non-negative; `utility` does not decrease and is
/// finite. Constructors repair what breaks this, so a NaN in a measurement never reaches a planner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    points: Vec<(f64, f64)>,
}

/// Values further out than this are cut: beyond it a curve says "hopeless" and sums would lose their digits.
const FARTHEST: f64 = 1e6;

impl Curve {
    /// Samples used where a model is turned into a curve: the error of the interpolation stays below 0.01 for hyperbolas.
    pub const SAMPLES: usize = 48;

    /// Through these points (CPU, utility), in any order. Points with a NaN or a negative CPU are dropped; a utility that
    /// would decrease is raised to its predecessor's. Without any usable point: the constant 0.
    pub fn through(points: impl IntoIterator<Item = (Cpu, Utility)>) -> Self {
        let mut usable: Vec<(f64, f64)> = points
            .into_iter()
            .map(|(cpu, utility)| (cpu.0, utility.0))
            .filter(|(cpu, utility)| cpu.is_finite() && *cpu >= 0.0 && !utility.is_nan())
            .map(|(cpu, utility)| (cpu, utility.clamp(-FARTHEST, FARTHEST)))
            .collect();
        usable.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let mut points: Vec<(f64, f64)> = Vec::with_capacity(usable.len());
        for (cpu, utility) in usable {
            let floor = points.last().map_or(f64::NEG_INFINITY, |last| last.1);
            match points.last_mut() {
                Some(last) if last.0 == cpu => last.1 = utility.max(floor),
                _ => points.push((cpu, utility.max(floor))),
            }
        }
        if points.is_empty() {
            return Self::constant(Utility::AT_GOAL);
        }
        Self { points }
    }

    /// The same utility whatever the CPU: of something that wants none.
    pub fn constant(utility: Utility) -> Self {
        let utility = if utility.0.is_nan() { 0.0 } else { utility.0.clamp(-FARTHEST, FARTHEST) };
        Self { points: vec![(0.0, utility)] }
    }

    /// From an inverse, `cpu(utility)` non-decreasing, sampled over `[worst, best]`, more densely near the best where
    /// curves bend: eq. 5.6 and 5.7 of Carrera give the inverse, planners want the function.
    pub fn from_inverse(worst: Utility, best: Utility, cpu: impl Fn(Utility) -> Cpu) -> Self {
        let span = best.0 - worst.0;
        if !span.is_finite() || span <= 0.0 {
            return Self::through([(cpu(best), best)]);
        }
        Self::through((0..=Self::SAMPLES).map(|i| {
            let left = 1.0 - i as f64 / Self::SAMPLES as f64;
            let utility = Utility(best.0 - span * left * left);
            (cpu(utility), utility)
        }))
    }

    /// The utility at `cpu`; of the first point below it, of the last point above it. NaN counts as zero CPU.
    pub fn utility_at(&self, cpu: Cpu) -> Utility {
        let cpu = if cpu.0.is_nan() { 0.0 } else { cpu.0 };
        let right = self.points.partition_point(|point| point.0 <= cpu);
        if right == 0 {
            return Utility(self.points[0].1);
        }
        let (x0, y0) = self.points[right - 1];
        match self.points.get(right) {
            None => Utility(y0),
            Some(&(x1, y1)) => Utility(y0 + (y1 - y0) * (cpu - x0) / (x1 - x0)),
        }
    }

    /// The least CPU that gives at least `utility`; `None` when no CPU does.
    pub fn cpu_for(&self, utility: Utility) -> Option<Cpu> {
        let right = self.points.partition_point(|point| point.1 < utility.0);
        let &(x1, y1) = self.points.get(right)?;
        if right == 0 {
            return Some(Cpu(if utility.0 <= self.worst().0 { 0.0 } else { x1 }));
        }
        let (x0, y0) = self.points[right - 1];
        Some(Cpu(x0 + (x1 - x0) * (utility.0 - y0) / (y1 - y0)))
    }

    /// The utility without any CPU.
    pub fn worst(&self) -> Utility {
        Utility(self.points[0].1)
    }

    /// The highest utility there is.
    pub fn best(&self) -> Utility {
        Utility(self.points[self.points.len() - 1].1)
    }

    /// The least CPU that gives [`Curve::best`]: the demand.
    pub fn demand(&self) -> Cpu {
        self.cpu_for(self.best()).unwrap_or_default()
    }

    /// Its points (CPU, utility), in order.
    pub fn points(&self) -> impl ExactSizeIterator<Item = (Cpu, Utility)> + '_ {
        self.points.iter().map(|&(cpu, utility)| (Cpu(cpu), Utility(utility)))
    }

    /// The curve of a group whose members are kept at one utility: `cpu(u)` is the sum of the members' (Carrera eq. 5.7).
    /// A member that cannot reach `u` takes what its best takes. Without members: the constant 1, they want nothing.
    pub fn of_group(members: &[Curve]) -> Self {
        let Some(best) = members.iter().map(Curve::best).max_by(|a, b| a.0.total_cmp(&b.0)) else {
            return Self::constant(Utility::BEST);
        };
        let mut levels: Vec<f64> = members.iter().flat_map(|member| member.points.iter().map(|point| point.1)).collect();
        levels.push(best.0);
        levels.sort_by(f64::total_cmp);
        levels.dedup();
        Self::through(levels.into_iter().map(|level| {
            let cpu = members.iter().map(|member| member.cpu_for(Utility(level)).unwrap_or_else(|| member.demand())).sum();
            (cpu, Utility(level))
        }))
    }

    /// The curve of what comes on top of `given`, which it has anyway.
    pub fn after(&self, given: f64) -> Self {
        let given = if given.is_finite() { given.max(0.0) } else { 0.0 };
        let start = (Cpu(0.0), self.utility_at(Cpu(given)));
        let beyond = self.points().filter(|(cpu, _)| cpu.0 > given).map(|(cpu, utility)| (Cpu(cpu.0 - given), utility));
        Self::through(std::iter::once(start).chain(beyond))
    }

    /// The curve of who gets `most` CPU at most: flat beyond that.
    #[must_use]
    pub fn up_to(&self, most: f64) -> Self {
        if most.is_nan() || most >= self.demand().0 {
            return self.clone();
        }
        let most = most.max(0.0);
        let end = (Cpu(most), self.utility_at(Cpu(most)));
        Self::through(self.points().filter(|(cpu, _)| cpu.0 < most).chain(std::iter::once(end)))
    }

    /// The same curve where each unit of CPU counts `factor` times: what a flow needs in another tier, for example.
    pub fn scaled(&self, factor: f64) -> Self {
        let factor = if factor.is_finite() { factor.max(0.0) } else { 1.0 };
        Self::through(self.points().map(|(cpu, utility)| (cpu * factor, utility)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn curve(points: &[(f64, f64)]) -> Curve {
        Curve::through(points.iter().map(|&(cpu, utility)| (Cpu(cpu), Utility(utility))))
    }

    #[test]
    fn a_curve_is_linear_between_its_points_and_flat_outside() {
        let curve = curve(&[(1.0, -1.0), (2.0, 0.0), (4.0, 1.0)]);
        for (cpu, utility) in [(0.0, -1.0), (1.5, -0.5), (3.0, 0.5), (9.0, 1.0), (f64::NAN, -1.0), (f64::INFINITY, 1.0)] {
            assert_eq!(curve.utility_at(Cpu(cpu)), Utility(utility));
        }
        assert_eq!(curve.cpu_for(Utility(0.5)), Some(Cpu(3.0)));
        assert_eq!(curve.cpu_for(Utility(1.1)), None);
        assert_eq!(curve.cpu_for(Utility(-5.0)), Some(Cpu(0.0)));
        assert_eq!(curve.demand(), Cpu(4.0));
    }

    #[test]
    fn broken_points_are_repaired() {
        let curve = curve(&[(f64::NAN, 1.0), (3.0, 0.2), (1.0, 0.5), (-1.0, 0.0), (2.0, f64::NAN), (1.0, 0.1)]);
        assert_eq!(curve.points().collect::<Vec<_>>(), [(Cpu(1.0), Utility(0.5)), (Cpu(3.0), Utility(0.5))]);
        assert_eq!(Curve::through([]).best(), Utility::AT_GOAL);
        assert_eq!(Curve::constant(Utility(f64::NAN)).best(), Utility::AT_GOAL);
        assert_eq!(Curve::of_group(&[]).demand(), Cpu(0.0));
    }

    #[test]
    fn what_is_had_anyway_is_not_needed_again() {
        let curve = curve(&[(1.0, -1.0), (2.0, 0.0), (4.0, 1.0)]);
        let rest = curve.after(1.5);
        for cpu in [0.0, 0.3, 1.0, 2.4, 9.0] {
            assert!((rest.utility_at(Cpu(cpu)).0 - curve.utility_at(Cpu(cpu + 1.5)).0).abs() < 1e-12, "at {cpu}");
        }
        assert_eq!(curve.after(9.0), Curve::constant(Utility(1.0)));
    }

    #[test]
    fn beyond_the_most_that_can_be_had_a_curve_is_flat() {
        let curve = curve(&[(1.0, -1.0), (2.0, 0.0), (4.0, 1.0)]);
        let cut = curve.up_to(3.0);
        for cpu in [0.0, 1.5, 3.0] {
            assert_eq!(cut.utility_at(Cpu(cpu)), curve.utility_at(Cpu(cpu)), "at {cpu}");
        }
        assert_eq!((cut.best(), cut.demand()), (Utility(0.5), Cpu(3.0)));
        assert_eq!(curve.up_to(f64::INFINITY), curve);
        assert_eq!(curve.up_to(0.0), Curve::constant(Utility(-1.0)));
    }

    #[test]
    fn a_group_needs_the_sum_of_its_members() {
        let group = Curve::of_group(&[curve(&[(0.0, -1.0), (2.0, 1.0)]), curve(&[(0.0, -2.0), (3.0, 0.5)])]);
        for level in [-1.0, -0.3, 0.0, 0.5] {
            let sum = (level + 1.0) + (level + 2.0) * 3.0 / 2.5;
            assert!((group.cpu_for(Utility(level)).unwrap().0 - sum).abs() < 1e-9, "at {level}");
        }
        assert_eq!(group.cpu_for(Utility(1.0)), Some(Cpu(5.0)), "the second stays at its best");
    }

    proptest! {
        #[test]
        fn the_inverse_undoes_the_curve(points in prop::collection::vec((0.0..100.0f64, -5.0..1.0f64), 1..20), at in -6.0..1.5f64) {
            let curve = curve(&points);
            match curve.cpu_for(Utility(at)) {
                None => prop_assert!(at > curve.best().0),
                Some(cpu) => {
                    prop_assert!(curve.utility_at(cpu).0 >= at - 1e-9);
                    prop_assert!(curve.utility_at(Cpu(cpu.0 * 0.99 - 1e-6)).0 <= at.max(curve.worst().0) + 1e-9);
                }
            }
        }
    }
}
