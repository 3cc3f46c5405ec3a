//! Share exchange among the tasks of a parallel job (Tsai 5.3): a task with CPU to spare gives it to one that waits for it.
//!
//! A task `i` owns the share `w_i` of CPU and used `u_i` in the last period. What it did not use is its excess
//! `e_i = max(w_i - u_i, 0)`; what it lacks, on a node with `r_j` left, is its shortage `f_i = max(min(u_i - w_i, r_j), 0)`.
//!
//! Two readings of misprints: a shortage is never negative, and 5.2 takes the minimum (the maximum overspends the bank).
//!
//! Invariant of both strategies: the sum of all shares and the bank's balance stays the same.

/// CPU that a task owned and did not use.
pub fn excess(share: f64, used: f64) -> f64 {
    (share - used).max(0.0)
}

/// CPU that a task lacks, as far as its node has room for it.
pub fn shortage(share: f64, used: f64, room: f64) -> f64 {
    (used - share).min(room).max(0.0)
}

/// What one task gives away in the fully distributed strategy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transfer {
    /// To each upstream task.
    pub each: f64,
    /// Kept of the excess.
    pub retained: f64,
}

/// Fully distributed (5.1): the excess, less the share `withhold` of it, in equal parts to `upstreams` tasks.
pub fn distribute(excess: f64, withhold: f64, upstreams: usize) -> Transfer {
    if upstreams == 0 {
        return Transfer { each: 0.0, retained: excess };
    }
    let each = excess * (1.0 - withhold.clamp(0.0, 1.0)) / upstreams as f64;
    Transfer { each, retained: excess - each * upstreams as f64 }
}

/// The withholding factor with which a task keeps as much as it gives to each of `upstreams` tasks.
pub fn even_withhold(upstreams: usize) -> f64 {
    1.0 / (upstreams as f64 + 1.0)
}

/// Bank-assisted (5.2): what each task gets from a balance, given all shortages.
///
/// When the balance covers all shortages, what is left over goes to all tasks in proportion to their `shares`.
pub fn redistribute(balance: f64, shortages: &[f64], shares: &[f64]) -> Vec<f64> {
    let wanted: f64 = shortages.iter().sum();
    let coverage = if wanted > 0.0 { (balance / wanted).min(1.0) } else { 0.0 };
    let left = (balance - wanted).max(0.0);
    let owned: f64 = shares.iter().sum();
    let part = |share: f64| if owned > 0.0 { share / owned } else { 1.0 / shares.len() as f64 };
    shortages.iter().zip(shares).map(|(shortage, &share)| shortage * coverage + left * part(share)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_task_with_0_4_to_spare_gives_0_1_to_each_of_three_and_keeps_0_1_of_it() {
        // Tsai 5.3.3: share 0.5, use 0.1; after the transfers it owns 0.2.
        let spare = excess(0.5, 0.1);
        let transfer = distribute(spare, even_withhold(3), 3);
        assert!((spare - 0.4).abs() < 1e-12 && (transfer.each - 0.1).abs() < 1e-12);
        assert!((0.5 - 3.0 * transfer.each - 0.2).abs() < 1e-12);
    }

    #[test]
    fn a_bank_with_half_of_what_is_lacking_gives_everyone_half() {
        // Tsai 5.3.4: 0.3 in the bank, 0.6 lacking, a task that lacks 0.17 gets 0.085.
        let given = redistribute(0.3, &[shortage(0.5, 0.67, 1.0), 0.43], &[0.5, 0.5]);
        assert!((given[0] - 0.085).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn nothing_is_made_or_lost(balance in 0.0..4.0f64, tasks in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64, 0.0..1.0f64), 1..9)) {
            let shares: Vec<f64> = tasks.iter().map(|task| task.0 + 1e-3).collect();
            let shortages: Vec<f64> = tasks.iter().zip(&shares).map(|(task, share)| shortage(*share, task.1, task.2)).collect();
            let given: f64 = redistribute(balance, &shortages, &shares).iter().sum();
            prop_assert!((given - balance).abs() < 1e-9, "{given} of {balance}");
            let spare = excess(shares[0], tasks[0].1);
            let transfer = distribute(spare, tasks[0].2, tasks.len());
            prop_assert!((transfer.each * tasks.len() as f64 + transfer.retained - spare).abs() < 1e-12);
        }
    }
}
