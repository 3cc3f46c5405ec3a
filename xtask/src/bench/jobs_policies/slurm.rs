//! Slurm on this machine's loopback: a controller and a daemon for each slice, in the control group that a node of weal would have.
//!
//! Slurm divides whole CPUs, so each of a slice's two CPUs stands for half of its cores. It is given what it needs to do its best: it is told all goals
//! as priorities, plans ahead (backfill), and looks for work each second and whenever a job comes or ends.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weal_model::{Bytes, Cpu, NodeName, NodeSpec};
use weal_node::isolation::{GroupLimits, Isolation, Kind, Member, detect};
use weal_scenario::workload::JobArrival;

use super::mix::{GOAL_FACTORS, SLICE_CPU, SLICE_MEMORY, SLICES};
use super::play::{Queue, stand_in};
use crate::bench::real::pool::free_address;
use crate::programs::text_of;

/// Debian's packages.
pub(super) const PACKAGES: &str = "slurmctld slurmd slurm-client munge";
const PROGRAMS: [&str; 6] = ["munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel"];
pub(super) const NOTE: &str = "Slurm: jobs have priorities by their deadlines, with backfill. With preemption, each service class has a partition, and a job of a stricter one \
     suspends those of others, which keep their memory. `--deadline` is not used: it only ends jobs that will be late.";
/// CPUs of a slice.
const CPUS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(30);
/// For the daemon itself beside the jobs, which Slurm lets have the slice's memory.
const DAEMON: Bytes = Bytes::mib(600);
/// Above all deadlines in milliseconds.
const HIGHEST: f64 = 1e9;

/// How jobs are ordered.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Way {
    /// By their deadlines; nobody is interrupted.
    Deadlines,
    /// The same within a service class, and a stricter class suspends others.
    Preemption,
}

pub(super) const WAYS: [(&str, Way); 2] = [("Slurm", Way::Deadlines), ("Slurm, preemption", Way::Preemption)];

/// The program without which nothing of this can be.
pub(super) fn missing() -> Option<&'static str> {
    let is_here = |program: &str| {
        weal_emulated::in_path(program).is_some()
            || ["/usr/sbin", "/sbin"].iter().any(|folder| Path::new(folder).join(program).is_file())
    };
    PROGRAMS.into_iter().find(|program| !is_here(program))
}

/// A cluster, ended when it is dropped.
pub(super) struct Slurm {
    folder: PathBuf,
    weal: PathBuf,
    way: Way,
    /// Deadlines count from here.
    begun: Instant,
    isolation: Box<dyn Isolation>,
    /// In the order in which they are ended.
    daemons: Vec<Child>,
    /// Slurm's numbers of the jobs.
    ids: Vec<String>,
}

impl Slurm {
    pub fn start(folder: &Path, weal: &Path, way: Way) -> Result<Self> {
        let name = format!("weal-bench-{}", std::process::id());
        let isolation = detect::choose(folder, &name, None);
        ensure!(isolation.kind() != Kind::None, "slices need control groups: run this as root");
        let mut slurm = Self {
            folder: folder.to_owned(),
            weal: weal.to_owned(),
            way,
            begun: Instant::now(),
            isolation,
            daemons: Vec::new(),
            ids: Vec::new(),
        };
        slurm.write_files()?;
        let paths = ["munge.socket", "munge.key", "munge.pid", "munge.log", "munge.seed"]
            .map(|file| folder.join(file).display().to_string());
        let [socket, key, pid, log, seed] = paths.each_ref().map(String::as_str);
        slurm.run(
            "munged",
            &[
                "--foreground",
                "--force",
                "--socket",
                socket,
                "--key-file",
                key,
                "--pid-file",
                pid,
                "--log-file",
                log,
                "--seed-file",
                seed,
            ],
        )?;
        slurm.wait_for("munged", |slurm| Ok(slurm.folder.join("munge.socket").exists()))?;
        slurm.run("slurmctld", &["-D", "-c"])?;
        for slice in 1..=SLICES {
            slurm.start_slice(slice)?;
        }
        let idle = format!("{}", CPUS * SLICES);
        slurm.wait_for("the cluster", |slurm| {
            Ok(slurm.ask("sinfo", &["-h", "-t", "idle", "-o", "%C"]).is_ok_and(|seen| seen.trim().ends_with(&format!("/{idle}"))))
        })?;
        slurm.begun = Instant::now();
        Ok(slurm)
    }

