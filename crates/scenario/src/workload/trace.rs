//! Recorded requests per minute (`period,count` lines), scaled in time and volume.

use serde::{Deserialize, Serialize};

use super::Workload;

/// Which part of a recording is played, and how fast and how loud.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceWindow {
    /// The first period, as it stands in the file (`1998-06-10 15:00:00`); `None` begins with the first line.
    pub from: Option<String>,
    /// How many minutes of the recording; `None` plays all.
    pub minutes: Option<usize>,
    /// Recorded seconds per second of the run: 60 plays an hour in a minute.
    pub time_scale: f64,
    /// Share of the recorded requests that are played *per recorded second*: with a time scale of 60 and a volume of 1, the
    /// run's rate is the recorded rate.
    pub volume_scale: f64,
}

/// Why a recording could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A line is not `period,count`.
    #[error("line {line} is not `period,count`: `{text}`")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What stands there.
        text: String,
    },
    /// The window begins nowhere in the file.
    #[error("no line begins with `{0}`: give the time as it stands in the file")]
    NoSuchStart(String),
    /// A scale that is not positive.
    #[error("time and volume scale must be positive numbers")]
    Scale,
}

/// Reads `period,count` lines (one per minute, a header allowed) and cuts and scales `window` out of them.
pub fn read_requests_per_minute(text: &str, window: &TraceWindow) -> Result<Workload, TraceError> {
    let positive = |scale: f64| scale.is_finite() && scale > 0.0;
    if !positive(window.time_scale) || !positive(window.volume_scale) {
        return Err(TraceError::Scale);
    }
    let mut started = window.from.is_none();
    let mut counts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || (index == 0 && line.starts_with(|c: char| c.is_ascii_alphabetic())) {
            continue;
        }
        let bad = || TraceError::Line { line: index + 1, text: line.to_owned() };
        let (period, count) = line.split_once(',').ok_or_else(bad)?;
        let count: u32 = count.trim().parse().map_err(|_| bad())?;
        started = started || window.from.as_deref() == Some(period);
        if started && window.minutes.is_none_or(|minutes| counts.len() < minutes) {
            counts.push(f64::from(count) * window.volume_scale / window.time_scale);
        }
    }
    match &window.from {
        Some(from) if !started => Err(TraceError::NoSuchStart(from.clone())),
        _ => Ok(Workload::Counts { counts, period_s: 60.0 / window.time_scale }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "period,count\n1998-06-10 15:00:00,600\n1998-06-10 15:01:00,1200\n1998-06-10 15:02:00,0\n";

    fn window(from: Option<&str>) -> TraceWindow {
        TraceWindow { from: from.map(str::to_owned), minutes: Some(2), time_scale: 60.0, volume_scale: 1.0 }
    }

    #[test]
    fn a_faster_replay_keeps_the_rate() {
        let workload = read_requests_per_minute(TEXT, &window(None)).unwrap();
        assert_eq!(workload, Workload::Counts { counts: vec![10.0, 20.0], period_s: 1.0 });
        assert_eq!(workload.rate_at(0.5), Some(10.0));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(read_requests_per_minute(TEXT, &window(Some("1999"))), Err(TraceError::NoSuchStart("1999".to_owned())));
        let wrong = read_requests_per_minute("a,b\n1,x\n", &window(None)).unwrap_err();
        assert_eq!(wrong.to_string(), "line 2 is not `period,count`: `1,x`");
        assert_eq!(read_requests_per_minute(TEXT, &TraceWindow { time_scale: f64::NAN, ..window(None) }), Err(TraceError::Scale));
    }

    #[test]
    fn fuzz_traces() {
        let window = TraceWindow { from: None, minutes: Some(100), time_scale: 1.0, volume_scale: 1.0 };
        weal_fuzz::target("trace-file", |bytes| {
            let _ = read_requests_per_minute(&String::from_utf8_lossy(bytes), &window);
        });
    }
}
