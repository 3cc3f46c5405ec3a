//! The schedulers to compare with: first come first served, earliest deadline first, static partitions.

use weal_model::JobState;

use super::divide::divide_needs;
use super::job::Needs;
use super::situation::most_of;
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
        // Who is placed below never yields: deadlines only get later from there on.
        let mut yielding: Vec<usize> = in_order(situation, |m| jobs[m].deadline_s);
        let order = yielding.clone();
        yielding.retain(|&r| !slots.runs[r].is_empty());
        for m in order {
            let on_time = yielding.partition_point(|&r| jobs[r].deadline_s <= jobs[m].deadline_s);
            if slots.place(m) || on_time == yielding.len() {
                continue;
            }
            let mut trial = slots.free.clone();
            for latest in (on_time..yielding.len()).rev() {
                slots.give_back(&mut trial, yielding[latest]);
                if let Some(nodes) = slots.first_fit(&mut trial, m) {
                    yielding.drain(latest..).for_each(|r| slots.runs[r].clear());
                    slots.settle(m, nodes, trial);
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

/// CPU and memory left on each node.
type Free = Vec<(f64, u64)>;

/// What is placed and what is left, everyone at full speed.
struct Slots<'a> {
    situation: &'a Situation<'a>,
    needs: Vec<Needs>,
    runs: Vec<Vec<usize>>,
    free: Free,
    /// The most CPU and the most memory left on any node.
    most: (f64, u64),
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
            most: (0.0, 0),
        };
        for (m, job) in jobs.iter().enumerate().filter(|(_, job)| job.state == JobState::Running) {
            let mut free = std::mem::take(&mut slots.free);
            if job.nodes.len() == job.tasks as usize && slots.take_all(&mut free, &job.nodes, m) {
                slots.runs[m].clone_from(&job.nodes);
            }
            slots.free = free;
        }
        slots.most = most_of(&slots.free);
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

    /// Takes what the tasks of `m` need on `nodes` out of `free`; false, and nothing taken, where that is not free.
    fn take_all(&self, free: &mut Free, nodes: &[usize], m: usize) -> bool {
        if let [node] = nodes {
            return self.take(free, *node, m);
        }
        let mut trial = free.clone();
        let fits = nodes.iter().all(|&node| self.take(&mut trial, node, m));
        if fits {
            *free = trial;
        }
        fits
    }

    /// The first nodes on which all tasks of `m` fit, taken out of `free`; nothing is taken where they do not.
    fn first_fit(&self, free: &mut Free, m: usize) -> Option<Vec<usize>> {
        let tasks = self.situation.jobs[m].tasks as usize;
        if tasks == 1 {
            return (0..free.len()).find(|&node| self.take(free, node, m)).map(|node| vec![node]);
        }
        let (mut trial, mut nodes) = (free.clone(), Vec::with_capacity(tasks));
        for node in 0..trial.len() {
            while nodes.len() < tasks && self.take(&mut trial, node, m) {
                nodes.push(node);
            }
        }
        (nodes.len() == tasks).then(|| {
            *free = trial;
            nodes
        })
    }

    /// Places all tasks of `m` first-fit, or none; true when it runs.
    fn place(&mut self, m: usize) -> bool {
        // In a long queue most ask for what no node has.
        if self.runs[m].is_empty() && self.fits(&self.most, m) {
            let mut free = std::mem::take(&mut self.free);
            match self.first_fit(&mut free, m) {
                Some(nodes) => self.settle(m, nodes, free),
                None => self.free = free,
            }
        }
        !self.runs[m].is_empty()
    }

    /// `m` runs on these nodes, and this is left.
    fn settle(&mut self, m: usize, nodes: Vec<usize>, free: Free) {
        (self.runs[m], self.free) = (nodes, free);
        self.most = most_of(&self.free);
    }

    /// What `m` uses, back into `free`.
    fn give_back(&self, free: &mut Free, m: usize) {
        let needs = &self.needs[m];
        self.runs[m].iter().for_each(|&node| free[node] = (free[node].0 + needs.max_speed, free[node].1 + needs.memory));
    }

    fn assignment(self) -> Assignment {
        let Division { speeds, apps } = divide_needs(self.situation, &self.needs, &self.runs);
        let run = |(nodes, speed): (Vec<usize>, f64)| (!nodes.is_empty()).then_some(Run { nodes, speed });
        Assignment { runs: self.runs.into_iter().zip(speeds).map(run).collect(), apps, look_again_s: None }
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
