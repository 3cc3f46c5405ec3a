use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use weal_model::{
    Action, AppKind, AppName, AppSpec, Bytes, Cpu, InstanceId, InstanceRange, InstanceState, NodeName, NodeSpec, PoolSpec,
    RolloutPhase,
};
use weal_protocol::engine::{InstanceSeen, Revision};

use super::{Rollout, RolloutStep, View};

/// One application `shop` on the nodes `n1` and `n2`, of which `n1` holds its instances.
struct Bed {
    pool: PoolSpec,
    instances: Vec<InstanceSeen>,
    revisions: BTreeMap<AppName, Revision>,
    busy: BTreeSet<InstanceId>,
    free: BTreeMap<NodeName, Bytes>,
    failures: BTreeMap<AppName, String>,
    unseen: BTreeSet<AppName>,
    rollout: Rollout,
}

const OLD: &str = "old";
const NEW: &str = "new";

fn seen(id: &str, revision: &str, state: InstanceState) -> InstanceSeen {
    InstanceSeen {
        revision: Revision { start: revision.to_owned(), settings: String::new() },
        state,
        start_took_s: (state == InstanceState::Ready).then_some(1.0),
        ..InstanceSeen::example(id, "shop", "n1")
    }
}

impl Bed {
    /// With so many ready instances of the old version.
    fn new(old: usize, range: InstanceRange) -> Self {
        let mut pool = PoolSpec::example();
        let node = |name: &str| NodeSpec { name: name.into(), cpu: Cpu(1.0), memory: Bytes::gib(1), utilization_limit: 0.9 };
        pool.nodes = vec![node("n1"), node("n2")];
        let per_node = range.max;
        pool.apps.insert("shop".into(), AppSpec { instances: range, per_node, ..AppSpec::example("shop") });
        Self {
            pool,
            instances: (1..=old).map(|number| seen(&format!("shop-{number}"), OLD, InstanceState::Ready)).collect(),
            revisions: [("shop".into(), Revision { start: NEW.to_owned(), settings: String::new() })].into(),
            busy: BTreeSet::new(),
            free: [("n1".into(), Bytes::gib(1)), ("n2".into(), Bytes::mib(512))].into(),
            failures: BTreeMap::new(),
            unseen: BTreeSet::new(),
            rollout: Rollout::default(),
        }
    }

    fn one() -> Self {
        Self::new(1, InstanceRange { min: 1, max: 1 })
    }

    fn shop(&mut self) -> &mut AppSpec {
        self.pool.apps.get_mut("shop").unwrap()
    }

