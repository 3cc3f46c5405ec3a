//! Requests that come at random at a given rate, whatever becomes of those before: when each was due and what it took.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// The longest that an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(120);

/// What is asked, and whom.
#[derive(Debug, Clone)]
pub struct Question {
    /// Where to connect.
    pub address: SocketAddr,
    /// The path.
    pub path: String,
}

/// So many requests a second, for so long.
#[derive(Debug, Clone, Copy)]
pub struct Phase {
    /// Requests a second.
    pub rate: f64,
    /// Seconds.
    pub lasts_s: f64,
}

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// Seconds from the beginning to when it was due.
    pub due_s: f64,
    /// Seconds from then to the end of the answer; infinite when there was none, or not 200.
    pub took_s: f64,
}

/// Sends what is due in each phase, one phase after the other, and waits for the answers; in the order in which they were due.
pub fn drive(question: &Question, phases: &[Phase]) -> Result<Vec<Answer>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answers: Arc<Mutex<Vec<Answer>>> = Arc::default();
    runtime.block_on(async {
        let (began, mut tasks) = (Instant::now(), JoinSet::new());
        for due_s in due(phases) {
            let at = began + Duration::from_secs_f64(due_s);
            sleep_until(at).await;
            let (question, answers) = (question.clone(), Arc::clone(&answers));
            tasks.spawn(async move {
                let is_good = timeout(PATIENCE, ask(&question)).await.is_ok_and(|answer| answer.unwrap_or(false));
                let took_s = if is_good { at.elapsed().as_secs_f64() } else { f64::INFINITY };
                answers.lock().expect("nothing panics while it is held").push(Answer { due_s, took_s });
            });
        }
        while tasks.join_next().await.is_some() {}
    });
    let mut answers = std::mem::take(&mut *answers.lock().expect("nothing panics while it is held"));
    answers.sort_by(|a, b| a.due_s.total_cmp(&b.due_s));
    Ok(answers)
}

/// When each request is due: a Poisson process in each phase, the same in every run.
fn due(phases: &[Phase]) -> Vec<f64> {
    let (mut all, mut begin_s, mut state) = (Vec::new(), 0.0, SEED);
    for phase in phases {
        let mut at_s = begin_s;
        begin_s += phase.lasts_s;
        loop {
            at_s -= (1.0 - uniform(&mut state)).ln() / phase.rate;
            if at_s >= begin_s {
                break;
            }
            all.push(at_s);
        }
    }
    all
}

const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// In 0..1 (xorshift64*).
pub fn uniform(state: &mut u64) -> f64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
}

/// True when the answer is 200 and complete.
async fn ask(question: &Question) -> std::io::Result<bool> {
    let mut stream = TcpStream::connect(question.address).await?;
    let request = format!("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", question.path, question.address);
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_has_its_rate_and_goes_on_where_the_last_one_ended() {
        let phases = [Phase { rate: 100.0, lasts_s: 100.0 }, Phase { rate: 10.0, lasts_s: 100.0 }];
        let all = due(&phases);
        assert!(all.windows(2).all(|pair| pair[0] <= pair[1]));
        let first = all.iter().filter(|at_s| **at_s < 100.0).count() as f64;
        let second = all.len() as f64 - first;
        assert!((first - 10_000.0).abs() < 400.0 && (second - 1000.0).abs() < 120.0, "{first} and {second}");
        assert_eq!(all, due(&phases));
    }
}
