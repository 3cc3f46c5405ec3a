//! What a purge does to others: an instance answers at a steady rate while a large one beside it is paged out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use weal_model::Rung;

use crate::bench::real::agent::{Agent, first_byte_s};

/// Between two requests.
const PAUSE: Duration = Duration::from_millis(1);

/// What was read in settles for so long before a purge; an instance that was asked for is not put to sleep at once anyway.
const SETTLE: Duration = Duration::from_millis(2300);

/// One purge: response times in milliseconds.
pub struct Round {
    /// Right before it, while nothing else happens.
    pub before_ms: Vec<f64>,
    /// While the other is paged out.
    pub purge_ms: Vec<f64>,
    /// Right after it, for as long again.
    pub after_ms: Vec<f64>,
    /// How long it took.
    pub lasted_ms: f64,
}

/// Pages `large` out `rounds` times, with everything in it touched before, and asks `neighbour` all the time.
pub fn purges(agent: &Agent, neighbour: SocketAddr, large: (&str, &str, SocketAddr), rounds: usize) -> Result<Vec<Round>> {
    let (id, app, address) = large;
    let quiet = |span: Duration| {
        while_it_lasts(neighbour, || {
            std::thread::sleep(span);
            Ok(())
        })
    };
    let round = |_| {
        agent.wake(app)?;
        first_byte_s(address, "/dirty")?;
        let before_ms = quiet(SETTLE)?;
        let began = Instant::now();
        let purge_ms = while_it_lasts(neighbour, || agent.sleep(id, Rung::Parked).map(drop))?;
        let lasted = began.elapsed();
        Ok(Round { before_ms, purge_ms, after_ms: quiet(lasted)?, lasted_ms: lasted.as_secs_f64() * 1e3 })
    };
    (0..rounds).map(round).collect()
}

/// Asks `address` at a steady pace for as long as `act` takes: milliseconds of each answer.
fn while_it_lasts(address: SocketAddr, act: impl FnOnce() -> Result<()>) -> Result<Vec<f64>> {
    let done = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&done);
    let asking = std::thread::spawn(move || -> Result<Vec<f64>> {
        let (mut times, mut next) = (Vec::new(), Instant::now());
        while !seen.load(Ordering::Relaxed) {
            next += PAUSE;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            // From when it was due: a late answer delays the next question, and that must show.
            let due = next;
            first_byte_s(address, "/spin/0")?;
            times.push(due.elapsed().as_secs_f64() * 1e3);
        }
        Ok(times)
    });
    let result = act();
    done.store(true, Ordering::Relaxed);
    let times = asking.join().expect("it does not panic")?;
    result.map(|()| times)
}
