//! How much a client may send that costs the gateway work and brings the client nothing.
//!
//! Some frames ask for nothing that a client needs often: a ping, new settings, a priority. A client may reset streams at once after it
//! opened them, so that it never reaches the limit of open ones (rapid reset, CVE-2023-44487). Each kind has a budget: `burst` frames at
//! first, and `per_second` more as time passes. What an honest client answers with such frames adds to the budget: data that the gateway
//! sent, requests that it answered. A client over budget is an abuser; its connection ends with ENHANCE_YOUR_CALM (RFC 9113 section 10.5).
//!
//! The memory that any client can take is bounded elsewhere: by windows, by open streams, and by h2, which keeps at most one ping and one
//! settings frame unanswered and counts frames that continue a head.

use weal_model::Time;

/// A kind of frame that has a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It concerns the connection: PING, SETTINGS, PRIORITY, or what nobody knows.
    Control,
    /// WINDOW_UPDATE: one or two follow each frame of data.
    Window,
    /// RST_STREAM.
    Reset,
}

/// What one client has left of each budget.
#[derive(Debug)]
pub(super) struct Conduct {
    refilled: Time,
    control: Budget,
    windows: Budget,
    resets: Budget,
}

/// In frames. Invariant: 0 <= left <= burst.
#[derive(Debug)]
struct Budget {
    left: f64,
    burst: f64,
    per_second: f64,
}

/// Ten thousand small frames cost a few milliseconds; a thousand a second, a thousandth of a CPU. gRPC's clients ping once for each round
/// trip with data, which adds to the budget.
const CONTROL: Budget = Budget { left: 10_000.0, burst: 10_000.0, per_second: 1000.0 };
/// As for control frames.
const WINDOWS: Budget = Budget { left: 10_000.0, burst: 10_000.0, per_second: 1000.0 };
/// A browser that leaves a page resets a hundred streams; each reset may have cost an instance a request.
const RESETS: Budget = Budget { left: 500.0, burst: 500.0, per_second: 50.0 };

impl Budget {
    fn add(&mut self, frames: f64) {
        self.left = (self.left + frames).min(self.burst);
    }

    /// False when nothing is left.
    fn take(&mut self) -> bool {
        let is_within = self.left >= 1.0;
        self.left = (self.left - 1.0).max(0.0);
        is_within
    }
}

impl Conduct {
    pub fn new(now: Time) -> Self {
        Self { refilled: now, control: CONTROL, windows: WINDOWS, resets: RESETS }
    }

    /// Adds what the time since the last call gives.
    pub fn handle_time(&mut self, now: Time) {
        let elapsed_s = now.since(self.refilled).as_secs_f64();
        self.refilled = now;
        for budget in [&mut self.control, &mut self.windows, &mut self.resets] {
            budget.add(elapsed_s * budget.per_second);
        }
    }

    /// The client has sent a frame. False when it abuses the gateway.
    pub fn handle_frame(&mut self, kind: Kind) -> bool {
        match kind {
            Kind::Control => self.control.take(),
            Kind::Window => self.windows.take(),
            Kind::Reset => self.resets.take(),
        }
    }

    /// The client was sent a frame of data: it may answer with a ping and two windows.
    pub fn handle_data_sent(&mut self) {
        self.control.add(1.0);
        self.windows.add(2.0);
    }

    /// A request was answered to its end: the next one may be reset.
    pub fn handle_answered(&mut self) {
        self.resets.add(1.0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Frames of `kind` until the client is an abuser.
    fn frames_until_abuse(conduct: &mut Conduct, kind: Kind) -> u32 {
        let within = std::iter::repeat_with(|| conduct.handle_frame(kind)).take(1_000_000).take_while(|is_within| *is_within);
        u32::try_from(within.count()).unwrap()
    }

    #[test]
    fn a_client_that_only_opens_and_resets_streams_is_an_abuser() {
        let mut conduct = Conduct::new(Time::ZERO);
        assert_eq!(frames_until_abuse(&mut conduct, Kind::Reset), 500);
        conduct.handle_time(Time::ZERO + Duration::from_secs(1));
        assert_eq!(frames_until_abuse(&mut conduct, Kind::Reset), 50, "it may do so again as time passes");
        assert!(conduct.handle_frame(Kind::Control), "each kind has a budget of its own");
    }

    #[test]
    fn a_client_whose_requests_are_answered_may_reset_as_many_again() {
        let mut conduct = Conduct::new(Time::ZERO);
        for _ in 0..100_000 {
            conduct.handle_answered();
            assert!(conduct.handle_frame(Kind::Reset));
        }
    }

    #[test]
    fn a_receiver_may_open_its_windows_for_each_frame_of_data_for_ever() {
        let mut conduct = Conduct::new(Time::ZERO);
        for _ in 0..100_000 {
            conduct.handle_data_sent();
            assert!(
                conduct.handle_frame(Kind::Window) && conduct.handle_frame(Kind::Window) && conduct.handle_frame(Kind::Control)
            );
        }
        assert_eq!(frames_until_abuse(&mut conduct, Kind::Window), 10_000 - 2, "but the last two are spent");
    }
}
