//! The client connections that are open: to count them, to make room among them and to close them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Clock;
use crate::limits::Limits;
use crate::listen::client::{Client, Order, Phase};
use crate::listen::guard::Hold;

/// Among so many connections or more, a sixteenth that is new makes a crowd. To look at fewer now and then is enough.
const MANY: usize = 1000;

/// The client connections that are open, tunnels included.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    next: AtomicU64,
    /// New ones since they were last looked at.
    new: AtomicUsize,
    crowd: Notify,
}

/// An open connection's entry; closed when this is dropped.
#[derive(Debug)]
pub(crate) struct Entry {
    registry: Arc<Registry>,
    key: u64,
    /// What it takes of its address's connections.
    _hold: Option<Hold>,
}

impl Registry {
    /// Registers a connection until its entry is dropped.
    pub fn enter(self: &Arc<Self>, client: &Arc<Client>, hold: Option<Hold>) -> Entry {
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        let count = {
            let mut clients = self.lock();
            clients.insert(key, Arc::clone(client));
            clients.len()
        };
        let new = self.new.fetch_add(1, Ordering::Relaxed) + 1;
        if count >= MANY && new >= count / 16 {
            self.crowd.notify_one();
        }
        Entry { registry: Arc::clone(self), key, _hold: hold }
    }

    /// Completes when so many are new that those of them which are idle again should not wait for the next regular [`Registry::sweep`].
    pub async fn crowded(&self) {
        self.crowd.notified().await;
    }

    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Tells every connection to close after the next answer that begins, because a client would lose a request that it sends just now. Those
    /// that have sent nothing for as long as `quiet` are closed at once.
    pub fn close_all(&self, clock: Clock, quiet: Duration) {
        let now = clock.now();
        for client in self.lock().values() {
            let is_quiet = client.phase() == Phase::Idle && client.phase_age(now) >= quiet;
            client.give(if is_quiet { Order::Close } else { Order::Leave });
        }
    }

    /// Whether one more may come in; where too many are open, idle ones are told to close for it. False when none is idle.
    pub fn has_room(&self, limits: &Limits, clock: Clock) -> bool {
        self.count() < limits.connections || self.make_room(clock)
    }

    /// Makes room by closing those that have been idle the longest, a few at a time so that a flood does not look at all of
    /// them for each newcomer. False when none is idle.
    fn make_room(&self, clock: Clock) -> bool {
        let clients = self.lock();
        let now = clock.now();
        let mut idle: Vec<(Duration, &Arc<Client>)> = clients
            .values()
            .filter(|client| client.phase() == Phase::Idle && !client.has_order())
            .map(|client| (client.phase_age(now), client))
            .collect();
        let few = (clients.len() / 64).max(1).min(idle.len());
        if few == 0 {
            return false;
        }
        idle.select_nth_unstable_by_key(few - 1, |&(age, _)| std::cmp::Reverse(age));
        for (_, client) in &idle[..few] {
            client.give(Order::Close);
        }
        true
    }

    /// Closes connections that have been idle, or at the head of a request, for too long, and lets others rest: says how many. Of half heads,
    /// and of idle connections that do not rest, there are so many at most: the oldest make room.
    pub fn sweep(&self, clock: Clock, limits: &Limits) -> usize {
        self.new.store(0, Ordering::Relaxed);
        let (now, clients) = (clock.now(), self.lock());
        let is_roomy = clients.len() * 2 < limits.connections;
        let (mut heads, mut awake): (Vec<Aged<'_>>, Vec<Aged<'_>>) = (Vec::new(), Vec::new());
        let mut begin_to_rest = 0;
        for client in clients.values() {
            let age = client.phase_age(now);
            let idle = if is_roomy && client.is_resting() { limits.resting } else { limits.idle };
            match client.phase() {
                Phase::Idle if age > idle => client.give(Order::Close),
                Phase::Idle if client.may_rest() => {}
                Phase::Idle if age > limits.rests_after => begin_to_rest += usize::from(client.let_rest()),
                Phase::Idle => awake.push((age, client)),
                Phase::Head if age > limits.head => client.give(Order::TooSlow),
                Phase::Head => heads.push((age, client)),
                _ => {}
            }
        }
        oldest(&mut heads, limits.half_heads).iter().for_each(|(_, client)| client.give(Order::TooSlow));
        begin_to_rest += oldest(&mut awake, limits.awake).iter().filter(|(_, client)| client.let_rest()).count();
        begin_to_rest
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Client>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.key);
    }
}

/// How long a client has been as it is.
type Aged<'a> = (Duration, &'a Arc<Client>);

/// Of more than `most`, those that are too many: the oldest.
fn oldest<'a, 'c>(all: &'a mut [Aged<'c>], most: usize) -> &'a [Aged<'c>] {
    let many = all.len().saturating_sub(most);
    if many > 0 {
        all.select_nth_unstable_by_key(many - 1, |&(age, _)| std::cmp::Reverse(age));
    }
    &all[..many]
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::upstream::speech::Ends;

    #[test]
    fn of_many_idle_connections_those_that_are_idle_longest_rest_at_once() {
        let (clock, registry) = (Clock::new(), Arc::new(Registry::default()));
        let address = "127.0.0.1:1".parse().unwrap();
        let enter = || {
            let client = Arc::new(Client::new(Ends { client: address, server: address }, clock));
            let entry = registry.enter(&client, None);
            // Two that came in the same moment are equally old.
            std::thread::sleep(Duration::from_millis(2));
            (client, entry)
        };
        let limits = Limits { awake: 2, rests_after: Duration::from_secs(3600), ..Limits::default() };
        let mut clients: Vec<_> = (0..5).map(|_| enter()).collect();
        assert_eq!(registry.sweep(clock, &limits), 3);
        let rests = |clients: &[(Arc<Client>, Entry)]| clients.iter().map(|(client, _)| client.may_rest()).collect::<Vec<_>>();
        assert_eq!(rests(&clients), [true, true, true, false, false]);
        clients.push(enter());
        assert_eq!(registry.sweep(clock, &limits), 1, "who rests is not told again");
        assert_eq!(rests(&clients), [true, true, true, true, false, false]);
        let busy = clients[5].0.begin();
        clients.push(enter());
        assert_eq!(registry.sweep(clock, &limits), 0, "one that is busy is not idle");
        drop(busy);
        assert_eq!(registry.sweep(clock, &limits), 1);
    }

    #[test]
    fn many_new_connections_among_many_are_looked_at_before_it_is_time() {
        let (clock, registry) = (Clock::new(), Arc::new(Registry::default()));
        let address = "127.0.0.1:1".parse().unwrap();
        let enter = |count: usize| -> Vec<Entry> {
            let client = Arc::new(Client::new(Ends { client: address, server: address }, clock));
            (0..count).map(|_| registry.enter(&client, None)).collect()
        };
        let is_crowded = || registry.crowded().now_or_never().is_some();
        let mut open = enter(MANY - 1);
        assert!(!is_crowded(), "of few, all are looked at in time");
        open.extend(enter(1));
        assert!(is_crowded());
        registry.sweep(clock, &Limits::default());
        open.extend(enter(MANY / 16));
        assert!(!is_crowded(), "these are few among the others");
        open.extend(enter(MANY / 16));
        assert!(is_crowded());
    }
}
