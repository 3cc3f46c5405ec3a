//! The tables that only a simulation needs: what requests cost, what changes take, what surrounds the pool.

use serde::Deserialize;
use toml::Spanned;
use weal_control::jobs::Costs;

use crate::values::{Bandwidth, Size, Span};

/// `[[simulate]]`: what is said here holds for the requests of `class`, or for all of the application's.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SimulateTable {
    /// The application.
    pub app: Spanned<String>,
    /// Only requests of this class; `work`, `spread`, `delay` and `calls` may differ by class.
    pub class: Option<String>,
    /// CPU time of one request on a standard core.
    pub work: Option<Span>,
    /// How the work varies: `exponential` or `constant`.
    pub spread: Option<WorkDistribution>,
    /// Time of one request that is not CPU: disk, sleep, other machines.
    pub delay: Option<Span>,
    /// Calls to other applications, one after the other, before the request's own work.
    pub calls: Option<Vec<CallTable>>,
    /// Size of a request, to it or a call; it takes time where `[simulation]` has a `bandwidth`. Default: nothing.
    pub request: Option<Size>,
    /// Size of an answer, to it or a call; it takes time where `[simulation]` has a `bandwidth`. Default: nothing.
    pub response: Option<Size>,
    /// What changes of an instance take, all at once; what is said below counts more.
    pub costs: Option<CostPreset>,
    /// Seconds from a start until it is ready, on an idle node.
    pub start: Option<Span>,
    /// CPU time that a start takes, at most one core at a time; part of `start`.
    pub start_work: Option<Span>,
    /// From the resume of a suspended instance until it is ready.
    pub resume: Option<Span>,
    /// What the resume of a parked instance takes beyond that, for its memory to come back.
    pub page_in: Option<Span>,
    /// From the end of draining until it is suspended.
    pub suspend: Option<Span>,
    /// What paging out takes.
    pub park: Option<Span>,
    /// From the end of draining until it is gone.
    pub stop: Option<Span>,
    /// What an instance does beside requests: `{ every = "10s", work = "50ms" }`.
    pub housekeeping: Option<Housekeeping>,
}

/// Measured costs of changes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum CostPreset {
    /// Virtual machines under Xen (Carrera, Table 5.1): a boot takes 3.6 s, suspend and resume grow with the memory.
    #[serde(rename = "carrera-5.1")]
    Carrera,
    /// Processes that are frozen and paged out: the defaults.
    #[default]
    #[serde(rename = "processes")]
    Processes,
}

/// One entry of `calls`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallTable {
    /// Who is called.
    pub app: String,
    /// How often. Default: once.
    #[serde(default = "once")]
    pub count: u32,
    /// CPU time of one call there. Default: the `work` of that application.
    pub work: Option<Span>,
}

fn once() -> u32 {
    1
}

/// Work that an instance does at regular times.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Housekeeping {
    /// Between two times.
    pub every: Span,
    /// CPU time of each.
    pub work: Span,
}

/// How the work of requests varies.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkDistribution {
    /// Exponential around the mean.
    #[default]
    Exponential,
    /// Always the mean.
    Constant,
}

/// What changes of jobs take that are processes, frozen and paged out like instances: a start is that of a process; 340 MB take 0.4 s to page
/// out and as long to read in; a move goes through a link of 1 Gbit/s.
pub const JOBS_AS_PROCESSES: Costs =
    Costs { start_s: 0.5, suspend_s_per_mib: 0.0012, resume_s_per_mib: 0.0012, migrate_s_per_mib: 0.0107 };

/// `[simulation]`: what surrounds the pool.
#[derive(Debug, Default, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Surroundings {
    /// Between any two processes, one way. Default: none.
    pub latency: Span,
    /// Of the links of the nodes and of the gateway (`1Gbit/s`): what leaves one of them shares its link evenly. Default: no size takes time.
    pub bandwidth: Option<Bandwidth>,
    /// Nodes are slices of one machine with so many cores, as the kernel makes them: a node uses up to all of these cores at once, of which
    /// the others have their parts, until its share of a period of 100 ms is used up, then nothing. Default (0): each node is a machine of its own.
    pub slices_of: u32,
    /// What changes of jobs take. Default: `processes`.
    pub job_costs: CostPreset,
    /// False: nothing can be paged out, so that no instance goes deeper than suspended, and no job leaves memory. Default: true.
    pub swap: Option<bool>,
    /// Another number draws anew what a machine of slices does by chance, under the same load: where a request runs, when periods begin.
    /// Default: 0.
    pub chance: u64,
}

impl Surroundings {
    /// Whether memory of what sleeps can be paged out.
    pub fn has_swap(&self) -> bool {
        self.swap.unwrap_or(true)
    }

    /// The seed of what a machine of slices does by chance, in a scenario with `seed`.
    pub fn machine_seed(&self, seed: u64) -> u64 {
        seed ^ self.chance.rotate_left(32)
    }

    /// What changes of jobs take.
    pub fn job_costs(&self) -> Costs {
        match self.job_costs {
            CostPreset::Processes => JOBS_AS_PROCESSES,
            CostPreset::Carrera => Costs::THESIS,
        }
    }
}
