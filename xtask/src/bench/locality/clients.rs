//! Clients that ask for one file after the other, the popular ones more often.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;

use super::setting::FILES;
use crate::bench::real::load::uniform;
use crate::bench::real::quantile;

/// Exponent of Zipf's law: that of requests to web servers in many traces.
const ZIPF: f64 = 0.8;

/// All of them, until they are stopped.
pub struct Clients {
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
}

struct Shared {
    address: SocketAddr,
    stop: AtomicBool,
    /// Milliseconds of each file since the last look.
    times_ms: Mutex<Vec<f64>>,
    lost: AtomicU64,
    /// Cumulative shares of the files, the most popular first.
    popularity: Vec<f64>,
}

/// What they saw for a while.
pub struct Seen {
    pub span_s: f64,
    pub files: usize,
    pub mean_ms: f64,
    pub p95_ms: f64,
}

impl Clients {
    pub fn start(address: SocketAddr, count: usize) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shared = Arc::new(Shared {
            address,
            stop: AtomicBool::new(false),
            times_ms: Mutex::default(),
            lost: AtomicU64::new(0),
            popularity: popularity(),
        });
        for client in 0..count {
            runtime.spawn(Arc::clone(&shared).ask_on(client as u64));
        }
        Ok(Self { runtime: Some(runtime), shared })
    }

    /// Waits, and says what they saw meanwhile.
    pub fn watch(&self, span: Duration) -> Seen {
        self.shared.take_times();
        let begun = Instant::now();
        std::thread::sleep(span);
        let times_ms = self.shared.take_times();
        let mean_ms = if times_ms.is_empty() { 0.0 } else { times_ms.iter().sum::<f64>() / times_ms.len() as f64 };
        let p95_ms = if times_ms.is_empty() { 0.0 } else { quantile(&times_ms, 0.95) };
        Seen { span_s: begun.elapsed().as_secs_f64(), files: times_ms.len(), mean_ms, p95_ms }
    }

    /// Requests that had no answer, or another than 200.
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    pub fn stop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
    }
}

impl Shared {
    fn take_times(&self) -> Vec<f64> {
        std::mem::take(&mut self.times_ms.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn ask_on(self: Arc<Self>, seed: u64) {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        while !self.stop.load(Ordering::Relaxed) {
            if self.ask_over_one(&mut random).await.is_err() && !self.stop.load(Ordering::Relaxed) {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Asks over one connection until that ends.
    async fn ask_over_one(&self, random: &mut u64) -> Result<()> {
        let mut stream = BufReader::new(TcpStream::connect(self.address).await?);
        while !self.stop.load(Ordering::Relaxed) {
            let file = self.draw(random);
            let begun = Instant::now();
            stream.get_mut().write_all(format!("GET /f{file} HTTP/1.1\r\nHost: bench\r\n\r\n").as_bytes()).await?;
            let (mut head, mut length) = (String::new(), 0);
            stream.read_line(&mut head).await?;
            loop {
                let mut line = String::new();
                stream.read_line(&mut line).await?;
                match line.trim_end().split_once(": ") {
                    Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse()?,
                    Some(_) => {}
                    None => break,
                }
            }
            stream.read_exact(&mut vec![0; length]).await?;
            head.starts_with("HTTP/1.1 200").then_some(()).context("another answer than 200")?;
            self.times_ms.lock().unwrap_or_else(PoisonError::into_inner).push(begun.elapsed().as_secs_f64() * 1e3);
        }
        Ok(())
    }

    /// A file by its popularity. Popular ones are spread over the names.
    fn draw(&self, random: &mut u64) -> usize {
        let share = uniform(random);
        let rank = self.popularity.partition_point(|&sum| sum < share).min(FILES - 1);
        (rank * 7919) % FILES
    }
}

fn popularity() -> Vec<f64> {
    let weights = (1..=FILES).map(|rank| (rank as f64).powf(-ZIPF));
    let total: f64 = weights.clone().sum();
    weights
        .scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        })
        .collect()
}
