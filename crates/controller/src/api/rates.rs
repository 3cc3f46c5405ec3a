//! How fast the holder of a token may call.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use weal_control::clients::RequestUse;
use weal_model::Time;

/// Requests per second of one token, twice as many at once. A dashboard asks for a few, and a script that submits a job with each call does not get
/// faster than some hundred. More would let one holder keep the controller busy, and drive its own deeds out of the audit log.
pub(super) const TOKEN_RATE: u32 = 200;
/// Tokens that are remembered. Beyond it all are forgotten: who has made more can make others.
const REMEMBERED: usize = 10_000;

/// The requests of each token.
#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<BTreeMap<String, RequestUse>>);

impl Rates {
    /// A request comes with the token of this name.
    ///
    /// # Errors
    /// When it comes too early: the time until it may.
    pub fn handle_request(&self, now: Time, token: &str) -> Result<(), Duration> {
        let mut tokens = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(used) = tokens.get_mut(token) {
            return used.handle_request(now, TOKEN_RATE);
        }
        if tokens.len() >= REMEMBERED {
            tokens.clear();
        }
        tokens.entry(token.to_owned()).or_default().handle_request(now, TOKEN_RATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_calls_at_its_rate_and_takes_nothing_of_others() {
        let (rates, now) = (Rates::default(), Time::from_secs_f64(100.0));
        let passed = |token: &str, count: u32| (0..count).filter(|_| rates.handle_request(now, token).is_ok()).count();
        assert_eq!(passed("greedy", 2000), 2 * TOKEN_RATE as usize + 1);
        assert_eq!(passed("other", 10), 10);
        let early = rates.handle_request(now, "greedy").unwrap_err();
        assert_eq!(early, Duration::from_secs(1) / TOKEN_RATE);
        assert!(rates.handle_request(now + early, "greedy").is_ok(), "it may when it was said that it may");
    }
}
