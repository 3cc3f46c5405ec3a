//! What changes to jobs took, by their family, kind and size.
//!
//! The thesis measured once what a change costs on its machines: seconds, growing with memory (Carrera Table 5.1, [`Costs`](super::Costs)). Here each
//! change that was carried out is measured, and those of a job's own family tell what its next one takes. A size is a power of two of MiB that the
//! job asks for. Within a size, seconds are a mean in which the newest counts most; the next size known stands in for one that is not, in
//! proportion to memory as in the thesis. What was never measured is taken from the table.

use serde::{Deserialize, Serialize};
use weal_model::{Bytes, JobName};

use super::family::Families;

/// What happens to a job's run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeKind {
    /// It runs for the first time.
    Start,
    /// It stops running and keeps its memory image.
    Suspend,
    /// It runs again where it was suspended.
    Resume,
    /// It runs again somewhere else.
    MoveAndResume,
    /// It moves while it runs.
    Migrate,
}

/// How much of a new measurement counts once there are some: one odd one must not decide, and a lasting change must be believed after a few.
const NEW_PART: f64 = 0.3;

/// What changes to jobs took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Changes {
    families: Families<Vec<Seen>>,
}

/// One kind of change at one size.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Seen {
    kind: ChangeKind,
    /// The power of two of its MiB.
    size: u32,
    /// The mean of its sizes.
    mib: f64,
    /// The mean of what it took.
    seconds: f64,
    count: u32,
}

/// What a change is expected to take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    /// Seconds.
    pub seconds: f64,
    /// From so many changes.
    pub count: u32,
}

/// What each kind of change to one job takes, in seconds, as far as it was measured.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Took {
    start: Option<f64>,
    suspend: Option<f64>,
    resume: Option<f64>,
    move_and_resume: Option<f64>,
    migrate: Option<f64>,
}

impl Took {
    /// Seconds of a change of this kind. What it takes to go on elsewhere is taken for what it takes where the job was, as long as it was not
    /// measured: the thesis has no number for it either.
    pub fn of(&self, kind: ChangeKind) -> Option<f64> {
        match kind {
            ChangeKind::Start => self.start,
            ChangeKind::Suspend => self.suspend,
            ChangeKind::Resume => self.resume,
            ChangeKind::MoveAndResume => self.move_and_resume.or(self.resume),
            ChangeKind::Migrate => self.migrate,
        }
    }
}

impl Changes {
    /// Takes in what a change took of a job that asks for `memory` per task; what is no number of seconds is skipped.
    pub fn learn(&mut self, name: &JobName, kind: ChangeKind, memory: Bytes, took_s: f64) {
        if !(took_s.is_finite() && took_s >= 0.0) {
            return;
        }
        let (seen, mib, size) = (self.families.learn(name), mib(memory), size(memory));
        match seen.iter_mut().find(|one| one.kind == kind && one.size == size) {
            Some(one) => {
                one.count = one.count.saturating_add(1);
                let part = f64::from(one.count).recip().max(NEW_PART);
                one.seconds += part * (took_s - one.seconds);
                one.mib += part * (mib - one.mib);
            }
            None => seen.push(Seen { kind, size, mib, seconds: took_s, count: 1 }),
        }
    }

    /// What a change takes of a job that asks for `memory` per task; `None` when none of this kind was measured in its family.
    pub fn measured(&self, name: &JobName, kind: ChangeKind, memory: Bytes) -> Option<Measured> {
        expected(self.families.get(name)?, kind, memory)
    }

    /// What each kind of change takes of a job that asks for `memory` per task.
    pub fn took(&self, name: &JobName, memory: Bytes) -> Took {
        let seen = self.families.get(name).map_or(&[][..], Vec::as_slice);
        let seconds = |kind| expected(seen, kind, memory).map(|measured| measured.seconds);
        Took {
            start: seconds(ChangeKind::Start),
            suspend: seconds(ChangeKind::Suspend),
            resume: seconds(ChangeKind::Resume),
            move_and_resume: seconds(ChangeKind::MoveAndResume),
            migrate: seconds(ChangeKind::Migrate),
        }
    }
}

