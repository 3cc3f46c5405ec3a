//! When somebody is told that something is wrong, and that it is over.
//!
//! Reactive: [`Watcher::handle_status`] takes what a pool shows, [`Watcher::poll_notice`] gives what is to be told. An occasion is told once,
//! when it has lasted as long as its `[[notify]]` says, and once more when it is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use weal_model::{AppKind, AppStatus, FlowStatus, InstanceState, InstanceStatus, NotifySpec, Occasion, Status, Time};

/// Starts after which an instance that does not get ready is in a crash loop: one failure, or two, may be what it waits for.
const CRASHES: u32 = 3;
/// A disk is nearly full when so much of it is used. Logs and stores need the rest; a full disk loses them.
const DISK_SHARE: f64 = 0.9;
/// It is over below this: a disk at the limit would be told of with every file.
const DISK_CALM: f64 = 0.88;

/// Something that lasts: what, and of whom.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Condition {
    occasion: Occasion,
    /// `shop`, `shop/gold`, `disk`.
    subject: String,
}

/// What somebody is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// Which of the pool's `[[notify]]`s, counted from 0.
    pub receiver: usize,
    /// What.
    pub occasion: Occasion,
    /// Of whom.
    pub subject: String,
    /// A sentence, with the number that made it so.
    pub text: String,
    /// Since when.
    pub since: Time,
    /// True when it is over.
    pub is_over: bool,
}

/// Who is told of what, and who was.
#[derive(Debug, Default)]
pub struct Watcher {
    receivers: Vec<NotifySpec>,
    since: BTreeMap<Condition, Time>,
    /// Invariant: each condition in it is in `since`.
    told: BTreeSet<(usize, Condition)>,
    notices: VecDeque<Notice>,
}

impl Watcher {
    /// These are told from now on. When they change, what lasts is told anew.
    pub fn handle_receivers(&mut self, receivers: &[NotifySpec]) {
        if self.receivers != receivers {
            self.receivers = receivers.to_vec();
            self.told.clear();
            self.notices.clear();
        }
    }

    /// This is how the pool is `now`, with this share of the disk used, if that is known.
    pub fn handle_status(&mut self, now: Time, status: &Status, disk_used: Option<f64>) {
        let mut lasting = conditions(status);
        lasting.extend(self.disk(disk_used));
        let over: Vec<Condition> = self.since.keys().filter(|condition| !lasting.contains_key(condition)).cloned().collect();
        over.into_iter().for_each(|condition| self.end(&condition));
        for (condition, text) in lasting {
            let since = *self.since.entry(condition.clone()).or_insert(now);
            self.tell(now, &condition, &text, since);
        }
    }

    /// The next that is to be told.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    fn tell(&mut self, now: Time, condition: &Condition, text: &str, since: Time) {
        for (receiver, spec) in self.receivers.iter().enumerate() {
            let after = Duration::try_from_secs_f64(spec.after_s).unwrap_or(Duration::MAX);
            let is_due = spec.on.contains(&condition.occasion) && now.since(since) >= after;
            if is_due && self.told.insert((receiver, condition.clone())) {
                let (occasion, subject) = (condition.occasion, condition.subject.clone());
                self.notices.push_back(Notice { receiver, occasion, subject, text: text.to_owned(), since, is_over: false });
            }
        }
    }

    fn end(&mut self, condition: &Condition) {
        let Some(since) = self.since.remove(condition) else { return };
        for receiver in 0..self.receivers.len() {
            if self.told.remove(&(receiver, condition.clone())) {
                let (occasion, subject) = (condition.occasion, condition.subject.clone());
                let text = over(occasion, &subject);
                self.notices.push_back(Notice { receiver, occasion, subject, text, since, is_over: true });
            }
        }
    }

    fn disk(&self, used: Option<f64>) -> Option<(Condition, String)> {
        let condition = Condition { occasion: Occasion::DiskNearlyFull, subject: "disk".to_owned() };
        let limit = if self.since.contains_key(&condition) { DISK_CALM } else { DISK_SHARE };
        let used = used.filter(|used| *used >= limit)?;
        Some((condition, format!("The disk that holds weal's state is {:.0}% full.", used * 100.0)))
    }
}

