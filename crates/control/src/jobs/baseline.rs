//! The schedulers to compare with: first come first served, earliest deadline first, static partitions.

use weal_model::JobState;

use super::job::Needs;
use super::{AppCurve, Assignment, Division, Run, Scheduler, Site, Situation, divide};

/// First come, first served: nobody who runs is ever touched; who waits is placed first-fit in order of submission.
#[derive(Debug, Default, Clone, Copy)]
pub struct FirstComeFirstServed;

impl Scheduler for FirstComeFirstServed {
    fn name(&self) -> &'static str {
        "FCFS"
    }

    fn schedule(&self, situation: &Situation) -> Assignment {
        let jobs = situation.jobs;
        let mut slots = Slots::with_running(situation);
        for m in in_order(situation, |m| jobs[m].start_s) {
            slots.place(m);
        }
        slots.assignment()
    }
}

/// Earliest deadline first: preemptive; in order of deadlines, who waits is placed first-fit, and where it fits nowhere, in
/// place of who runs with the latest deadline, if that is later than its own.
#[derive(Debug, Default, Clone, Copy)]
pub struct EarliestDeadlineFirst;

impl Scheduler for EarliestDeadlineFirst {
    fn name(&self) -> &'static str {
        "EDF"
    }

    fn schedule(&self, situation: &Situation) -> Assignment {
        let jobs = situation.jobs;
        let mut slots = Slots::with_running(situation);
        let mut someone_can_yield = true;
        for m in in_order(situation, |m| jobs[m].deadline_s) {
            if slots.place(m) || !someone_can_yield {
                continue;
            }
            let later = |slots: &Slots| slots.latest_running().filter(|&r| jobs[r].deadline_s > jobs[m].deadline_s);
            // Deadlines only get later from here on.
            someone_can_yield = later(&slots).is_some();
            let mut trial = slots.clone();
            while let Some(latest) = later(&trial) {
                trial.release(latest);
                if trial.place(m) {
                    slots = trial;
                    break;
                }
            }
        }
        slots.assignment()
    }
}

/// The first `app_nodes` nodes are the applications', the rest is the jobs', and neither lends to the other (Carrera 5.6.3).
#[derive(Debug, Clone, Copy)]
pub struct StaticPartition<S> {
    /// How many nodes only applications use.
    pub app_nodes: usize,
    /// Who schedules the jobs on the others.
    pub jobs: S,
}

impl<S: Scheduler> Scheduler for StaticPartition<S> {
    fn name(&self) -> &'static str {
        "static partition"
    }

    fn schedule(&self, situation: &Situation) -> Assignment {
        let own = |node: usize| node < self.app_nodes;
        let nodes: Vec<Site> = situation
            .nodes
            .iter()
            .enumerate()
            .map(|(node, site)| if own(node) { Site { cpu: 0.0, memory: 0 } } else { *site })
            .collect();
        let mut assignment = self.jobs.schedule(&Situation { nodes: &nodes, apps: &[], ..situation.clone() });
        let apps: Vec<AppCurve> = situation
            .apps
            .iter()
            .map(|app| AppCurve { nodes: app.nodes.iter().copied().filter(|&node| own(node)).collect(), ..app.clone() })
            .collect();
        assignment.apps = divide(&Situation { jobs: &[], apps: &apps, ..situation.clone() }, &[]).apps;
        assignment
    }
}

/// The jobs in ascending order of `key`.
fn in_order(situation: &Situation, key: impl Fn(usize) -> f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..situation.jobs.len()).collect();
    order.sort_by(|&a, &b| key(a).total_cmp(&key(b)).then(a.cmp(&b)));
    order
}

/// What is placed and what is left, everyone at full speed.
#[derive(Clone)]
struct Slots<'a> {
    situation: &'a Situation<'a>,
    needs: Vec<Needs>,
    runs: Vec<Vec<usize>>,
    free: Vec<(f64, u64)>,
}

impl<'a> Slots<'a> {
    /// All that run, as far as they still fit.
    fn with_running(situation: &'a Situation<'a>) -> Self {
        let jobs = situation.jobs;
        let mut slots = Self {
            situation,
            needs: jobs.iter().map(|job| job.needs(situation.cycle_s)).collect(),
            runs: vec![Vec::new(); jobs.len()],
            free: situation.nodes.iter().map(|node| (node.cpu, node.memory)).collect(),
        };
        for (m, job) in jobs.iter().enumerate().filter(|(_, job)| job.state == JobState::Running) {
            let mut trial = slots.free.clone();
            if job.nodes.len() == job.tasks as usize && job.nodes.iter().all(|&node| slots.take(&mut trial, node, m)) {
                slots.free = trial;
                slots.runs[m].clone_from(&job.nodes);
            }
        }
        slots
    }

    fn fits(&self, free: &(f64, u64), m: usize) -> bool {
        free.0 >= self.needs[m].max_speed * (1.0 - 1e-9) && free.1 >= self.needs[m].memory
    }

    fn take(&self, free: &mut [(f64, u64)], node: usize, m: usize) -> bool {
        let needs = &self.needs[m];
        let Some(free) = free.get_mut(node) else { return false };
        let fits = self.fits(free, m);
        if fits {
            *free = (free.0 - needs.max_speed, free.1 - needs.memory);
        }
        fits
    }