fn expected(seen: &[Seen], kind: ChangeKind, memory: Bytes) -> Option<Measured> {
    let size = size(memory);
    let nearest = seen.iter().filter(|one| one.kind == kind).min_by_key(|one| (one.size.abs_diff(size), one.size))?;
    let grows = kind != ChangeKind::Start && nearest.size != size && nearest.mib > 0.0;
    let factor = if grows { mib(memory) / nearest.mib } else { 1.0 };
    Some(Measured { seconds: nearest.seconds * factor, count: nearest.count })
}

fn mib(memory: Bytes) -> f64 {
    memory.0 as f64 / Bytes::MIB as f64
}

/// The power of two of its MiB, rounded down; 0 below 2 MiB.
fn size(memory: Bytes) -> u32 {
    (memory.0 / Bytes::MIB).max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::super::family::MOST_FAMILIES;
    use super::*;

    fn seconds(changes: &Changes, name: &str, kind: ChangeKind, mib: u64) -> Option<f64> {
        changes.measured(&name.into(), kind, Bytes::mib(mib)).map(|measured| measured.seconds)
    }

    #[test]
    fn a_change_is_expected_to_take_what_it_took_others_of_its_family_and_size() {
        let mut changes = Changes::default();
        for (name, kind, mib, took_s) in [
            ("render-1", ChangeKind::Start, 100, 0.2),
            ("render-2", ChangeKind::Suspend, 100, 1.0),
            ("render-3", ChangeKind::Suspend, 100, 2.0),
            ("render-4", ChangeKind::Suspend, 1000, 5.0),
            ("render-5", ChangeKind::Suspend, 1000, f64::NAN),
            ("other-1", ChangeKind::Suspend, 100, 9.0),
        ] {
            changes.learn(&name.into(), kind, Bytes::mib(mib), took_s);
        }
        assert_eq!(seconds(&changes, "render-9", ChangeKind::Suspend, 120), Some(1.5), "the mean of two of this size");
        assert_eq!(seconds(&changes, "render-9", ChangeKind::Suspend, 600), Some(5.0), "another size took longer");
        assert_eq!(seconds(&changes, "render-9", ChangeKind::Suspend, 4000), Some(20.0), "in proportion beyond what is known");
        assert_eq!(seconds(&changes, "render-9", ChangeKind::Start, 4000), Some(0.2), "a start does not grow with memory");
        assert_eq!(seconds(&changes, "render-9", ChangeKind::Resume, 100), None);
        assert_eq!(seconds(&changes, "third-1", ChangeKind::Suspend, 100), None);
    }

    #[test]
    fn a_lasting_change_is_believed_after_a_few() {
        let mut changes = Changes::default();
        (0..50).for_each(|_| changes.learn(&"a-1".into(), ChangeKind::Resume, Bytes::mib(8), 1.0));
        (0..8).for_each(|_| changes.learn(&"a-1".into(), ChangeKind::Resume, Bytes::mib(8), 3.0));
        let now = seconds(&changes, "a-1", ChangeKind::Resume, 8).unwrap();
        assert!((2.8..3.0).contains(&now), "{now}");
        let took = changes.took(&"a-2".into(), Bytes::mib(8));
        assert_eq!(took.of(ChangeKind::MoveAndResume), Some(now), "nobody has measured that, so a resume stands in");
        assert_eq!(took.of(ChangeKind::Migrate), None);
    }

    #[test]
    fn the_families_that_were_learnt_of_last_are_remembered_and_survive_the_store() {
        let mut changes = Changes::default();
        let name = |at: usize| JobName::from(format!("job{}x", "i".repeat(at)));
        for at in 0..=MOST_FAMILIES {
            changes.learn(&name(at), ChangeKind::Start, Bytes::mib(1), 1.0);
        }
        assert_eq!(changes.families.len(), MOST_FAMILIES);
        assert_eq!(changes.measured(&name(0), ChangeKind::Start, Bytes::mib(1)), None);
        let stored: Changes = serde_json::from_str(&serde_json::to_string(&changes).unwrap()).unwrap();
        assert_eq!(stored, changes);
    }
}
