//! What sleep has cost each application: remembered over the lives of its instances and of the agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use weal_model::{AppName, RungCost, SleepCosts};

use crate::blocking::aside;
use crate::files::{read_json, write_json};

/// The costs of all applications, in one file.
#[derive(Debug)]
pub struct Costs {
    /// Held while it is written, which nobody who reads the costs waits for.
    file: Mutex<PathBuf>,
    known: Mutex<BTreeMap<AppName, SleepCosts>>,
}

impl Costs {
    /// Those in `file`; none when it cannot be read, since each is measured again soon.
    pub fn load(file: PathBuf) -> Self {
        let known = read_json(&file).ok().flatten().unwrap_or_default();
        Self { file: Mutex::new(file), known: Mutex::new(known) }
    }

    /// Those of `app`.
    pub fn of(&self, app: &AppName) -> SleepCosts {
        self.known.lock().expect("nothing panics while it is held").get(app).copied().unwrap_or_default()
    }

    /// Remembers what an instance of `app` has just measured.
    pub fn note(&self, app: &AppName, costs: SleepCosts) {
        let known = || self.known.lock().expect("nothing panics while it is held");
        let before = self.of(app);
        known().insert(app.clone(), costs.or(&before));
        let file = self.file.lock().expect("nothing panics while it is held");
        let all = known().clone();
        if let Err(error) = aside(|| write_json(&file, &all)) {
            tracing::warn!(%error, "what sleep costs is not written down");
        }
    }
}

/// How much of a new measurement counts: one odd one must not decide, a lasting change must be believed after a few.
const NEW_PART: f64 = 0.3;

/// A running mean.
pub fn blend(known: Option<f64>, new: f64) -> Option<f64> {
    Some(known.map_or(new, |known| known + NEW_PART * (new - known)))
}

/// Takes `new` in where it says something.
pub fn learn(known: &mut RungCost, new: &RungCost) {
    if let Some(seconds) = new.sleep_s {
        known.sleep_s = blend(known.sleep_s, seconds);
    }
    if let Some(seconds) = new.wake_s {
        known.wake_s = blend(known.wake_s, seconds);
    }
    known.memory = new.memory.or(known.memory);
    known.swap = new.swap.or(known.swap);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_blended_and_survive_the_agent() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("costs.json");
        let app = AppName::from("shop");
        let mut costs = SleepCosts::default();
        for seconds in [1.0, 2.0] {
            learn(&mut costs.parked, &RungCost { wake_s: Some(seconds), ..RungCost::default() });
        }
        assert_eq!(costs.parked.wake_s, Some(1.3));
        Costs::load(file.clone()).note(&app, costs);
        assert_eq!(Costs::load(file.clone()).of(&app), costs);
        std::fs::write(&file, "broken").unwrap();
        assert_eq!(Costs::load(file).of(&app), SleepCosts::default());
    }
}