    fn write_files(&self) -> Result<()> {
        let key = self.folder.join("munge.key");
        fs::write(
            &key,
            std::array::from_fn::<u8, 128, _>(|at| (at as u8).wrapping_mul(73).wrapping_add(std::process::id() as u8)),
        )?;
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400))?;
        ["state", "ends"].iter().try_for_each(|name| fs::create_dir(self.folder.join(name)))?;
        let mut ports = Vec::new();
        for _ in 0..=SLICES {
            ports.push(free_address()?);
        }
        let host = text_of(Command::new("uname").arg("-n"))?;
        fs::write(self.folder.join("slurm.conf"), config(&self.folder, self.way, host.trim(), &ports))?;
        Ok(())
    }

    /// The daemon of a slice, in its control group.
    fn start_slice(&mut self, slice: usize) -> Result<()> {
        let name = format!("n{slice}");
        let memory = Bytes(SLICE_MEMORY.0 + DAEMON.0);
        let spec = NodeSpec { name: NodeName::from(name.as_str()), cpu: Cpu(SLICE_CPU), memory, utilization_limit: 1.0 };
        self.isolation.set_node(&spec)?;
        let member = Member { node: &name, instance: "slurmd", dir: &self.folder };
        self.isolation.create(member, &GroupLimits { memory, cpu: None, share: None, processes: None })?;
        let entrances = self.isolation.entrances(member);
        // A shell joins the groups and becomes the daemon.
        let mut words = vec![
            "-c".to_owned(),
            "n=$1; shift; for file; do echo 0 >\"$file\" || exit 1; done; exec slurmd -D -N \"$n\"".to_owned(),
        ];
        words.extend(["sh".to_owned(), name.clone()]);
        words.extend(entrances.iter().map(|file| file.display().to_string()));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.run("sh", &words)
    }

    fn run(&mut self, program: &str, words: &[&str]) -> Result<()> {
        let log = File::options().append(true).create(true).open(self.folder.join("output.log"))?;
        let mut command = self.command(program);
        command.args(words).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.daemons.push(command.spawn().with_context(|| format!("cannot run {program}"))?);
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("SLURM_CONF", self.folder.join("slurm.conf"));
        command
    }

    fn ask(&self, program: &str, words: &[&str]) -> Result<String> {
        text_of(self.command(program).args(words))
    }

    fn wait_for(&mut self, what: &str, mut is_there: impl FnMut(&Self) -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !is_there(self)? {
            let said = || fs::read_to_string(self.folder.join("output.log")).unwrap_or_default();
            ensure!(begun.elapsed() < PATIENCE, "{what} does not come up: {}", said());
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn end_file(&self, number: usize) -> PathBuf {
        self.folder.join("ends").join(number.to_string())
    }
}

impl Queue for Slurm {
    fn submit(&mut self, number: usize, job: &JobArrival) -> Result<()> {
        let words: Vec<String> = stand_in(&self.weal, job).iter().map(|word| format!("'{word}'")).collect();
        let command = format!("{} && date +%s.%N >'{}'", words.join(" "), self.end_file(number).display());
        let cpus = (job.kind.max_speed.0 / SLICE_CPU * CPUS as f64).ceil();
        let deadline_ms = 1e3 * (self.begun.elapsed().as_secs_f64() + job.relative_goal_s);
        let mut words = vec![
            format!("--cpus-per-task={cpus}"),
            format!("--mem={}", job.kind.memory.0 >> 20),
            format!("--priority={:.0}", HIGHEST - deadline_ms),
            format!("--wrap={command}"),
        ];
        words.extend(["--parsable", "--ntasks=1", "--time=1", "--output=/dev/null"].map(str::to_owned));
        if self.way == Way::Preemption {
            words.push(format!("--partition=class{}", class_of(job)));
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.ids.push(self.ask("sbatch", &words)?.trim().to_owned());
        Ok(())
    }

    fn look(&mut self) -> Result<(usize, BTreeSet<usize>)> {
        let seen = self.ask("squeue", &["-h", "-o", "%i %t"])?;
        let lines: Vec<(&str, &str)> = seen.lines().filter_map(|line| line.trim().split_once(' ')).collect();
        let number = |id: &str| self.ids.iter().position(|known| known == id);
        let still = lines.iter().filter(|(_, state)| *state == "S").filter_map(|(id, _)| number(id)).collect();
        Ok((lines.len(), still))
    }

    fn end_s(&self, number: usize) -> Result<f64> {
        let text = fs::read_to_string(self.end_file(number)).with_context(|| format!("job {number} did not end well"))?;
        text.trim().parse().with_context(|| format!("job {number} ended at {text:?}"))
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if let Err(error) = self.ask("scancel", &["--full", "--signal=KILL", "--state=RUNNING"]) {
            eprintln!("error: {error:#}");
        }
        for slice in 1..=SLICES {
            let name = format!("n{slice}");
            let member = Member { node: &name, instance: "slurmd", dir: &self.folder };
            if let Err(error) = self.isolation.kill(member) {
                eprintln!("error: the slice {name} is not ended: {error}");
            }
        }
        for mut daemon in std::mem::take(&mut self.daemons) {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for slice in 1..=SLICES {
            let name = format!("n{slice}");
            let _ = self.isolation.remove(Member { node: &name, instance: "slurmd", dir: &self.folder });
            self.isolation.remove_node(&name);
        }
        self.isolation.clear();
    }
}

/// The service class of a job, from 1 for the strictest.
fn class_of(job: &JobArrival) -> usize {
    let factor = job.relative_goal_s / job.kind.best_s();
    let apart = |at: &usize| (GOAL_FACTORS[*at].1 - factor).abs();
    1 + (0..GOAL_FACTORS.len()).min_by(|a, b| apart(a).total_cmp(&apart(b))).unwrap_or_default()
}

/// `slurm.conf` for the controller and the slices at these addresses.
fn config(folder: &Path, way: Way, host: &str, addresses: &[SocketAddr]) -> String {
    let folder = folder.display();
    let mut lines = vec![
        "ClusterName=weal".to_owned(),
        format!("SlurmctldHost={host}(127.0.0.1)"),
        format!("SlurmctldPort={}", addresses[0].port()),
        "SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nCredType=cred/munge".to_owned(),
        format!("AuthInfo=socket={folder}/munge.socket"),
        format!("StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool-%n"),
        format!("SlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd-%n.pid"),
        format!("SlurmctldLogFile={folder}/slurmctld.log\nSlurmdLogFile={folder}/slurmd-%n.log"),
        "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none".to_owned(),
        "SlurmdParameters=config_overrides\nReturnToService=2\nMinJobAge=2".to_owned(),
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\nPriorityType=priority/basic".to_owned(),
        "SchedulerType=sched/backfill".to_owned(),
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1,default_queue_depth=1000,bf_interval=1,bf_max_job_test=1000"
            .to_owned(),
    ];
    for (slice, address) in (1..).zip(&addresses[1..]) {
        lines.push(format!(
            "NodeName=n{slice} NodeHostname={host} NodeAddr=127.0.0.1 Port={} CPUs={CPUS} RealMemory={} State=UNKNOWN",
            address.port(),
            SLICE_MEMORY.0 >> 20
        ));
    }
    let nodes = format!("Nodes=n[1-{}] MaxTime=INFINITE State=UP", addresses.len() - 1);
    match way {
        Way::Deadlines => lines.push(format!("PartitionName=all {nodes} Default=YES OverSubscribe=NO")),
        Way::Preemption => {
            lines.push("PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG".to_owned());
            let classes = GOAL_FACTORS.len();
            let partition = |class: usize| {
                let (tier, mode) = (classes - class + 1, if class == 1 { "OFF" } else { "SUSPEND" });
                format!("PartitionName=class{class} {nodes} OverSubscribe=FORCE:1 PriorityTier={tier} PreemptMode={mode}")
            };
            lines.extend((1..=classes).map(partition));
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::jobs_policies::mix::mix;

    #[test]
    fn a_stricter_class_has_a_partition_that_goes_before() {
        let addresses = [1, 2, 3].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let written = config(Path::new("/srv/slurm"), Way::Preemption, "here", &addresses);
        for line in [
            "PartitionName=class1 Nodes=n[1-2] MaxTime=INFINITE State=UP OverSubscribe=FORCE:1 PriorityTier=3 PreemptMode=OFF",
            "PartitionName=class3 Nodes=n[1-2] MaxTime=INFINITE State=UP OverSubscribe=FORCE:1 PriorityTier=1 PreemptMode=SUSPEND",
            "NodeName=n2 NodeHostname=here NodeAddr=127.0.0.1 Port=3 CPUs=2 RealMemory=400 State=UNKNOWN",
        ] {
            assert!(written.lines().any(|written| written == line), "{line} is not in\n{written}");
        }
        assert!(!config(Path::new("/srv/slurm"), Way::Deadlines, "here", &addresses).contains("Preempt"));
    }

    #[test]
    fn jobs_belong_to_the_classes_whose_goals_they_have() {
        let mut counts = [0; GOAL_FACTORS.len()];
        mix(0.9).stream(1, "jobs").take(1000).for_each(|job| counts[class_of(&job) - 1] += 1);
        let expected = GOAL_FACTORS.map(|(share, _)| (1000.0 * share) as i32);
        assert!(counts.iter().zip(expected).all(|(count, expected)| (count - expected).abs() < 60), "{counts:?}");
    }
}
