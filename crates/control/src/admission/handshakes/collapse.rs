//! The collapse of Carrera 4.3, and the rescue: one CPU, sessions that come at a rate, think, and are given up after ten seconds without an
//! answer. What is not tested here, the gateway does with sockets; `cargo xtask bench tls-overload` measures that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::time::Duration;

use weal_model::Time;

use super::{Effort, HandshakePlace, Handshakes};
use crate::seeded::Seeded;

const FULL: Duration = Duration::from_millis(20);
const RESUMED: Duration = Duration::from_millis(1);
const REQUEST: Duration = Duration::from_millis(2);
const THINK_S: f64 = 0.7;
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections of a session; the first is shaken hands for in full.
const VISITS: u32 = 4;
const REQUESTS: u32 = 2;
const RETURNS: u32 = 2;
const SPAN: Duration = Duration::from_secs(120);
/// What one session takes of the CPU.
const SESSION_S: f64 = 0.020 + 3.0 * 0.001 + 8.0 * 0.002;

/// Sessions by number.
type User = usize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes,
    /// It has thought enough.
    Asks(User),
    /// The wish of this number was not answered in time.
    GivesUp(User, u32),
    /// The CPU is free.
    Free,
}

/// What a client waits for.
#[derive(Debug, Clone, Copy)]
enum Work {
    Handshake(Effort),
    Request,
}

#[derive(Debug, Default)]
struct Session {
    returns: u32,
    /// Requests answered.
    answered: u32,
    /// Which of its wishes is open; even between two.
    wish: u32,
    place: Option<HandshakePlace>,
}

struct World {
    orders: bool,
    rate: f64,
    random: Seeded,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    numbers: u64,
    sessions: Vec<Session>,
    handshakes: Handshakes,
    waiting: BTreeMap<HandshakePlace, (User, u32, Effort)>,
    queue: VecDeque<(User, u32, Work)>,
    is_busy: bool,
    completed: u32,
    full: u32,
    resumed: u32,
}

/// Sessions completed and handshakes of either kind in the second half of a run, at so many times what the CPU can do.
fn run(orders: bool, times: f64) -> (u32, u32, u32) {
    let mut world = World {
        orders,
        rate: times / SESSION_S,
        random: Seeded::new(7),
        now: Time::ZERO,
        events: BinaryHeap::new(),
        numbers: 0,
        sessions: Vec::new(),
        handshakes: Handshakes::new(),
        waiting: BTreeMap::new(),
        queue: VecDeque::new(),
        is_busy: false,
        completed: 0,
        full: 0,
        resumed: 0,
    };
    world.at(Time::ZERO, Event::Comes);
    let half = Time::ZERO + SPAN / 2;
    let mut before = None;
    while let Some(Reverse((time, _, event))) = world.events.pop() {
        if time > half && before.is_none() {
            before = Some((world.completed, world.full, world.resumed));
        }
        if time > Time::ZERO + SPAN {
            break;
        }
        world.now = time;
        world.handle(event);
    }
    let (completed, full, resumed) = before.unwrap();
    (world.completed - completed, world.full - full, world.resumed - resumed)
}

impl World {
    fn at(&mut self, time: Time, event: Event) {
        self.numbers += 1;
        self.events.push(Reverse((time, self.numbers, event)));
    }

