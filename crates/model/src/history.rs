//! The past of a pool, as kept by the store: one sample per flow cycle, later one per minute.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AppName, ClassName, Cpu, JobName, JobPhase, NodeName, Time, Utility, Work};

/// The numbers of one cycle, or the means of those of a minute.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HistorySample {
    /// The end of the span that it covers.
    pub time: Time,
    /// Seconds that it covers.
    pub span_s: f64,
    /// The flows.
    pub flows: Vec<FlowSample>,
    /// The nodes.
    pub nodes: Vec<NodeSample>,
    /// The applications.
    pub apps: Vec<AppSample>,
    /// Jobs that are not over, at most [`HistorySample::JOBS`]: those that have begun first.
    #[serde(default)]
    pub jobs: Vec<JobSample>,
}

/// One flow in a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowSample {
    /// Its application.
    pub app: AppName,
    /// Its class.
    pub class: ClassName,
    /// What its goal is about: milliseconds, or requests per second for a throughput goal; `None` without traffic.
    pub achieved: Option<f64>,
    /// How well the goal is met; `None` without traffic or goal.
    pub utility: Option<Utility>,
    /// Seats in force.
    pub seats: f64,
    /// Requests waiting.
    pub queue_mean: f64,
    /// Requests per second that came in.
    pub arrival_per_s: f64,
    /// Requests per second that were answered.
    pub throughput_per_s: f64,
    /// Requests per second that were rejected.
    pub rejected_per_s: f64,
    /// CPU granted.
    pub cpu_allocated: Cpu,
}

/// One node in a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeSample {
    /// Its name.
    pub name: NodeName,
    /// CPU for instances.
    pub cpu_capacity: Cpu,
    /// CPU used by them.
    pub cpu_used: Cpu,
    /// CPU given to them by the last plan.
    pub cpu_allocated: Cpu,
}

/// One application in a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AppSample {
    /// Its name.
    pub name: AppName,
    /// Instances that take requests.
    pub ready: f64,
    /// CPU used.
    pub cpu_used: Cpu,
    /// CPU given by the last plan.
    pub cpu_allocated: Cpu,
}

/// One job in a sample.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobSample {
    /// Its name.
    pub id: JobName,
    /// What it did at the end of the span.
    pub state: JobPhase,
    /// Where; of a gang, the node of its first task.
    #[serde(default)]
    pub node: Option<NodeName>,
    /// CPU-seconds that it had used by then.
    pub cpu_used: Work,
    /// CPU given by the last plan.
    pub cpu_allocated: Cpu,
    /// The utility that it was headed for.
    pub utility: Option<Utility>,
}

impl HistorySample {
    /// Jobs in one sample.
    pub const JOBS: usize = 50;

    /// The means of `samples`, each name over the samples that have it; `None` when there are none.
    pub fn mean_of(samples: &[Self]) -> Option<Self> {
        let last = samples.last()?;
        Some(Self {
            time: last.time,
            span_s: samples.iter().map(|sample| sample.span_s).sum(),
            flows: group(samples, |s| &s.flows, |f| (f.app.clone(), f.class.clone()), FlowSample::mean_of),
            nodes: group(samples, |s| &s.nodes, |n| n.name.clone(), NodeSample::mean_of),
            apps: group(samples, |s| &s.apps, |a| a.name.clone(), AppSample::mean_of),
            jobs: group(samples, |s| &s.jobs, |j| j.id.clone(), JobSample::mean_of),
        })
    }
}

fn group<'a, T: 'a, K: Ord>(
    samples: &'a [HistorySample],
    part: impl Fn(&'a HistorySample) -> &'a Vec<T>,
    key: impl Fn(&T) -> K,
    mean: impl Fn(&[&T]) -> T,
) -> Vec<T> {
    let mut groups = BTreeMap::<K, Vec<&T>>::new();
    for item in samples.iter().flat_map(part) {
        groups.entry(key(item)).or_default().push(item);
    }
    groups.values().map(|group| mean(group)).collect()
}

/// Invariant: `items` is not empty.
fn mean<T>(items: &[&T], value: impl Fn(&T) -> f64) -> f64 {
    items.iter().map(|item| value(item)).sum::<f64>() / items.len() as f64
}

/// The mean of those that have a value.
fn mean_of_some<T>(items: &[&T], value: impl Fn(&T) -> Option<f64>) -> Option<f64> {
    let known: Vec<f64> = items.iter().filter_map(|item| value(item)).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

impl FlowSample {
    fn mean_of(items: &[&Self]) -> Self {
        Self {
            app: items[0].app.clone(),
            class: items[0].class.clone(),
            achieved: mean_of_some(items, |f| f.achieved),
            utility: mean_of_some(items, |f| f.utility.map(|u| u.0)).map(Utility),
            seats: mean(items, |f| f.seats),
            queue_mean: mean(items, |f| f.queue_mean),
            arrival_per_s: mean(items, |f| f.arrival_per_s),
            throughput_per_s: mean(items, |f| f.throughput_per_s),
            rejected_per_s: mean(items, |f| f.rejected_per_s),
            cpu_allocated: Cpu(mean(items, |f| f.cpu_allocated.0)),
        }
    }
}

impl NodeSample {
    fn mean_of(items: &[&Self]) -> Self {
        Self {
            name: items[0].name.clone(),
            cpu_capacity: Cpu(mean(items, |n| n.cpu_capacity.0)),
            cpu_used: Cpu(mean(items, |n| n.cpu_used.0)),
            cpu_allocated: Cpu(mean(items, |n| n.cpu_allocated.0)),
        }
    }
}

impl AppSample {
    fn mean_of(items: &[&Self]) -> Self {
        Self {
            name: items[0].name.clone(),
            ready: mean(items, |a| a.ready),
            cpu_used: Cpu(mean(items, |a| a.cpu_used.0)),
            cpu_allocated: Cpu(mean(items, |a| a.cpu_allocated.0)),
        }
    }
}

impl JobSample {
    /// What it did and had used is that of the last; the others are means.
    fn mean_of(items: &[&Self]) -> Self {
        Self {
            cpu_allocated: Cpu(mean(items, |j| j.cpu_allocated.0)),
            utility: mean_of_some(items, |j| j.utility.map(|u| u.0)).map(Utility),
            ..items[items.len() - 1].clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: u64, nodes: &[(&str, f64)]) -> HistorySample {
        let node = |&(name, used): &(&str, f64)| NodeSample {
            name: name.into(),
            cpu_capacity: Cpu(1.0),
            cpu_used: Cpu(used),
            cpu_allocated: Cpu(0.5),
        };
        let nodes = nodes.iter().map(node).collect();
        HistorySample { time: Time(second * 1_000_000_000), span_s: 2.0, flows: vec![], nodes, apps: vec![], jobs: vec![] }
    }

    #[test]
    fn a_mean_covers_each_name_over_the_samples_that_have_it() {
        let mean = HistorySample::mean_of(&[sample(2, &[("n1", 0.2)]), sample(4, &[("n1", 0.4), ("n2", 0.9)])]).unwrap();
        assert_eq!((mean.time, mean.span_s), (Time(4_000_000_000), 4.0));
        assert!((mean.nodes[0].cpu_used.0 - 0.3).abs() < 1e-12);
        assert_eq!(mean.nodes[1].cpu_used, Cpu(0.9));
        assert_eq!(HistorySample::mean_of(&[]), None);
    }
}
