//! What an engine does with instances unasked, between two orders of the controller. The node agent and the simulated engine both do it by
//! these rules.

use std::time::Duration;

use crate::{InstanceState, Rung, Time};

/// The pause before the first restart.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause before a restart.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// An instance that was ready for so long has recovered: its next pause before a restart is the first one again.
pub const RECOVERED_AFTER: Duration = Duration::from_secs(60);

/// An instance that was named to a gateway is not put to sleep for so long: the order to do so was decided before, by one who had seen
/// no request. Longer than that order may be under way.
pub const JUST_NAMED: Duration = Duration::from_secs(2);

/// The pause before an instance that ended by itself is started again, when so many runs before this one have failed in a row: half a
/// second, then twice as long each time, up to a minute.
pub fn restart_pause(failed_in_a_row: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failed_in_a_row.min(10)).min(LONGEST_PAUSE)
}

/// Who is named first to a gateway that asks for an instance: the lowest. Awake before asleep, light sleep before deep, asleep before
/// starting. One that is ready and does not stay awake is about to fall asleep.
pub fn wake_rank(state: InstanceState, stays_awake: bool) -> u8 {
    match (state, state.rung()) {
        (InstanceState::Ready, _) if stays_awake => 0,
        (InstanceState::Ready, _) => 1,
        (_, Some(rung)) => 1 + rung as u8,
        (InstanceState::Starting | InstanceState::Unhealthy, _) => 10,
        (InstanceState::Backoff, _) => 11,
        _ => 12,
    }
}

/// Who is parked next where too little memory is free: of those that sleep with their memory, the one that has been on its rung the longest.
/// Each candidate comes with its state and since when it is in it.
pub fn parked_next<I>(candidates: impl IntoIterator<Item = (I, InstanceState, Time)>) -> Option<I> {
    let sleeps = |state: InstanceState| state.rung().is_some_and(|rung| rung < Rung::Parked);
    let sleepers = candidates.into_iter().filter(|(_, state, _)| sleeps(*state));
    sleepers.min_by_key(|(_, _, since)| *since).map(|(instance, _, _)| instance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute() {
        let seconds: Vec<f64> = (0..9).map(|failed| restart_pause(failed).as_secs_f64()).collect();
        assert_eq!(seconds, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
        assert_eq!(restart_pause(u32::MAX), LONGEST_PAUSE);
    }

    #[test]
    fn who_answers_soonest_is_named_first() {
        use InstanceState::{Backoff, Parked, Ready, Starting, Stopping, Suspended, Warm};
        let order = [(Ready, true), (Ready, false), (Suspended, false), (Warm, false), (Parked, false), (Starting, false)];
        let ranks: Vec<u8> = order.iter().map(|(state, awake)| wake_rank(*state, *awake)).collect();
        assert!(ranks.is_sorted() && ranks[0] < ranks[1], "{ranks:?}");
        assert!(wake_rank(Starting, false) < wake_rank(Backoff, false) && wake_rank(Backoff, false) < wake_rank(Stopping, false));
    }

    #[test]
    fn who_sleeps_longest_with_its_memory_is_parked_next() {
        let at = |seconds: u64| Time::from_secs_f64(seconds as f64);
        let asleep = [("late", InstanceState::Suspended, at(9)), ("early", InstanceState::Warm, at(5))];
        let others = [("parked", InstanceState::Parked, at(1)), ("awake", InstanceState::Ready, at(1))];
        assert_eq!(parked_next(others.into_iter().chain(asleep)), Some("early"));
        assert_eq!(parked_next(others), None);
    }
}
