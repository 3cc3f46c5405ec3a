//! Textbook formulas, with the symbols of their sources. Times in seconds, rates per second.

/// Throughput of `clients` sessions that think for `think_s` between requests answered in `response_s`:
/// `lambda = C / (t + Z)` (Carrera eq. 5.5). Zero when nobody asks; the denominator is kept above a nanosecond.
pub fn closed_throughput(clients: f64, response_s: f64, think_s: f64) -> f64 {
    clients.max(0.0) / (response_s.max(0.0) + think_s.max(0.0)).max(1e-9)
}

/// Mean response time of an M/G/1 queue (Stewart & Shen section 3.2): `e + rho e (1 + c^2) / (2 (1 - rho))` for a mean
/// execution time `e`, workload intensity `rho` and coefficient of variation `c`. Infinite from `rho = 1` on.
pub fn mg1_response(execution_s: f64, intensity: f64, variation: f64) -> f64 {
    if intensity >= 1.0 {
        return f64::INFINITY;
    }
    let intensity = intensity.max(0.0);
    execution_s + intensity * execution_s * (1.0 + variation * variation) / (2.0 * (1.0 - intensity))
}

/// Mean response time under processor sharing: `e / (1 - rho)`. Infinite from `rho = 1` on.
pub fn ps_response(execution_s: f64, intensity: f64) -> f64 {
    if intensity >= 1.0 { f64::INFINITY } else { execution_s / (1.0 - intensity.max(0.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponential_mg1_queue_answers_like_processor_sharing() {
        for intensity in [0.0, 0.3, 0.9] {
            assert!((mg1_response(0.02, intensity, 1.0) - ps_response(0.02, intensity)).abs() < 1e-12);
        }
        assert_eq!(mg1_response(0.02, 1.0, 1.0), f64::INFINITY);
        assert_eq!(closed_throughput(10.0, 0.3, 0.7), 10.0);
    }
}