/// That an occasion of `subject` is over, in a sentence.
fn over(occasion: Occasion, subject: &str) -> String {
    match occasion {
        Occasion::GoalMissed => format!("{subject} no longer misses its goal."),
        Occasion::CrashLoop => format!("{subject} is no longer in a crash loop."),
        Occasion::DeployFailed => format!("{subject} has no failed deploy any more."),
        Occasion::DiskNearlyFull => "The disk that holds weal's state has room again.".to_owned(),
    }
}

/// What is wrong now but for the disk, each with a sentence.
fn conditions(status: &Status) -> BTreeMap<Condition, String> {
    let missed = status.flows.iter().filter_map(goal_missed);
    let of_apps = status.apps.iter().flat_map(|app| [crash_loop(app), deploy_failed(app)]).flatten();
    missed.chain(of_apps).collect()
}

fn goal_missed(flow: &FlowStatus) -> Option<(Condition, String)> {
    let utility = flow.utility.filter(|utility| utility.0 < 0.0)?;
    let subject = format!("{}/{}", flow.app, flow.class);
    let text = format!("{subject} misses its goal {}: its utility is {:.2}.", flow.goal_text, utility.0);
    Some((Condition { occasion: Occasion::GoalMissed, subject }, text))
}

fn crash_loop(app: &AppStatus) -> Option<(Condition, String)> {
    let looping = app.instances.iter().find(|instance| crashes(instance))?;
    let text = format!("{} was started again {} times and does not get ready.", looping.id, looping.restarts);
    Some((Condition { occasion: Occasion::CrashLoop, subject: app.name.to_string() }, text))
}

/// Between two failures it starts for a moment.
fn crashes(instance: &InstanceStatus) -> bool {
    instance.restarts >= CRASHES && matches!(instance.state, InstanceState::Backoff | InstanceState::Starting)
}

