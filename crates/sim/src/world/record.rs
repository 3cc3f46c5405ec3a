//! The run as data, in the form that a rehearsal with real processes gives.

use weal_model::{InstanceState, JobState, Snapshot};
use weal_scenario::report::{JobPoint, JobSeen, JobSeries, NodePoint, Run};

use super::outcome::Simulated;
use super::parts::clients::ClientCounters;
use super::parts::job::Job;
use super::parts::recorder::{Recorder, summarise};
use super::state::World;

impl World<'_> {
    /// Writes down a snapshot as it truly is, before faults get at it.
    pub fn record(&mut self, snapshot: &Snapshot) {
        let (t_s, warm_up_s) = (self.now_s(), self.scenario.warm_up_s);
        for flow in &snapshot.flows {
            if let Some(record) = self.recorder.flows.get_mut(&flow.id.to_string()) {
                record.take(t_s, snapshot.window_s, warm_up_s, flow);
            }
        }
        for (number, series) in self.recorder.nodes.iter_mut().enumerate() {
            let used = snapshot.nodes.iter().find(|node| node.name.as_str() == series.name).map_or(0.0, |node| node.cpu_used.0);
            let mut cpu = vec![0.0; self.apps.len()];
            for instance in self.instances.iter().filter(|i| i.node == number && i.state != InstanceState::Stopped) {
                cpu[instance.app] += self.controller.cpu(&instance.id).map_or(0.0, |cpu| cpu.0);
            }
            if !self.scenario.jobs.is_empty() {
                cpu.push(cpu_on(&self.jobs, number));
            }
            series.points.push(NodePoint { t_s, cpu, cpu_used: used });
        }
        let mut ready = vec![0; self.apps.len()];
        self.instances.iter().filter(|i| i.state == InstanceState::Ready).for_each(|i| ready[i.app] += 1);
        for (series, ready) in self.recorder.apps.iter_mut().zip(ready) {
            series.ready.push((t_s, ready));
        }
        if !self.scenario.jobs.is_empty() {
            self.recorder.jobs.push(self.job_point());
            self.watch_jobs();
        }
    }

    /// A job that is being changed is neither here nor there.
    fn watch_jobs(&mut self) {
        let t_s = self.now_s();
        for job in self.jobs.iter().filter(|job| job.operation.is_none()) {
            let seen = match job.state {
                JobState::Running => JobSeen::Runs,
                JobState::Pending | JobState::Suspended => JobSeen::Idle,
                JobState::Completed => JobSeen::Done,
            };
            let nodes = job.nodes.iter().map(|&node| self.nodes[node].name.to_string()).collect();
            self.recorder.watch.handle_seen(t_s, job.spec.name.as_str(), seen, nodes);
        }
    }

    fn job_point(&self) -> JobPoint {
        let count = |state: JobState| self.jobs.iter().filter(|job| job.state == state).count() as u32;
        let report = self.controller.cycle.as_ref().map(|cycle| cycle.report());
        let expected = report.iter().flat_map(|report| report.jobs.values());
        JobPoint {
            t_s: self.now_s(),
            running: count(JobState::Running),
            suspended: count(JobState::Suspended),
            waiting: count(JobState::Pending),
            done: count(JobState::Completed),
            cpu: (0..self.nodes.len()).map(|node| cpu_on(&self.jobs, node)).sum(),
            expected: JobPoint::mean_of(expected.map(|job| job.utility.0)),
        }
    }

    pub fn finish(self) -> Simulated {
        let (now, cycle) = (self.now(), self.controller.cycle.as_ref());
        let shown = cycle.and_then(|cycle| Some((cycle.status(now, None)?, cycle.report())));
        let scenario = self.scenario;
        let Recorder { mut flows, nodes, apps, jobs, watch, changes, moves, .. } = self.recorder;
        let ends = self.jobs.iter().map(Job::end).collect();
        let jobs = (!scenario.jobs.is_empty()).then_some(JobSeries { points: jobs, ends, moments: watch.into_moments() });
        let mut unfinished = 0;
        for flow in &self.flows {
            let ClientCounters { sent, answered, rejected, failed } = flow.client_counters;
            unfinished += (sent - answered - rejected - failed) as usize;
            let summary = &mut flows.get_mut(&flow.name).expect("each flow is recorded").series.summary;
            summary.sent += sent;
            summary.answered += answered;
            summary.rejected += rejected;
            summary.failed += failed;
        }
        flows.values_mut().for_each(summarise);
        let cores: f64 = scenario.pool.nodes.iter().map(|node| node.cpu.0).sum();
        let assumed = scenario.loads.iter().filter(|load| scenario.behaviours[&load.app].assumed);
        let note = |load: &weal_scenario::LoadSource| {
            format!("no [[simulate]] says what a request to {} costs: 10 ms of CPU are assumed", load.app)
        };
        let mut run = Run {
            title: scenario.intent.clone(),
            intent: scenario.intent.clone(),
            kind: "simulated".to_owned(),
            control: match scenario.pool.control {
                true => scenario.pool.placement.word().to_owned(),
                false => "off".to_owned(),
            },
            machine: format!("{} simulated nodes, {cores:.1} cores", scenario.pool.nodes.len()),
            seed: scenario.seed,
            duration_s: scenario.duration_s,
            flows: flows.into_values().map(|record| record.series).collect(),
            nodes,
            apps,
            jobs,
            changes,
            notes: assumed.map(note).collect(),
            ..Run::default()
        };
        run.notes.dedup();
        run.judge(&scenario.expectations, scenario.warm_up_s);
        Simulated { run, moves, findings: self.oracle.into_findings(), events: self.events, unfinished, shown }
    }
}

/// Cores that the jobs on a node have.
fn cpu_on(jobs: &[Job], node: usize) -> f64 {
    jobs.iter().map(|job| job.cpu_on(node)).sum()
}
