//! Job logs in the Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line, `;` begins a comment.

/// One job of a log. Seconds are those of the log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwfJob {
    /// Field 1.
    pub number: u64,
    /// Field 2: seconds from the log's start.
    pub submit_s: f64,
    /// Field 4: seconds that it ran.
    pub run_s: f64,
    /// Field 5, or 8 (requested) where it is unknown: processors.
    pub processors: u32,
}

/// Why a log could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: field {field} is not a number; a job has 18 fields (swf 2.2)")]
pub struct SwfError {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1.
    pub field: usize,
}

/// Reads a log. Jobs without a known run time or size (-1 or 0: cancelled before they ran) are left out.
pub fn read_swf(text: &str) -> Result<Vec<SwfJob>, SwfError> {
    let mut jobs = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with(';') || line.trim().is_empty() {
            continue;
        }
        let fields: Vec<&str> = line.split_whitespace().collect();
        let number = |field: usize| -> Result<f64, SwfError> {
            let error = SwfError { line: index + 1, field };
            fields.get(field - 1).and_then(|text| text.parse().ok()).ok_or(error)
        };
        let (allocated, requested) = (number(5)?, number(8)?);
        let processors = if allocated > 0.0 { allocated } else { requested };
        let job =
            SwfJob { number: number(1)? as u64, submit_s: number(2)?, run_s: number(4)?, processors: processors.max(0.0) as u32 };
        if job.run_s > 0.0 && job.processors > 0 {
            jobs.push(job);
        }
    }
    jobs.sort_by(|a, b| a.submit_s.total_cmp(&b.submit_s).then(a.number.cmp(&b.number)));
    Ok(jobs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_and_jobs_that_never_ran_are_left_out() {
        let text = "; Version: 2.2\n\n 2 1460 -1 3726 128 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n \
                    1 0 -1 1451 -1 -1 -1 64 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n 3 5 -1 -1 4 -1 -1 4 -1 -1 5 1 1 -1 -1 -1 -1 -1\n";
        let jobs = read_swf(text).unwrap();
        assert_eq!(jobs.len(), 2);
        assert_eq!(jobs[0], SwfJob { number: 1, submit_s: 0.0, run_s: 1451.0, processors: 64 });
        assert_eq!(jobs[1].processors, 128);
        assert_eq!(read_swf("1 2 3 x 5 6 7 8\n"), Err(SwfError { line: 1, field: 4 }));
    }

    #[test]
    fn fuzz_job_logs() {
        weal_fuzz::target("swf", |bytes| {
            let _ = read_swf(&String::from_utf8_lossy(bytes)).map(|jobs| assert!(jobs.iter().all(|job| job.run_s > 0.0)));
        });
    }
}