fn deploy_failed(app: &AppStatus) -> Option<(Condition, String)> {
    if !app.has_failed_deploy() {
        return None;
    }
    let text = match app.kind {
        AppKind::Task => format!("The task {} failed.", app.name),
        AppKind::Service if app.is_served_by_former() => {
            format!("The new version of {} does not get ready; the version before still serves.", app.name)
        }
        AppKind::Service => {
            format!("The new version of {} does not get ready, and nothing of the version before serves.", app.name)
        }
    };
    Some((Condition { occasion: Occasion::DeployFailed, subject: app.name.to_string() }, text))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use weal_model::NotifyBy;

    use super::*;

    fn status(apps: &Value, flows: &Value) -> Status {
        let status = json!({ "pool": "p", "version": "0", "time": 0, "config_generation": 1, "config_error": null, "control": true,
            "listen": "", "api": "", "limits": [], "nodes": [], "apps": apps, "flows": flows, "plan": null });
        serde_json::from_value(status).unwrap()
    }

    fn app(state: &str, restarts: u32) -> Value {
        let instance = json!({ "id": "shop-1", "node": "local", "state": state, "detail": "", "pid": null, "address": "", "cpu_used": 0.0,
            "cpu_allocated": 0.0, "memory_used": 0, "in_flight": 0, "restarts": restarts, "since": 0 });
        json!([{ "name": "shop", "state": "starting", "detail": "", "min": 1, "max": 1, "cpu_used": 0.0,
            "cpu_demand": 0.0, "cpu_allocated": 0.0, "utility": null, "instances": [instance] }])
    }

    fn receiver(after_s: f64, on: &[Occasion]) -> NotifySpec {
        NotifySpec { on: on.to_vec(), after_s, by: NotifyBy::Run(vec!["true".to_owned()]) }
    }

    fn told(watcher: &mut Watcher) -> Vec<(usize, &'static str, bool)> {
        std::iter::from_fn(|| watcher.poll_notice())
            .map(|notice| (notice.receiver, notice.occasion.as_str(), notice.is_over))
            .collect()
    }

    fn at(second: u64) -> Time {
        Time(second * 1_000_000_000)
    }

    #[test]
    fn what_lasts_is_told_once_after_its_time_and_once_when_it_is_over() {
        let mut watcher = Watcher::default();
        watcher.handle_receivers(&[receiver(0.0, &[Occasion::CrashLoop]), receiver(60.0, &Occasion::ALL)]);
        let (ill, well) = (status(&app("backoff", 3), &json!([])), status(&app("ready", 3), &json!([])));
        watcher.handle_status(at(0), &ill, None);
        assert_eq!(told(&mut watcher), [(0, "crash-loop", false)]);
        // Between two failures it starts; that is no end.
        watcher.handle_status(at(30), &status(&app("starting", 4), &json!([])), None);
        assert_eq!(told(&mut watcher), []);
        watcher.handle_status(at(60), &ill, None);
        watcher.handle_status(at(61), &ill, None);
        assert_eq!(told(&mut watcher), [(1, "crash-loop", false)]);
        watcher.handle_status(at(90), &well, None);
        watcher.handle_status(at(91), &well, None);
        assert_eq!(told(&mut watcher), [(0, "crash-loop", true), (1, "crash-loop", true)]);
    }

    #[test]
    fn what_was_over_before_its_time_is_never_told() {
        let mut watcher = Watcher::default();
        watcher.handle_receivers(&[receiver(60.0, &Occasion::ALL)]);
        for second in 0..200 {
            let state = if second % 40 < 30 { "backoff" } else { "ready" };
            watcher.handle_status(at(second), &status(&app(state, 5), &json!([])), None);
        }
        assert_eq!(told(&mut watcher), []);
    }

    #[test]
    fn a_failed_deploy_says_that_the_version_before_serves_only_while_it_does() {
        let told = |serving: u32| {
            let mut apps = app("ready", 0);
            apps[0]["rollout"] = json!({ "phase": "stuck", "old": 1, "new": 0, "serving": serving, "detail": "" });
            let mut watcher = Watcher::default();
            watcher.handle_receivers(&[receiver(0.0, &[Occasion::DeployFailed])]);
            watcher.handle_status(at(0), &status(&apps, &json!([])), None);
            watcher.poll_notice().unwrap().text
        };
        assert_eq!(told(1), "The new version of shop does not get ready; the version before still serves.");
        assert_eq!(told(0), "The new version of shop does not get ready, and nothing of the version before serves.");
    }

    #[test]
    fn what_is_over_is_said_by_its_occasion() {
        let said = Occasion::ALL.map(|occasion| over(occasion, "shop"));
        assert!(said.iter().all(|said| said.ends_with('.') && !said.contains("is over")), "{said:?}");
        assert_eq!(over(Occasion::GoalMissed, "shop/gold"), "shop/gold no longer misses its goal.");
    }

    #[test]
    fn one_or_two_failures_are_no_crash_loop() {
        let mut watcher = Watcher::default();
        watcher.handle_receivers(&[receiver(0.0, &Occasion::ALL)]);
        watcher.handle_status(at(0), &status(&app("backoff", 2), &json!([])), None);
        assert_eq!(told(&mut watcher), []);
    }

    #[test]
    fn a_disk_at_the_limit_is_told_of_once() {
        let mut watcher = Watcher::default();
        watcher.handle_receivers(&[receiver(0.0, &[Occasion::DiskNearlyFull])]);
        let calm = status(&json!([]), &json!([]));
        for (second, used) in [0.5, 0.9, 0.89, 0.91, 0.885, 0.95].into_iter().enumerate() {
            watcher.handle_status(at(second as u64), &calm, Some(used));
        }
        assert_eq!(told(&mut watcher), [(0, "disk-nearly-full", false)]);
        watcher.handle_status(at(10), &calm, Some(0.8));
        assert_eq!(told(&mut watcher), [(0, "disk-nearly-full", true)]);
    }

    #[test]
    fn other_receivers_are_told_anew_of_what_lasts() {
        let mut watcher = Watcher::default();
        let ill = status(&app("backoff", 3), &json!([]));
        watcher.handle_receivers(&[receiver(0.0, &Occasion::ALL)]);
        watcher.handle_status(at(0), &ill, None);
        watcher.handle_receivers(&[receiver(5.0, &Occasion::ALL)]);
        watcher.handle_status(at(9), &ill, None);
        assert_eq!(told(&mut watcher), [(0, "crash-loop", false)]);
    }
}
