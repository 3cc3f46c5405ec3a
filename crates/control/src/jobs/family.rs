//! Families of jobs: jobs of one name, but for a number or date at its end. What one run tells, is expected of the others.

/// Families remembered, those that were learnt of last. More cost time at the end of each job, when all are written down; fewer forget a job that runs
/// once a month.
pub(super) const MOST_FAMILIES: usize = 1000;

/// The name without the number or date at its end.
pub(super) fn family(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '-' | '_' | '.' | ':'))
}