    fn after(&mut self, mean_s: f64, event: Event) {
        let wait = -mean_s * (1.0 - self.random.between(0.0, 1.0)).ln();
        self.at(self.now + Duration::from_secs_f64(wait), event);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Comes => {
                self.sessions.push(Session::default());
                self.ask(self.sessions.len() - 1);
                self.after(1.0 / self.rate, Event::Comes);
            }
            Event::Asks(user) => self.ask(user),
            Event::GivesUp(user, wish) if self.sessions[user].wish == wish => {
                if let Some(place) = self.sessions[user].place.take() {
                    self.handshakes.handle_leave(place);
                    self.waiting.remove(&place);
                }
                self.lose(user);
                if self.sessions[user].returns <= RETURNS {
                    self.ask(user);
                }
            }
            Event::GivesUp(..) => {}
            Event::Free => self.is_busy = false,
        }
        self.work();
    }

    /// A client wants something, over a new connection at the start of each visit.
    fn ask(&mut self, user: User) {
        let session = &mut self.sessions[user];
        session.wish += 1;
        let (wish, answered) = (session.wish, session.answered);
        self.at(self.now + PATIENCE, Event::GivesUp(user, wish));
        if answered % REQUESTS != 0 {
            return self.queue.push_back((user, wish, Work::Request));
        }
        let effort = if answered == 0 { Effort::FullByRsa } else { Effort::Resumed };
        if !self.orders {
            return self.queue.push_back((user, wish, Work::Handshake(effort)));
        }
        match self.handshakes.handle_hello(self.now, effort) {
            Ok(None) => self.queue.push_back((user, wish, Work::Handshake(effort))),
            Ok(Some(place)) => {
                self.sessions[user].place = Some(place);
                self.waiting.insert(place, (user, wish, effort));
            }
            Err(_) => {
                self.lose(user);
                if self.sessions[user].returns <= RETURNS {
                    self.after(THINK_S, Event::Asks(user));
                }
            }
        }
    }

    /// Its session is over; it may come back as a new one.
    fn lose(&mut self, user: User) {
        let session = &mut self.sessions[user];
        *session = Session { returns: session.returns + 1, wish: session.wish + 1, ..Session::default() };
    }

    /// Lets the CPU do what is next. Work for who has left is done as well: that shows only when the answer is written.
    fn work(&mut self) {
        if self.is_busy {
            return;
        }
        let due = self.handshakes.poll_due(self.now);
        let next = match due {
            None => self.queue.pop_front().map(Ok).or_else(|| self.handshakes.poll_idle(self.now).map(Err)),
            Some(place) => Some(Err(place)),
        };
        let (user, wish, work) = match next {
            None => return,
            Some(Ok(next)) => next,
            Some(Err(place)) => {
                let (user, wish, effort) = self.waiting.remove(&place).expect("it waits");
                self.sessions[user].place = None;
                (user, wish, Work::Handshake(effort))
            }
        };
        self.is_busy = true;
        let cost = match work {
            Work::Handshake(Effort::Resumed) => RESUMED,
            Work::Handshake(_) => FULL,
            Work::Request => REQUEST,
        };
        self.now = self.now + cost;
        self.at(self.now, Event::Free);
        self.finish(user, wish, work, cost);
    }

    fn finish(&mut self, user: User, wish: u32, work: Work, cost: Duration) {
        if let Work::Handshake(effort) = work {
            self.handshakes.handle_done(self.now, effort, cost);
            *(if effort == Effort::Resumed { &mut self.resumed } else { &mut self.full }) += 1;
        }
        let session = &mut self.sessions[user];
        if session.wish != wish {
            return;
        }
        match work {
            Work::Handshake(_) => self.queue.push_back((user, wish, Work::Request)),
            Work::Request => {
                session.answered += 1;
                session.wish += 1;
                if session.answered == VISITS * REQUESTS {
                    self.completed += 1;
                } else {
                    self.after(THINK_S, Event::Asks(user));
                }
            }
        }
    }
}

#[test]
fn carrera_4_3_without_an_order_sessions_collapse_under_overload_and_with_it_as_many_are_completed_as_can_be() {
    let possible = (SPAN.as_secs_f64() / 2.0 / SESSION_S) as u32;
    let share = |full: u32, resumed: u32| f64::from(full) / f64::from(full + resumed);
    for orders in [false, true] {
        let (completed, full, resumed) = run(orders, 0.7);
        assert!(completed * 10 >= possible * 6, "{completed} of {possible} below the limit, {orders}");
        assert!((share(full, resumed) - 0.25).abs() < 0.02, "one of four handshakes is full: {full}, {resumed}");
    }
    for times in [1.5, 3.0] {
        let (collapsed, full, resumed) = run(false, times);
        assert!(collapsed * 4 <= possible, "{collapsed} of {possible} completed at {times}");
        assert!(share(full, resumed) > 0.6, "Figure 4.7: nearly all handshakes are full ones: {full}, {resumed}");
        let (rescued, full, resumed) = run(true, times);
        assert!(rescued * 10 >= possible * 9, "{rescued} of {possible} completed at {times}, in order");
        assert!(share(full, resumed) < 0.3, "{full}, {resumed}");
    }
}
