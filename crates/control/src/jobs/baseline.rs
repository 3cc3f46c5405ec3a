//! The schedulers to compare with: first come first served, earliest deadline first, static partitions.

use weal_model::JobState;

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
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by(|&a, &b| jobs[a].start_s.total_cmp(&jobs[b].start_s).then(a.cmp(&b)));
        let running = |m: &usize| jobs[*m].state == JobState::Running;
        let (first, then): (Vec<usize>, Vec<usize>) = order.into_iter().partition(running);
        first_fit(situation, first.into_iter().chain(then))
    }
}

/// Earliest deadline first: preemptive; in order of deadlines, each stays where it runs or is placed first-fit.
#[derive(Debug, Default, Clone, Copy)]
pub struct EarliestDeadlineFirst;

impl Scheduler for EarliestDeadlineFirst {
    fn name(&self) -> &'static str {
        "EDF"
    }

    fn schedule(&self, situation: &Situation) -> Assignment {
        let jobs = situation.jobs;
        let mut order: Vec<usize> = (0..jobs.len()).collect();
        order.sort_by(|&a, &b| jobs[a].deadline_s.total_cmp(&jobs[b].deadline_s).then(a.cmp(&b)));
        first_fit(situation, order.into_iter())
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

/// Places in the given order, each at full speed: where it runs if that still fits, else on the first node that it fits.
/// Applications get what is left over.
fn first_fit(situation: &Situation, order: impl Iterator<Item = usize>) -> Assignment {
    let mut free: Vec<(f64, u64)> = situation.nodes.iter().map(|node| (node.cpu, node.memory)).collect();
    let mut runs: Vec<Vec<usize>> = vec![Vec::new(); situation.jobs.len()];
    for m in order {
        let (job, needs) = (&situation.jobs[m], situation.jobs[m].needs(situation.cycle_s));
        let fits = |free: &(f64, u64)| free.0 >= needs.max_speed * (1.0 - 1e-9) && free.1 >= needs.memory;
        let mut trial = free.clone();
        let mut take = |node: usize| {
            let fits = fits(&trial[node]);
            if fits {
                trial[node] = (trial[node].0 - needs.max_speed, trial[node].1 - needs.memory);
            }
            fits
        };
        let tasks = job.tasks as usize;
        let stays = job.state == JobState::Running && job.nodes.len() == tasks && job.nodes.iter().all(|&node| take(node));
        let nodes = if stays {
            job.nodes.clone()
        } else {
            trial.clone_from(&free);
            take_first(&mut trial, tasks, needs.max_speed, needs.memory)
        };
        if nodes.len() == tasks {
            free = trial;
            runs[m] = nodes;
        }
    }
    let Division { speeds, apps } = divide(situation, &runs);
    let run = |(nodes, speed): (Vec<usize>, f64)| (!nodes.is_empty()).then_some(Run { nodes, speed });
    Assignment { runs: runs.into_iter().zip(speeds).map(run).collect(), apps }
}

fn take_first(free: &mut [(f64, u64)], tasks: usize, cpu: f64, memory: u64) -> Vec<usize> {
    let mut nodes = Vec::with_capacity(tasks);
    for (node, free) in free.iter_mut().enumerate() {
        while nodes.len() < tasks && free.0 >= cpu * (1.0 - 1e-9) && free.1 >= memory {
            *free = (free.0 - cpu, free.1 - memory);
            nodes.push(node);
        }
    }
    nodes
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
