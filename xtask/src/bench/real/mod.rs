//! What is measured with real processes: an agent or a pool of its own, real servers, a load, and swap that is given back.

pub mod agent;
pub mod load;
pub mod machine;
pub mod pool;
pub mod server;
pub mod tls_gateway;

/// The value in the middle, the greater one where there are two.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The value below which `part` of them lie, the greater one where it falls between two.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (part * sorted.len() as f64) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values = [5.0, 1.0, 3.0, 2.0, 4.0];
        assert_eq!((median(&values), quantile(&values, 0.99), quantile(&values, 0.0)), (3.0, 5.0, 1.0));
        assert!(quantile(&[], 0.5).is_nan());
    }
}
