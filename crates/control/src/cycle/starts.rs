//! What became of starts: which applications must wait before the next try, and which numbers were used.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weal_model::{AppName, InstanceId, Time, naming};
use weal_protocol::Refusal;
use weal_protocol::engine::InstanceSeen;

use super::effect::Ids;
use super::peers::{Look, Ticket};

/// After a failed start, an application is left alone for this long, doubled with each further failure.
const FIRST_HOLDOFF: Duration = Duration::from_secs(1);
/// A minute is short against a person who mends a config, and long against a crash loop.
const LONGEST_HOLDOFF: Duration = Duration::from_secs(60);

/// What became of starts.
#[derive(Debug, Default)]
pub(super) struct Starts {
    failures: BTreeMap<AppName, String>,
    /// Those whose programs could not even begin.
    broken: BTreeSet<AppName>,
    holdoffs: BTreeMap<AppName, (Time, Duration)>,
    highest: BTreeMap<AppName, u64>,
    /// Instances that no look has shown yet, each with the look that must show it, once its start is over.
    unseen: BTreeMap<InstanceId, Option<Ticket>>,
}

impl Starts {
    /// Why the last start of an application failed.
    pub fn failures(&self) -> &BTreeMap<AppName, String> {
        &self.failures
    }

    /// Applications whose programs could not even begin, the last time it was tried.
    pub fn broken(&self) -> &BTreeSet<AppName> {
        &self.broken
    }

    /// A new config may have mended what failed.
    pub fn forget(&mut self) {
        self.failures.clear();
        self.broken.clear();
        self.holdoffs.clear();
    }

    /// Somebody orders starts of this application: what failed before says nothing of these.
    pub fn forget_app(&mut self, app: &AppName) {
        self.failures.remove(app);
        self.broken.remove(app);
        self.holdoffs.remove(app);
    }

    pub fn may_start(&self, now: Time, app: &AppName) -> bool {
        self.holdoffs.get(app).is_none_or(|(until, _)| now >= *until)
    }

    pub fn handle_outcome(&mut self, now: Time, app: &AppName, refusal: Option<&Refusal>) {
        let Some(refusal) = refusal else {
            return self.forget_app(app);
        };
        self.failures.insert(app.clone(), refusal.to_string());
        // Others say that there is no room or no agent just now: that passes.
        if matches!(refusal, Refusal::StartFailed { .. }) {
            self.broken.insert(app.clone());
        }
        let pause = self.holdoffs.get(app).map_or(FIRST_HOLDOFF, |(_, pause)| (*pause * 2).min(LONGEST_HOLDOFF));
        self.holdoffs.insert(app.clone(), (now + pause, pause));
    }

    /// A start is over: the look of `ticket` shows its instance, if it is there.
    pub fn handle_over(&mut self, instance: &InstanceId, ticket: Ticket) {
        if let Some(shown_by) = self.unseen.get_mut(instance) {
            *shown_by = Some(ticket);
        }
    }

    /// A look has ended, which shows `instances`.
    pub fn handle_seen(&mut self, instances: &[InstanceSeen], look: &Look) {
        let is_shown = |id: &InstanceId| instances.iter().any(|seen| seen.id == *id);
        self.unseen.retain(|id, shown_by| !is_shown(id) && !shown_by.is_some_and(|ticket| look.has_ended(ticket)));
    }

    /// Applications of which an instance is being started that no look has shown yet. Whoever counts instances would start another one.
    pub fn unseen(&self) -> BTreeSet<AppName> {
        self.unseen.keys().filter_map(naming::parts).map(|(app, _)| app).collect()
    }

    /// The number for each application's next instance.
    pub fn next_numbers(&self, taken: &Ids) -> BTreeMap<AppName, u64> {
        let mut next: BTreeMap<AppName, u64> = self.highest.iter().map(|(app, highest)| (app.clone(), highest + 1)).collect();
        for (app, number) in taken.iter().filter_map(naming::parts) {
            let at_least = next.entry(app).or_insert(1);
            *at_least = (*at_least).max(number + 1);
        }
        next
    }

    /// Numbers that were used are not used again.
    pub fn handle_begun(&mut self, instance: &InstanceId) {
        self.unseen.insert(instance.clone(), None);
        if let Some((app, number)) = naming::parts(instance) {
            let highest = self.highest.entry(app).or_default();
            *highest = (*highest).max(number);
        }
    }

    /// An id that no instance has or had since the controller started.
    pub fn unused_id(&mut self, app: &AppName, taken: &Ids) -> InstanceId {
        let number = self.next_numbers(taken).get(app).copied().unwrap_or(1);
        self.highest.insert(app.clone(), number);
        naming::instance_id(app, number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_application_that_fails_to_start_is_left_alone_for_longer_each_time() {
        let (mut starts, shop) = (Starts::default(), AppName::from("shop"));
        let at = Time::from_secs_f64;
        let refusal = Refusal::StartFailed { detail: "no such file".into() };
        starts.handle_outcome(at(0.0), &shop, Some(&refusal));
        assert!(!starts.may_start(at(0.5), &shop) && starts.may_start(at(1.0), &shop));
        starts.handle_outcome(at(1.0), &shop, Some(&refusal));
        assert!(!starts.may_start(at(2.9), &shop) && starts.may_start(at(3.0), &shop));
        assert_eq!(starts.failures()[&shop], refusal.to_string());
        assert!(starts.broken().contains(&shop));
        starts.handle_outcome(at(3.0), &shop, None);
        assert!(starts.may_start(at(3.0), &shop) && starts.failures().is_empty() && starts.broken().is_empty());
    }

    #[test]
    fn numbers_are_never_used_twice() {
        let (mut starts, shop) = (Starts::default(), AppName::from("shop"));
        let taken = Ids::from(["shop-4".into(), "db-9".into()]);
        assert_eq!(starts.unused_id(&shop, &taken).as_str(), "shop-5");
        assert_eq!(starts.unused_id(&shop, &Ids::new()).as_str(), "shop-6", "the one before may have ended");
        starts.handle_begun(&"shop-9".into());
        assert_eq!(starts.next_numbers(&taken)[&shop], 10);
    }
}
