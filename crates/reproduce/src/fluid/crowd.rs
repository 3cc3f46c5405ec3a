//! A flash crowd, and how long it hurts until another instance is up.
//!
//! Work arrives at `load` (in units of what one instance does in a second); what an instance cannot do at once waits. The
//! response time of what arrives at `t` is the time that everything before it takes, plus its own service. At the first
//! look, one period apart, at which an instance is used for more than `threshold`, another one is asked for. It serves
//! `enactment_s` later, when the router knows of it, `router_s` later still.

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crowd {
    /// Load before the crowd comes, and with it.
    pub load: [f64; 2],
    /// When it comes.
    pub at_s: f64,
    /// Seconds that a request takes where nobody waits.
    pub service_s: f64,
    /// Use of an instance from which on another one is asked for.
    pub threshold: f64,
    /// Seconds between two looks at the use.
    pub look_s: f64,
    /// Seconds to bring an instance up.
    pub enactment_s: f64,
    /// Seconds until requests go there.
    pub router_s: f64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponseCurve {
    /// (time, response time of what arrives then), in seconds.
    pub points: Vec<(f64, f64)>,
    /// When the second instance serves.
    pub serves_s: f64,
}

impl ResponseCurve {
    /// The longest response time.
    pub fn worst_s(&self) -> f64 {
        self.points.iter().map(|point| point.1).fold(0.0, f64::max)
    }

    /// Seconds in which arrivals wait longer than `goal_s`.
    pub fn missed_s(&self, goal_s: f64) -> f64 {
        self.points.windows(2).filter(|pair| pair[0].1 > goal_s).map(|pair| pair[1].0 - pair[0].0).sum()
    }
}

/// Seconds between two points of a course.
const STEP_S: f64 = 0.05;

/// The course of `until_s` seconds.
pub fn play(crowd: &Crowd, until_s: f64) -> ResponseCurve {
    let (mut waiting, mut instances) = (0.0f64, 1.0);
    let mut course = ResponseCurve { points: Vec::new(), serves_s: f64::INFINITY };
    let mut look_s = crowd.look_s;
    for step in 0..(until_s / STEP_S) as usize {
        let now_s = step as f64 * STEP_S;
        if now_s >= course.serves_s {
            instances = 2.0;
        }
        let load = crowd.load[usize::from(now_s >= crowd.at_s)];
        let used = if waiting > 0.0 { 1.0 } else { (load / instances).min(1.0) };
        if now_s >= look_s {
            look_s += crowd.look_s;
            if used >= crowd.threshold && course.serves_s.is_infinite() {
                course.serves_s = now_s + crowd.enactment_s + crowd.router_s;
            }
        }
        course.points.push((now_s, waiting / instances + crowd.service_s));
        waiting = (waiting + (load - instances) * STEP_S).max(0.0);
    }
    course
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_grows_by_the_overload_until_help_comes() {
        let crowd =
            Crowd { load: [0.5, 1.5], at_s: 10.0, service_s: 0.1, threshold: 0.8, look_s: 1.0, enactment_s: 18.0, router_s: 1.0 };
        let course = play(&crowd, 200.0);
        assert!((course.serves_s - 30.0).abs() < 1.1, "{}", course.serves_s);
        let peak = 0.5 * (course.serves_s - 10.0);
        assert!((course.worst_s() - peak).abs() < 0.3, "{} of {peak}", course.worst_s());
        // Then half a second of work is done a second beyond what comes.
        let drained = course.serves_s + peak / 0.5;
        assert!((course.missed_s(0.2) - (drained - 10.0)).abs() < 1.0, "{}", course.missed_s(0.2));
        let calm = play(&Crowd { load: [0.5, 0.7], ..crowd }, 100.0);
        assert!(calm.serves_s.is_infinite() && calm.missed_s(0.2) == 0.0);
    }
}
