//! Recordings: what a simulation or a replay needs of a running pool, as JSON Lines (docs/recordings.md).
//!
//! The first line says what the file is; each further line is one moment. Fields that did not change since the line
//! before are left out, so that an hour of a quiet pool is some kilobytes.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use weal_model::{Event, EventKind, InstanceState, Status, Time};
use weal_scenario::workload::Workload;

/// The version that this code writes, and the only one that it reads.
const VERSION: u32 = 1;
/// Longer lines are refused: they are not a recording's.
const LONGEST_LINE: usize = 4 << 20;
/// Counts of all flows together: a hundred flows for a day, or one for some months.
const MOST_PERIODS: usize = 10_000_000;

/// The first line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Header {
    /// Always `weal`.
    recording: String,
    version: u32,
    pool: String,
    started: Time,
    /// Gateway's address for clients.
    listen: String,
}

/// One moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Moment {
    /// Seconds since the start.
    t_s: f64,
    /// Requests that came in since the moment before, per `app/class`; zeros are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    arrivals: BTreeMap<String, f64>,
    /// CPU-seconds per request, per `app/class` and cluster, when changed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    work: BTreeMap<String, BTreeMap<String, f64>>,
    /// The least mean time in a seat so far in seconds, per `app/class`, when it fell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    service: BTreeMap<String, f64>,
    /// Instances by state per `app@node`, when changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    placement: Option<BTreeMap<String, Vec<InstanceState>>>,
    /// What was done and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    actions: Vec<String>,
}

/// Writes a recording.
#[derive(Debug)]
pub struct Recorder<W> {
    sink: W,
    started: Option<Time>,
    before_s: f64,
    work: BTreeMap<String, BTreeMap<String, f64>>,
    service: BTreeMap<String, f64>,
    placement: BTreeMap<String, Vec<InstanceState>>,
    actions: Vec<String>,
}

impl<W: Write> Recorder<W> {
    /// Records into `sink`.
    pub fn new(sink: W) -> Self {
        Self {
            sink,
            started: None,
            before_s: 0.0,
            work: BTreeMap::new(),
            service: BTreeMap::new(),
            placement: BTreeMap::new(),
            actions: vec![],
        }
    }

    /// Takes something that happened; it is written with the next moment.
    pub fn handle_event(&mut self, event: &Event) {
        if event.kind == EventKind::Plan && self.started.is_some_and(|started| event.time >= started) {
            self.actions.push(event.text.clone());
        }
    }

    /// Takes the pool's status and writes one moment.
    pub fn handle_status(&mut self, status: &Status) -> io::Result<()> {
        let Some(started) = self.started else {
            self.started = Some(status.time);
            let header = Header {
                recording: "weal".into(),
                version: VERSION,
                pool: status.pool.clone(),
                started: status.time,
                listen: status.listen.clone(),
            };
            return self.write_line(&header);
        };
        let t_s = (status.time.since(started).as_secs_f64() * 1e3).round() / 1e3;
        let span_s = t_s - self.before_s;
        if span_s <= 0.0 {
            return Ok(());
        }
        let moment = Moment {
            t_s,
            arrivals: arrivals(status, span_s),
            work: changed(&mut self.work, work(status)),
            service: fallen(&mut self.service, status),
            placement: self.changed_placement(placement(status)),
            actions: std::mem::take(&mut self.actions),
        };
        self.before_s = t_s;
        self.write_line(&moment)
    }

    /// Writes what is buffered.
    pub fn finish(mut self) -> io::Result<W> {
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn changed_placement(&mut self, now: BTreeMap<String, Vec<InstanceState>>) -> Option<BTreeMap<String, Vec<InstanceState>>> {
        (now != self.placement).then(|| {
            self.placement.clone_from(&now);
            now
        })
    }

    fn write_line(&mut self, line: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.sink, line)?;
        self.sink.write_all(b"\n")
    }
}

fn arrivals(status: &Status, span_s: f64) -> BTreeMap<String, f64> {
    let count = |per_s: f64| (per_s * span_s * 1e3).round() / 1e3;
    let flows = status.flows.iter().map(|flow| (format!("{}/{}", flow.app, flow.class), count(flow.arrival_per_s)));
    flows.filter(|(_, count)| *count > 0.0).collect()
}

fn work(status: &Status) -> BTreeMap<String, BTreeMap<String, f64>> {
    // Three digits: more is noise, and would make every line different.
    let digits = |seconds: f64| format!("{seconds:.2e}").parse().unwrap_or(seconds);
    let factors = |flow: &weal_model::FlowStatus| {
        let known = flow.work_factors.iter().filter(|factor| factor.work.0.is_finite());
        known.map(|factor| (factor.app.to_string(), digits(factor.work.0))).collect::<BTreeMap<_, _>>()
    };
    status.flows.iter().map(|flow| (format!("{}/{}", flow.app, flow.class), factors(flow))).collect()
}

