use super::super::job::tests::job;
use super::super::{Costs, Site};
use super::*;
use crate::seeded::Seeded;

/// A few nodes with room for some of the jobs, which wait, run or are suspended.
fn crowd(random: &mut Seeded) -> (Vec<Site>, Vec<Job>) {
    let nodes: Vec<Site> = (0..1 + random.below(4)).map(|_| Site { cpu: 4.0, memory: 400 << 20 }).collect();
    let jobs = (0..1 + random.below(16)).map(|_| {
        let goal_s = random.between(20.0, 400.0);
        let mut job = job(0.0, goal_s, random.between(1.0, 1.5 * goal_s), 1.0, 100 + 50 * random.below(3));
        job.tasks = 1 + random.below(8) as u32 / 7;
        job.done = random.between(0.0, job.stages[0].work.0);
        job.state = [JobState::Pending, JobState::Running, JobState::Suspended][random.below(3) as usize];
        if job.state != JobState::Pending {
            job.nodes = (0..job.tasks).map(|_| random.below(nodes.len() as u64) as usize).collect();
            job.nodes.sort_unstable();
        }
        job
    });
    let jobs = jobs.collect();
    (nodes, jobs)
}

/// A thousand jobs wait and two hundred run on fifty nodes: the worst off loses nothing by the limits of a decision, and others hardly anything.
#[test]
fn the_limits_of_a_decision_hardly_show_in_a_long_queue() {
    const NO_LIMITS: Limits = Limits { asking: usize::MAX, victims: 1000, yielding: usize::MAX };
    let mut random = Seeded::new(1);
    let nodes: Vec<Site> = (0..50).map(|_| Site { cpu: 4.0, memory: 400 << 20 }).collect();
    let mut jobs: Vec<Job> = (0..1200).map(|at| long_queue_job(&mut random, at)).collect();
    jobs.iter_mut().enumerate().take(200).for_each(|(m, job)| (job.state, job.nodes) = (JobState::Running, vec![m / 4]));
    let situation = Situation { now_s: 5.0, cycle_s: 20.0, nodes: &nodes, jobs: &jobs, apps: &[], costs: Costs::THESIS };
    let decide = |limits: Limits| {
        let search = Search { limits, ..Search::new(&situation) };
        let (layout, waiting, scored) = search.place_freely(search.present());
        let placed = search.score(layout, scored.map(|scored| scored.forecast.level));
        search.improve(placed, waiting).sorted
    };
    let (limited, free) = (decide(LIMITS), decide(NO_LIMITS));
    let loss = free.iter().zip(&limited).map(|(free, limited)| free - limited).fold(0.0, f64::max);
    assert!(free[0] - limited[0] < TOLERANCE && loss < 0.1, "{} and {}, {loss}", limited[0], free[0]);
}

fn long_queue_job(random: &mut Seeded, at: usize) -> Job {
    let work = random.between(20.0, 300.0);
    let mut job = job(0.0, work * random.between(1.5, 60.0), work, 1.0, 100);
    if at < 200 {
        job.done = random.between(0.0, 0.9 * work);
    }
    job
}

#[test]
fn no_alternative_is_passed_over_that_would_have_been_better() {
    let mut random = Seeded::new(1);
    let (mut passed_over, mut better) = (0, 0);
    for round in 0..4000 {
        let (nodes, jobs) = crowd(&mut random);
        let costs = if round % 2 == 0 { Costs::FREE } else { Costs::THESIS };
        let situation = Situation { now_s: 5.0, cycle_s: 20.0, nodes: &nodes, jobs: &jobs, apps: &[], costs };
        let search = Search::new(&situation);
        let (layout, waiting, _) = search.place_freely(search.present());
        let base = search.score(layout, None);
        for m in waiting {
            let mut alternatives = search.with_one_moved(&base, m);
            alternatives.extend(search.with_some_suspended(&base, m));
            for changes in alternatives {
                let hopeless = search.cannot_beat(&base, &changes);
                let wins = search.score_beside(&base, &changes, base.forecast.level).better_than(&base);
                assert!(!(hopeless && wins), "round {round}, job {m}: {situation:?}");
                (passed_over, better) = (passed_over + usize::from(hopeless), better + usize::from(wins));
            }
        }
    }
    assert!(passed_over > 1000 && better > 100, "{passed_over} passed over, {better} better: nothing was tried");
}
