//! The order in which jobs that wait are served.

use crate::jobs::Job;

/// The jobs that wait, `by_urgency`, in the order in which they are served: the places of those of one weight go to these by their priorities. So a priority counts among jobs that
/// matter alike, and takes no place from others.
pub(crate) fn in_line(jobs: &[Job], by_urgency: Vec<usize>) -> Vec<usize> {
    if by_urgency.iter().all(|&m| jobs[m].priority == 0) {
        return by_urgency;
    }
    let mut line = by_urgency.clone();
    let mut weights: Vec<f64> = by_urgency.iter().map(|&m| jobs[m].weight).collect();
    weights.sort_unstable_by(f64::total_cmp);
    weights.dedup();
    for weight in weights {
        let is_alike = |m: &usize| jobs[*m].weight == weight;
        let places: Vec<usize> = (0..by_urgency.len()).filter(|&place| is_alike(&by_urgency[place])).collect();
        let mut alike: Vec<usize> = by_urgency.iter().copied().filter(is_alike).collect();
        alike.sort_by_key(|&m| std::cmp::Reverse(jobs[m].priority));
        places.into_iter().zip(alike).for_each(|(place, m)| line[place] = m);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::job::tests::job;
    use crate::jobs::{Costs, Scheduler, Site, Situation, WealScheduler};

    /// The runs of jobs that all wait for the one place of a node of one core.
    fn begin(jobs: &[Job]) -> Vec<usize> {
        let nodes = [Site { cpu: 1.0, memory: 100 << 20 }];
        let situation = Situation { now_s: 0.0, cycle_s: 15.0, nodes: &nodes, jobs, apps: &[], costs: Costs::THESIS };
        let assignment = WealScheduler.schedule(&situation);
        (0..jobs.len()).filter(|&m| assignment.runs[m].is_some()).collect()
    }

    #[test]
    fn of_equal_jobs_the_first_begins() {
        let equal = job(0.0, 100.0, 10.0, 1.0, 100);
        assert_eq!(begin(&vec![equal.clone(); 12]), [0]);
        let urgent = job(0.0, 50.0, 10.0, 1.0, 100);
        assert_eq!(begin(&[equal.clone(), equal, urgent]), [2]);
    }

    #[test]
    fn a_priority_counts_among_jobs_that_matter_alike_and_takes_no_place_from_others() {
        let [equal, first] = [0, 5].map(|priority| Job { priority, ..job(0.0, 100.0, 10.0, 1.0, 100) });
        assert_eq!(begin(&[equal.clone(), first.clone(), equal.clone()]), [1]);
        let urgent = job(0.0, 50.0, 10.0, 1.0, 100);
        assert_eq!(begin(&[urgent.clone(), first.clone()]), [1], "it goes before one that is more urgent");
        let important = Job { weight: 4.0, ..job(0.0, 20.0, 10.0, 1.0, 100) };
        let jobs = [important, equal.clone(), first.clone(), Job { priority: -1, ..equal }];
        assert_eq!(begin(&jobs), [0], "and not before one of another class");
        assert_eq!(in_line(&jobs, vec![0, 1, 2, 3]), [0, 2, 1, 3]);
        assert_eq!(in_line(&jobs, vec![3, 1, 0, 2]), [2, 1, 0, 3], "places of others stay");
    }
}