    /// Places all tasks of `m` first-fit, or none; true when it runs.
    fn place(&mut self, m: usize) -> bool {
        let tasks = self.situation.jobs[m].tasks as usize;
        if self.runs[m].is_empty() && tasks == 1 {
            if let Some(node) = (0..self.free.len()).find(|&node| self.fits(&self.free[node], m)) {
                let needs = &self.needs[m];
                self.free[node] = (self.free[node].0 - needs.max_speed, self.free[node].1 - needs.memory);
                self.runs[m] = vec![node];
            }
        } else if self.runs[m].is_empty() {
            let (mut trial, mut nodes) = (self.free.clone(), Vec::with_capacity(tasks));
            for node in 0..trial.len() {
                while nodes.len() < tasks && self.take(&mut trial, node, m) {
                    nodes.push(node);
                }
            }
            if nodes.len() == tasks {
                (self.free, self.runs[m]) = (trial, nodes);
            }
        }
        !self.runs[m].is_empty()
    }

    fn release(&mut self, m: usize) {
        for node in std::mem::take(&mut self.runs[m]) {
            self.free[node] = (self.free[node].0 + self.needs[m].max_speed, self.free[node].1 + self.needs[m].memory);
        }
    }

    /// The job with the latest deadline of those that run.
    fn latest_running(&self) -> Option<usize> {
        let deadline = |m: usize| self.situation.jobs[m].deadline_s;
        (0..self.runs.len()).filter(|&m| !self.runs[m].is_empty()).max_by(|&a, &b| deadline(a).total_cmp(&deadline(b)))
    }

    fn assignment(self) -> Assignment {
        let Division { speeds, apps } = divide(self.situation, &self.runs);
        let run = |(nodes, speed): (Vec<usize>, f64)| (!nodes.is_empty()).then_some(Run { nodes, speed });
        Assignment { runs: self.runs.into_iter().zip(speeds).map(run).collect(), apps }
    }
}

#[cfg(test)]
mod tests {
    use weal_model::Bytes;

    use super::super::job::tests::job;
    use super::super::{ChangeKind, Costs, Job};
    use super::*;

    fn schedule(scheduler: &dyn Scheduler, nodes: &[Site], jobs: &[Job]) -> Assignment {
        scheduler.schedule(&Situation { now_s: 5.0, cycle_s: 1.0, nodes, jobs, apps: &[], costs: Costs::FREE })
    }

    fn one_slot() -> [Site; 1] {
        [Site { cpu: 1.0, memory: Bytes::mib(100).0 }]
    }

    #[test]
    fn fcfs_never_interrupts_and_edf_does() {
        let mut running = job(0.0, 100.0, 10.0, 1.0, 100);
        (running.state, running.nodes) = (JobState::Running, vec![0]);
        let jobs = [job(1.0, 20.0, 10.0, 1.0, 100), running];
        let fcfs = schedule(&FirstComeFirstServed, &one_slot(), &jobs);
        assert!(fcfs.changes(&jobs).is_empty());
        let edf = schedule(&EarliestDeadlineFirst, &one_slot(), &jobs);
        let kinds: Vec<ChangeKind> = edf.changes(&jobs).iter().map(|change| change.kind).collect();
        assert_eq!(kinds, [ChangeKind::Start, ChangeKind::Suspend]);
    }

    #[test]
    fn a_gang_runs_as_a_whole_or_not_at_all() {
        let mut gang = job(0.0, 100.0, 10.0, 1.0, 60);
        gang.tasks = 3;
        let node = Site { cpu: 4.0, memory: Bytes::mib(100).0 };
        let two = schedule(&FirstComeFirstServed, &[node, node], std::slice::from_ref(&gang));
        assert_eq!(two.runs, [None]);
        let three = schedule(&FirstComeFirstServed, &[node, node, node], &[gang]);
        assert_eq!(three.runs[0].as_ref().unwrap().nodes, [0, 1, 2]);
    }

    #[test]
    fn a_static_partition_lends_nothing() {
        use weal_model::{Cpu, Utility};
        let curve = crate::utility::Curve::through([(Cpu(0.0), Utility(-1.0)), (Cpu(9.0), Utility(1.0))]);
        let apps = [AppCurve { curve, nodes: vec![0, 1] }];
        let nodes = [Site { cpu: 4.0, memory: 1 << 40 }; 2];
        let jobs = [job(0.0, 100.0, 10.0, 8.0, 60), job(0.0, 100.0, 10.0, 3.0, 60)];
        let partition = StaticPartition { app_nodes: 1, jobs: FirstComeFirstServed };
        let situation = Situation { now_s: 0.0, cycle_s: 1.0, nodes: &nodes, jobs: &jobs, apps: &apps, costs: Costs::FREE };
        let got = partition.schedule(&situation);
        assert!((got.apps[0] - 4.0).abs() < 1e-3, "{got:?}");
        assert_eq!(got.runs[1].as_ref().map(|run| run.nodes.clone()), Some(vec![1]));
        assert_eq!(got.runs[0], None, "8 of CPU at once fit on no node");
    }
}