/// Of flows with enough answers to tell.
fn fallen(least: &mut BTreeMap<String, f64>, status: &Status) -> BTreeMap<String, f64> {
    let told = status.flows.iter().filter(|flow| flow.service.count >= 5);
    let means = told.map(|flow| (format!("{}/{}", flow.app, flow.class), (flow.service.mean_ms * 10.0).round() / 1e4));
    let fallen: BTreeMap<String, f64> =
        means.filter(|(flow, mean_s)| least.get(flow).is_none_or(|least| mean_s < least)).collect();
    least.extend(fallen.clone());
    fallen
}

fn placement(status: &Status) -> BTreeMap<String, Vec<InstanceState>> {
    let mut placement: BTreeMap<String, Vec<InstanceState>> = BTreeMap::new();
    for (app, instance) in status.apps.iter().flat_map(|app| app.instances.iter().map(move |instance| (app, instance))) {
        placement.entry(format!("{}@{}", app.name, instance.node)).or_default().push(instance.state);
    }
    placement
}

fn changed<V: PartialEq + Clone>(before: &mut BTreeMap<String, V>, now: BTreeMap<String, V>) -> BTreeMap<String, V> {
    let changed = now.into_iter().filter(|(key, value)| before.get(key) != Some(value)).collect::<BTreeMap<_, _>>();
    before.extend(changed.iter().map(|(key, value)| (key.clone(), value.clone())));
    changed
}

