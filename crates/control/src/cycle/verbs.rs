//! Orders about one application: restart, stop, start, scale, keep awake.

use weal_model::{AppName, AppSpec, EventKind, InstanceId, InstanceRange, PoolSpec, Time};
use weal_protocol::Refusal;
use weal_protocol::controller::{AppOrdered, AppVerb};

use super::effect::Note;
use super::state::State;

/// More instances than this are a slip of the finger.
const MOST_INSTANCES: u32 = 10_000;

impl State {
    pub(super) fn take_verb(&mut self, now: Time, app: &AppName, verb: AppVerb) -> Result<AppOrdered, Refusal> {
        let spec = match (self.no_such(app), self.pool()) {
            (None, Some(pool)) => pool.apps.get(app).cloned().ok_or_else(|| Refusal::NoApplication { app: app.clone() })?,
            (Some(refusal), _) => return Err(refusal),
            (None, None) => return Err(Refusal::NotObserved),
        };
        let mine = self.engine.instances().iter().filter(|seen| seen.app == *app);
        let instances: Vec<InstanceId> = mine.map(|seen| seen.id.clone()).collect();
        let text = match verb {
            AppVerb::Restart => self.restart(now, &spec, &instances)?,
            AppVerb::Stop => {
                self.orders.halted.insert(app.clone());
                format!("{app} is stopped by an order")
            }
            AppVerb::Start => {
                self.orders.halted.remove(app);
                self.placing.starts.forget();
                format!("{app} is started by an order")
            }
            AppVerb::Scale { instances } => self.scale(&spec, instances)?,
            AppVerb::KeepAwake { for_s } => self.order_awake(now, &spec, for_s)?,
        };
        self.note(Note::info(EventKind::Plan, text).app(app));
        self.look_who_is_awake(now);
        self.follow_orders();
        self.push_gateway_config();
        self.timers.schedule_plan_at_once(now);
        self.show(false);
        let range = self.config.as_ref().and_then(|config| config.pool.apps.get(app)).map_or(spec.instances, |app| app.instances);
        Ok(AppOrdered { app: app.clone(), instances, range })
    }

    fn restart(&mut self, now: Time, spec: &AppSpec, instances: &[InstanceId]) -> Result<String, Refusal> {
        let app = spec.name.clone();
        if spec.halted {
            return Err(Refusal::Halted { app });
        }
        if instances.is_empty() {
            return Err(Refusal::NothingRuns { app });
        }
        if let Some(why) = self.engine.away(now) {
            return Err(why);
        }
        self.placing.starts.forget_app(&app);
        self.placing.rollout.handle_restart(instances.iter().cloned());
        Ok(format!("{app} is restarted by an order"))
    }

    fn scale(&mut self, spec: &AppSpec, range: Option<InstanceRange>) -> Result<String, Refusal> {
        let app = spec.name.clone();
        let Some(InstanceRange { min, max }) = range else {
            self.orders.scaled.remove(&app);
            return Ok(format!("{app} has the instances of its config again, by an order"));
        };
        if max == 0 || max > MOST_INSTANCES || min > max {
            return Err(Refusal::BadRange { min, max });
        }
        if spec.singleton && max > 1 {
            return Err(Refusal::Singleton { app, max });
        }
        let fit = self.pool().map_or(u64::MAX, |pool| fitting(&pool, spec));
        if u64::from(min) > fit {
            return Err(Refusal::TooMany { app, memory: spec.memory, fit, min });
        }
        self.orders.scaled.insert(app.clone(), InstanceRange { min, max });
        Ok(format!("{app} has {min} to {max} instances by an order"))
    }
}

/// How many instances of `app` the nodes have memory for where it may run, with nothing else on them.
fn fitting(pool: &PoolSpec, app: &AppSpec) -> u64 {
    let allowed = pool.nodes.iter().filter(|node| app.nodes.as_ref().is_none_or(|nodes| nodes.contains(&node.name)));
    allowed.map(|node| node.memory.0 / app.memory.0.max(1)).sum()
}
