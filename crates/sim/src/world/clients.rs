//! Who asks: when sessions and open loads send their requests, and what they make of the answers.

use weal_scenario::workload::Walk;

use super::parts::clients::{AFTER_FAILURE_S, RequestEnd, Session};
use super::parts::event::Event;
use super::state::World;

impl World<'_> {
    pub fn next_arrival(&mut self, load: usize) {
        if let Some(at_s) = self.clients[load].arrivals.next() {
            self.agenda.enter(at_s, Event::Arrival { load });
        }
    }

    /// Brings the number of sessions to what the load says now. Sessions that are too many end after their next answer.
    pub fn adjust_sessions(&mut self, load: usize) {
        let scenario = self.scenario;
        let spec = &scenario.loads[load];
        let now_s = self.now_s();
        for number in 0..spec.workload.sessions_at(now_s) {
            let sessions = &mut self.clients[load].sessions;
            if sessions.len() <= number as usize {
                let thoughts = spec.workload.thoughts(scenario.seed, &spec.name, number);
                let walk = Walk::new(scenario.seed, &spec.name, number);
                sessions.push(Session { thoughts, walk, alive: false, is_under_way: false });
            }
            let session = &mut sessions[number as usize];
            if !session.alive {
                session.alive = true;
                // A new session asks at once, as the load generator's do.
                self.agenda.enter(now_s, Event::Ask { load, session: number });
            }
        }
    }

    /// The flow of a session's next request, or of an open load's.
    pub fn next_flow(&mut self, load: usize, session: Option<u32>) -> usize {
        let pages = &self.scenario.loads[load].pages;
        let session = session.map(|number| &mut self.clients[load].sessions[number as usize]);
        self.first_flow[load] + session.map_or(0, |session| session.walk.step(pages))
    }

    /// A client learns what became of its request.
    pub fn answer_client(&mut self, flow: usize, session: Option<u32>, answer: RequestEnd) {
        let load = self.flows[flow].load;
        let counters = &mut self.flows[flow].client_counters;
        match answer {
            RequestEnd::Served => counters.answered += 1,
            RequestEnd::Rejected => counters.rejected += 1,
            RequestEnd::Failed => counters.failed += 1,
        }
        let Some(number) = session else { return };
        let now_s = self.now_s();
        let wanted = self.scenario.loads[load].workload.sessions_at(now_s);
        let session = &mut self.clients[load].sessions[number as usize];
        session.is_under_way = answer == RequestEnd::Served;
        if number >= wanted {
            session.alive = false;
            return;
        }
        let pause_s = if answer == RequestEnd::Served { 0.0 } else { AFTER_FAILURE_S };
        let thought_s = session.thoughts.next().unwrap_or(0.0);
        self.agenda.enter(now_s + thought_s + pause_s, Event::Ask { load, session: number });
    }
}