/// A recording, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Recording {
    /// The pool's name.
    pub pool: String,
    /// Seconds that it covers.
    pub duration_s: f64,
    /// What came in, per `app/class`.
    pub workloads: BTreeMap<String, Workload>,
    /// The last known CPU-seconds per request, per `app/class` and cluster.
    pub work: BTreeMap<String, BTreeMap<String, f64>>,
    /// The least mean time in a seat, in seconds, per `app/class`: what a request takes when it waits for no other.
    pub service_s: BTreeMap<String, f64>,
    /// Where instances ran at the beginning, by state per `app@node`.
    pub placement: BTreeMap<String, Vec<InstanceState>>,
    /// What was done and why, with seconds since the start.
    pub actions: Vec<(f64, String)>,
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("failed to read the recording: {0}")]
    Io(#[from] io::Error),
    /// There is nothing in it.
    #[error("line 1: the file is empty")]
    Empty,
    /// Its first line is not that of a recording.
    #[error("line 1: this is not a recording of weal: {source}")]
    NoRecording {
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// Another version of weal wrote it.
    #[error("line 1: this is version {version} of a recording; only version {VERSION} can be read")]
    Version {
        /// Which it is.
        version: u32,
    },
    /// A line takes more memory than it should.
    #[error("line {line}: longer than {LONGEST_LINE} bytes")]
    LongLine {
        /// Its number, from 1.
        line: usize,
    },
    /// A line is no moment of a recording.
    #[error("line {line}: {source}")]
    Moment {
        /// Its number, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// It is longer than memory should hold.
    #[error("line {line}: {flows} flows for {t_s:.0} s are more than {MOST_PERIODS} counts")]
    TooLong {
        /// The line's number, from 1.
        line: usize,
        /// How many flows there are by then.
        flows: usize,
        /// When it was, in seconds since the start.
        t_s: f64,
    },
    /// A moment does not come after the one before.
    #[error("line {line}: {t_s} s does not come after {after_s} s")]
    Order {
        /// Its number, from 1.
        line: usize,
        /// When it was, in seconds since the start.
        t_s: f64,
        /// When the one before was.
        after_s: f64,
    },
}

impl Recording {
    /// Seconds per period of the workloads that a recording is turned into.
    const PERIOD_S: f64 = 1.0;

    /// Reads a recording.
    pub fn read(source: impl BufRead) -> Result<Self, RecordingError> {
        let mut lines = source.lines().zip(1..);
        let (first, _) = lines.next().ok_or(RecordingError::Empty)?;
        let header: Header = serde_json::from_str(&first?).map_err(|source| RecordingError::NoRecording { source })?;
        if header.recording != "weal" || header.version != VERSION {
            return Err(RecordingError::Version { version: header.version });
        }
        let mut recording = Self {
            pool: header.pool,
            duration_s: 0.0,
            workloads: BTreeMap::new(),
            work: BTreeMap::new(),
            service_s: BTreeMap::new(),
            placement: BTreeMap::new(),
            actions: vec![],
        };
        let mut counts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for (text, line) in lines {
            let text = text?;
            if text.len() > LONGEST_LINE {
                return Err(RecordingError::LongLine { line });
            }
            let moment: Moment = serde_json::from_str(&text).map_err(|source| RecordingError::Moment { line, source })?;
            if moment.t_s <= recording.duration_s || !moment.t_s.is_finite() || moment.t_s > 1e7 {
                return Err(RecordingError::Order { line, t_s: moment.t_s, after_s: recording.duration_s });
            }
            let flows = counts.len() + moment.arrivals.keys().filter(|flow| !counts.contains_key(*flow)).count();
            if flows as f64 * moment.t_s > MOST_PERIODS as f64 {
                return Err(RecordingError::TooLong { line, flows, t_s: moment.t_s });
            }
            for (flow, count) in moment.arrivals {
                spread(counts.entry(flow).or_default(), recording.duration_s, moment.t_s, count);
            }
            for (flow, work) in moment.work {
                recording.work.insert(flow, work);
            }
            recording.service_s.extend(moment.service);
            if let Some(placement) = moment.placement.filter(|_| recording.placement.is_empty()) {
                recording.placement = placement;
            }
            recording.actions.extend(moment.actions.into_iter().map(|action| (moment.t_s, action)));
            recording.duration_s = moment.t_s;
        }
        let workload = |counts| Workload::Counts { counts, period_s: Self::PERIOD_S };
        recording.workloads = counts.into_iter().map(|(flow, counts)| (flow, workload(counts))).collect();
        Ok(recording)
    }
}

/// Spreads `count` requests evenly over `from_s..to_s`, into periods of [`Recording::PERIOD_S`].
fn spread(counts: &mut Vec<f64>, from_s: f64, to_s: f64, count: f64) {
    let last = (to_s / Recording::PERIOD_S).ceil() as usize;
    if counts.len() < last {
        counts.resize(last, 0.0);
    }
    for (period, total) in counts.iter_mut().enumerate().skip((from_s / Recording::PERIOD_S) as usize) {
        let start = period as f64 * Recording::PERIOD_S;
        let overlap = (start + Recording::PERIOD_S).min(to_s) - start.max(from_s);
        *total += count.max(0.0) * overlap.max(0.0) / (to_s - from_s);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_status::status;

    #[test]
    fn a_recording_is_read_back_as_the_load_that_it_was() {
        let mut recorder = Recorder::new(Vec::new());
        for second in 0..=10 {
            recorder.handle_status(&status(100.0 + f64::from(second), if second < 6 { 20.0 } else { 40.0 })).unwrap();
        }
        let bytes = recorder.finish().unwrap();
        let recording = Recording::read(&bytes[..]).unwrap();
        assert_eq!(recording.duration_s, 10.0);
        let Workload::Counts { counts, period_s } = &recording.workloads["shop/gold"] else { panic!("recorded counts") };
        assert_eq!(*period_s, 1.0);
        assert_eq!(counts.iter().map(|count| count.round()).collect::<Vec<_>>(), [[20.0; 5], [40.0; 5]].concat());
        assert_eq!(recording.work["shop/gold"]["shop"], 0.008);
        assert_eq!(recording.service_s["shop/gold"], 0.1);
        assert_eq!(recording.placement["shop@n1"], [InstanceState::Ready]);
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches("placement").count(), 1, "only what changed is written: {text}");
    }

    #[test]
    fn fuzz_recordings() {
        weal_fuzz::target("recording", |bytes| {
            let Ok(recording) = Recording::read(bytes) else { return };
            assert!(recording.duration_s.is_finite() && recording.actions.iter().all(|(at_s, _)| *at_s <= recording.duration_s));
            for workload in recording.workloads.values() {
                let Workload::Counts { counts, .. } = workload else { panic!("a recording has counts") };
                assert!(counts.len() as f64 <= recording.duration_s.ceil() && counts.iter().all(|count| *count >= 0.0));
            }
        });
    }

    #[test]
    fn a_broken_recording_says_where() {
        let header = r#"{"recording":"weal","version":1,"pool":"demo","started":0,"listen":"x"}"#;
        for (text, part) in [
            (String::new(), "line 1: the file is empty"),
            ("garbage\n".into(), "line 1: this is not a recording"),
            (header.replace(":1,", ":9,"), "version 9"),
            (format!("{header}\n{{\"t_s\":1}}\nnoise\n"), "line 3"),
            (format!("{header}\n{{\"t_s\":2}}\n{{\"t_s\":1}}\n"), "line 3: 1 s does not come after 2 s"),
        ] {
            let error = Recording::read(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
