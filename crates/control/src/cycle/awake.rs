//! Applications that are kept awake for a while: by an order until its time has passed, and by their schedule from each of its dates on.
//!
//! Times are those of the engine's clock, which goes on while no controller runs. An order's end is stored with the other orders, so that it holds
//! for a new controller, and ends when it was to end.

use std::collections::BTreeMap;

use weal_model::{AppName, AppSpec, AwakeBy, KeptAwake, PoolSpec, Time};

/// Who is kept awake.
#[derive(Debug, Default)]
pub(super) struct Awake {
    now: BTreeMap<AppName, KeptAwake>,
    /// Orders or the config have changed since the last look.
    is_stale: bool,
    /// When the next look is due; `None` when nothing changes by itself.
    next: Option<Time>,
}

/// What a look has found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Applications whose schedule keeps them awake from now on.
    pub begun: Vec<AppName>,
    /// Applications whose time has passed.
    pub ended: Vec<AppName>,
    pub is_changed: bool,
}

impl Awake {
    /// Orders or the config have changed.
    pub fn handle_changed(&mut self) {
        self.is_stale = true;
    }

    /// When the next look is due by itself.
    pub fn next(&self) -> Option<Time> {
        self.next
    }

    /// `pool` with those awake who are kept so.
    pub fn apply(&self, pool: &mut PoolSpec) {
        for app in pool.apps.values_mut().filter(|app| !app.halted) {
            if let Some(kept) = self.now.get(&app.name) {
                (app.awake, app.sleep, app.instances.min) = (Some(*kept), false, app.instances.min.max(1));
            }
        }
    }

    pub fn is_due(&self, time: Time) -> bool {
        self.is_stale || self.next.is_some_and(|next| time >= next)
    }

    /// Looks who is kept awake at `time`.
    pub fn handle_time(&mut self, time: Time, pool: &PoolSpec, ordered: &BTreeMap<AppName, Time>) -> Changes {
        let holds = |app: &AppSpec| Some((app.name.clone(), kept(app, ordered.get(&app.name).copied(), time)?));
        let now: BTreeMap<AppName, KeptAwake> = pool.apps.values().filter_map(holds).collect();
        let ends = now.values().map(|kept| kept.until);
        let dates = pool.apps.values().filter_map(|app| app.keep_awake.as_ref()?.schedule.next_after(time));
        (self.is_stale, self.next) = (false, ends.chain(dates).min());
        let before = std::mem::replace(&mut self.now, now);
        let begun = self.now.iter().filter(|(app, kept)| kept.by == AwakeBy::Schedule && !before.contains_key(*app));
        let ended = before.iter().filter(|(app, kept)| kept.until <= time && !self.now.contains_key(*app));
        Changes {
            begun: begun.map(|(app, _)| app.clone()).collect(),
            ended: ended.map(|(app, _)| app.clone()).collect(),
            is_changed: before != self.now,
        }
    }
}

/// What keeps `app` awake at `time`: of an order and a schedule the one that lasts longer.
fn kept(app: &AppSpec, ordered: Option<Time>, time: Time) -> Option<KeptAwake> {
    let by_order = ordered.filter(|until| *until > time).map(|until| KeptAwake { until, by: AwakeBy::Order });
    let by_schedule = app.keep_awake.as_ref().and_then(|awake| awake.until(time));
    let by_schedule = by_schedule.map(|until| KeptAwake { until, by: AwakeBy::Schedule });
    by_order.into_iter().chain(by_schedule).max_by_key(|kept| kept.until)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weal_model::{AwakeSchedule, Schedule};

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn at(hours: u32) -> Time {
        Time::ZERO + HOUR * hours
    }

    /// `shop` is kept awake from 8 to 18 o'clock, `db` and `web` are not.
    fn pool() -> PoolSpec {
        let mut pool = PoolSpec::example();
        for name in ["db", "shop", "web"] {
            let mut app = AppSpec::example(name);
            app.instances.min = 0;
            pool.apps.insert(name.into(), app);
        }
        let schedule = Schedule::new("0 8 * * *", "UTC").unwrap();
        pool.apps.get_mut("shop").unwrap().keep_awake = Some(AwakeSchedule { schedule, for_s: 10.0 * 3600.0 });
        pool
    }

    fn awake(awake: &Awake) -> Vec<(String, bool, u32)> {
        let mut pool = pool();
        awake.apply(&mut pool);
        pool.apps
            .values()
            .filter(|app| app.awake.is_some())
            .map(|app| (app.name.to_string(), app.sleep, app.instances.min))
            .collect()
    }

    #[test]
    fn an_order_keeps_awake_until_its_time_has_passed() {
        let (mut kept, ordered) = (Awake::default(), BTreeMap::from([("db".into(), at(25))]));
        kept.handle_changed();
        assert!(kept.handle_time(at(24), &pool(), &ordered).is_changed);
        assert_eq!((awake(&kept), kept.next()), (vec![("db".to_owned(), false, 1)], Some(at(25))));
        assert!(!kept.is_due(at(25) - Duration::from_nanos(1)) && kept.is_due(at(25)));
        let changes = kept.handle_time(at(25), &pool(), &ordered);
        assert_eq!((changes.ended, changes.begun, awake(&kept)), (vec!["db".into()], vec![], vec![]));
        assert_eq!(kept.next(), Some(at(32)), "the schedule's next date");
    }

    #[test]
    fn a_schedule_begins_at_its_date_and_ends_after_its_span() {
        let (mut kept, ordered) = (Awake::default(), BTreeMap::new());
        assert_eq!(kept.handle_time(at(31), &pool(), &ordered), Changes::default());
        assert!(kept.is_due(at(32)));
        assert_eq!(kept.handle_time(at(32), &pool(), &ordered).begun, [AppName::from("shop")]);
        assert_eq!((awake(&kept), kept.next()), (vec![("shop".to_owned(), false, 1)], Some(at(42))));
        assert_eq!(kept.handle_time(at(42), &pool(), &ordered).ended, [AppName::from("shop")]);
        assert_eq!((awake(&kept), kept.next()), (vec![], Some(at(56))));
    }

    #[test]
    fn of_an_order_and_a_schedule_the_one_that_lasts_longer_counts() {
        let app = pool().apps["shop"].clone();
        let by = |ordered: Option<Time>, time: Time| kept(&app, ordered, time).map(|kept| (kept.until, kept.by));
        assert_eq!(by(Some(at(40)), at(36)), Some((at(42), AwakeBy::Schedule)));
        assert_eq!(by(Some(at(45)), at(36)), Some((at(45), AwakeBy::Order)));
        assert_eq!(by(Some(at(36)), at(43)), None, "both are over");
    }

    #[test]
    fn an_order_that_is_withdrawn_has_not_run_out() {
        let mut kept = Awake::default();
        kept.handle_time(at(24), &pool(), &BTreeMap::from([("db".into(), at(25))]));
        kept.handle_changed();
        assert!(kept.is_due(at(24)));
        let changes = kept.handle_time(at(24), &pool(), &BTreeMap::new());
        assert_eq!((changes.is_changed, changes.ended), (true, vec![]));
    }

    #[test]
    fn a_stopped_application_stays_stopped() {
        let mut kept = Awake::default();
        kept.handle_time(at(24), &pool(), &BTreeMap::from([("db".into(), at(25))]));
        let mut pool = pool();
        pool.apps.get_mut("db").unwrap().halted = true;
        kept.apply(&mut pool);
        assert!(pool.apps["db"].awake.is_none() && pool.apps["db"].instances.min == 0);
    }
}