    fn with_view<T>(&mut self, look: impl FnOnce(&mut Rollout, &View<'_>) -> T) -> T {
        let mut rollout = std::mem::take(&mut self.rollout);
        let answer = look(
            &mut rollout,
            &View {
                pool: &self.pool,
                instances: &self.instances,
                revisions: &self.revisions,
                busy: &|id| self.busy.contains(id),
                free: &|node| self.free[node],
                failures: &self.failures,
                unseen: &self.unseen,
            },
        );
        self.rollout = rollout;
        answer
    }

    fn step(&mut self) -> Vec<Action> {
        let next = RefCell::new(self.instances.len());
        let name = |app: &AppName| {
            *next.borrow_mut() += 1;
            weal_model::naming::instance_id(app, *next.borrow() as u64)
        };
        let RolloutStep { actions, .. } = self.with_view(|rollout, view| rollout.step(view, name));
        actions.into_iter().map(|(action, _)| action).collect()
    }

    fn status(&mut self) -> Option<(RolloutPhase, String)> {
        let shop = self.shop().clone();
        self.with_view(|rollout, view| rollout.status(view, &shop)).map(|status| (status.phase, status.detail))
    }

    fn add(&mut self, id: &str, state: InstanceState) {
        self.instances.push(seen(id, NEW, state));
    }

    fn set(&mut self, id: &str, state: InstanceState) {
        let instance = self.instances.iter_mut().find(|seen| seen.id.as_str() == id).unwrap();
        instance.state = state;
        if state == InstanceState::Ready {
            instance.start_took_s = Some(1.0);
        }
    }
}

fn start(id: &str, node: &str) -> Action {
    Action::Start { instance: id.into(), app: "shop".into(), node: node.into() }
}

fn stop(id: &str) -> Action {
    Action::Stop { instance: id.into(), app: "shop".into() }
}

#[test]
fn the_only_instance_is_stopped_after_its_successor_is_ready() {
    let mut bed = Bed::one();
    assert_eq!(bed.step(), [start("shop-2", "n1")], "beside the old one, though `max` is 1");
    bed.add("shop-2", InstanceState::Starting);
    assert_eq!(bed.step(), []);
    assert_eq!(bed.status().unwrap().0, RolloutPhase::Starting);
    bed.set("shop-2", InstanceState::Ready);
    assert_eq!(bed.step(), [stop("shop-1")]);
    bed.busy.insert("shop-1".into());
    assert_eq!(bed.step(), []);
    assert_eq!(bed.status().unwrap().0, RolloutPhase::Draining);
    bed.instances.remove(0);
    assert_eq!((bed.step(), bed.status()), (vec![], None));
}

#[test]
fn a_new_version_that_never_gets_ready_leaves_the_old_one_alone_and_says_why() {
    let mut bed = Bed::one();
    bed.step();
    bed.add("shop-2", InstanceState::Backoff);
    bed.instances[1].detail = "ended by itself with status 3".to_owned();
    assert_eq!((bed.step(), bed.status().unwrap().0), (vec![], RolloutPhase::Starting), "once may be bad luck");
    bed.instances[1].restarts = 2;
    assert_eq!(bed.step(), []);
    let (phase, detail) = bed.status().unwrap();
    assert_eq!(phase, RolloutPhase::Stuck);
    assert!(detail.contains("shop-2: ended by itself with status 3. shop-1 of the version before still serves"), "{detail}");
    // Back to the old config: the new one goes, the old one is right again.
    bed.revisions.get_mut("shop").unwrap().start = OLD.to_owned();
    assert_eq!(bed.step(), [stop("shop-2")]);
}

#[test]
fn an_old_instance_that_crashes_meanwhile_is_kept_until_somebody_serves() {
    let mut bed = Bed::one();
    bed.step();
    bed.add("shop-2", InstanceState::Starting);
    bed.set("shop-1", InstanceState::Backoff);
    assert_eq!(bed.step(), [], "its agent starts it again");
    bed.set("shop-2", InstanceState::Ready);
    assert_eq!(bed.step(), [stop("shop-1")]);
}

#[test]
fn a_program_that_cannot_even_begin_is_named() {
    let mut bed = Bed::one();
    bed.step();
    bed.failures.insert("shop".into(), "there is no such program".to_owned());
    let (phase, detail) = bed.status().unwrap();
    assert!(phase == RolloutPhase::Stuck && detail.contains("there is no such program"), "{detail}");
}

#[test]
fn a_singleton_is_stopped_first() {
    let mut bed = Bed::one();
    bed.shop().singleton = true;
    assert_eq!(bed.step(), [stop("shop-1")]);
    bed.busy.insert("shop-1".into());
    assert_eq!(bed.step(), []);
}

#[test]
fn several_are_replaced_one_at_a_time_and_a_stream_holds_up_nobody() {
    let mut bed = Bed::new(3, InstanceRange { min: 1, max: 3 });
    assert_eq!(bed.step(), [start("shop-4", "n1")]);
    bed.add("shop-4", InstanceState::Ready);
    assert_eq!(bed.step(), [stop("shop-1")]);
    bed.busy.insert("shop-1".into());
    assert_eq!(bed.step(), [start("shop-5", "n1")], "shop-1 still drains");
    bed.add("shop-5", InstanceState::Starting);
    assert_eq!(bed.step(), []);
    bed.set("shop-5", InstanceState::Ready);
    assert_eq!(bed.step(), [stop("shop-2")]);
}

#[test]
fn without_memory_for_two_the_old_one_is_stopped_first_but_never_while_memory_is_on_its_way() {
    let mut bed = Bed::one();
    bed.free = [("n1".into(), Bytes::mib(10)), ("n2".into(), Bytes::mib(20))].into();
    bed.instances.push(InstanceSeen { app: "other".into(), ..seen("other-1", OLD, InstanceState::Stopping) });
    bed.pool.apps.insert("other".into(), AppSpec::example("other"));
    assert_eq!(bed.step(), []);
    let (phase, detail) = bed.status().unwrap();
    assert_eq!(phase, RolloutPhase::Waiting);
    assert!(detail.contains("needs 64MiB, and no node has more than 20MiB free (n2)"), "{detail}");
    bed.instances.pop();
    assert_eq!(bed.step(), [stop("shop-1")]);
}

#[test]
fn another_node_is_taken_where_the_first_is_full() {
    let mut bed = Bed::one();
    bed.free.insert("n1".into(), Bytes(0));
    assert_eq!(bed.step(), [start("shop-2", "n2")]);
}

#[test]
fn a_sleeping_application_keeps_its_old_instance_until_the_new_one_has_shown_that_it_runs() {
    let mut bed = Bed::new(1, InstanceRange { min: 0, max: 1 });
    bed.set("shop-1", InstanceState::Parked);
    assert_eq!(bed.step(), [start("shop-2", "n1")]);
    bed.add("shop-2", InstanceState::Ready);
    assert_eq!(bed.step(), [stop("shop-1")]);
}

#[test]
fn a_restart_replaces_what_is_of_the_right_version_once() {
    let mut bed = Bed::one();
    bed.revisions.get_mut("shop").unwrap().start = OLD.to_owned();
    assert_eq!(bed.step(), []);
    bed.rollout.handle_restart(["shop-1".into()]);
    assert_eq!(bed.step(), [start("shop-2", "n1")]);
    bed.instances.push(seen("shop-2", OLD, InstanceState::Ready));
    assert_eq!(bed.step(), [stop("shop-1")]);
    bed.instances.remove(0);
    assert_eq!((bed.step(), bed.status()), (vec![], None));
}

#[test]
fn what_was_ordered_to_stop_is_stopped_whatever_its_version() {
    let mut bed = Bed::one();
    bed.shop().halted = true;
    assert_eq!(bed.step(), [stop("shop-1")]);
    bed.busy.insert("shop-1".into());
    assert_eq!(bed.step(), []);
}

#[test]
fn a_task_of_an_earlier_deploy_ends_before_the_next_one_begins() {
    let mut bed = Bed::one();
    bed.shop().kind = AppKind::Task;
    assert_eq!(bed.step(), [], "it still runs");
    bed.set("shop-1", InstanceState::Stopped);
    assert_eq!(bed.step(), [stop("shop-1")], "placement starts the next one then");
}

#[test]
fn what_needs_a_task_says_that_it_waits_and_is_stuck_when_the_task_has_failed() {
    let mut bed = Bed::one();
    bed.shop().after.insert("migrate".into());
    bed.revisions.insert("migrate".into(), Revision { start: NEW.to_owned(), settings: String::new() });
    let (phase, detail) = bed.status().unwrap();
    assert!(phase == RolloutPhase::Waiting && detail.contains("waits for the task migrate"), "{detail}");
    let task = |revision, state| InstanceSeen { app: "migrate".into(), ..seen("migrate-1", revision, state) };
    bed.instances.push(task(OLD, InstanceState::Stopped));
    assert_eq!(bed.status().unwrap().0, RolloutPhase::Waiting, "it was done for another deploy");
    bed.instances[1] = InstanceSeen { detail: "ended by itself with status 9".into(), ..task(NEW, InstanceState::Failed) };
    let (phase, detail) = bed.status().unwrap();
    assert!(
        phase == RolloutPhase::Stuck && detail.contains("migrate failed: migrate-1: ended by itself with status 9"),
        "{detail}"
    );
    bed.instances[1] = task(NEW, InstanceState::Stopped);
    assert_eq!(bed.status().unwrap().0, RolloutPhase::Starting);
}
