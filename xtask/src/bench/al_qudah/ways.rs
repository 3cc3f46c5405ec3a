//! How an instance is put to rest and activated again.

use std::time::{Duration, Instant};

use anyhow::Result;
use weal_model::Rung;
use weal_model::naming::parts;

use crate::bench::real::agent::{Agent, LESSONS, first_byte_s};

/// Where an instance's memory is while it rests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// It is suspended only, and the kernel pages it out under pressure, the least recently used pages first.
    Evicted,
    /// It is paged out in bulk.
    Parked,
    /// All but its working set is paged out.
    Warm,
}

/// One way to put an instance to rest and to activate it.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// As the paper or weal calls it.
    pub name: &'static str,
    /// Where its memory is.
    pub rest: Rest,
    /// What is read ahead, as the agent's argument; empty lets the agent decide: the recorded working set.
    pub prefetch: &'static str,
}

/// The paper's non-enhanced way: the kernel pages, out and in.
pub const REGULAR: Way = Way { name: "suspend/resume", rest: Rest::Evicted, prefetch: "nothing" };
/// The paper's own: paged out in bulk, read ahead as a whole.
pub const ENHANCED: Way = Way { name: "enhanced (all prefetched)", rest: Rest::Parked, prefetch: "everything" };
/// What weal does with one that is needed seldom.
pub const PARKED: Way = Way { name: "ladder, parked", rest: Rest::Parked, prefetch: "" };
/// What weal does with one that is needed soon.
pub const WARM: Way = Way { name: "ladder, warm", rest: Rest::Warm, prefetch: "" };

impl Way {
    /// Puts the instance to rest.
    pub fn put_to_rest(&self, agent: &Agent, id: &str) -> Result<()> {
        match self.rest {
            Rest::Warm => agent.sleep(id, Rung::Warm).map(drop),
            Rest::Parked => agent.sleep(id, Rung::Parked).map(drop),
            Rest::Evicted => {
                agent.sleep(id, Rung::Suspended)?;
                evict(agent, id)
            }
        }
    }

    /// Seconds from the order to activate it to the first byte of what `path` answers.
    pub fn activate_s(&self, agent: &Agent, id: &str, path: &str) -> Result<f64> {
        let app = parts(&id.into()).map_or_else(|| id.to_owned(), |(app, _)| app.to_string());
        let began = Instant::now();
        let answer = agent.wake(&app)?;
        first_byte_s(answer.address, path)?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Rounds that only teach the agent what is needed, where it wants to know.
    pub fn lessons(&self) -> usize {
        if self.prefetch.is_empty() { LESSONS } else { 0 }
    }
}

/// Has the kernel page it out as it would under pressure, to 4 MB as in section 4.3, and gives it room again.
fn evict(agent: &Agent, id: &str) -> Result<()> {
    let group = agent.memory_group(id)?;
    group.open_swap()?;
    for mib in [300, 200, 150, 100, 70, 50, 30, 20, 15, 10, 7, 5, 4] {
        // The kernel refuses what it cannot page out at once; then what it could is done.
        for _ in 0..3 {
            if group.limit(mib << 20).is_ok() {
                break;
            }
        }
    }
    group.limit(agent.instance(id)?.spec.memory.0)
}

/// One that was woken a moment ago is recorded, and not put to sleep again at once.
pub fn settle() {
    std::thread::sleep(Duration::from_millis(2100));
}
