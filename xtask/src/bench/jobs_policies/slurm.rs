//! Slurm as Debian has it: its daemons and munge's in a folder of their own, ended by their numbers.
//!
//! Slurm runs all jobs on one node with as many CPUs as the slices have halves. It hands out memory and CPUs, and each job holds itself to its
//! CPU. Slurm knows no goal of seconds: `--deadline` removes a job that its time limit, in whole minutes, would carry beyond. So the goals
//! are said in the ways that are left, see [`Order`].

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use weal_scenario::workload::JobArrival;

use super::real::{Ends, Runner, StandIn};
use super::{GOAL_FACTORS, HALF_CPU, JOB_MEMORY, SLICE_MEMORY, SLICES};
use crate::bench::real::pool::free_address;
use crate::programs::root;

const PATIENCE: Duration = Duration::from_secs(30);
/// Above the priority of any job that is due later.
const HIGHEST: u64 = 1_000_000_000;

/// How Slurm is told of goals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Not at all: jobs go in order of arrival, and others fill gaps (`sched/backfill`).
    Arrival,
    /// Each class has a partition, of which the stricter takes what it needs from the laxer by suspending jobs. Within a class, the earlier goal
    /// has the higher priority.
    Deadline,
}

/// Slurm, running.
pub struct Slurm {
    folder: PathBuf,
    order: Order,
    job: StandIn,
    begun: Instant,
    /// munged, slurmctld, slurmd.
    daemons: Vec<Child>,
}

/// Installs what is missing, as `make test` does.
pub fn install() -> Result<()> {
    let installed = Command::new(root().join("scripts/bootstrap")).arg("slurm").stdout(Stdio::null()).status();
    ensure!(installed.context("cannot run scripts/bootstrap")?.success(), "Slurm is not there: run `scripts/bootstrap slurm`");
    Ok(())
}

impl Slurm {
    /// Starts it in `folder`, which may hold nothing yet, for jobs that run `job`.
    pub fn start(folder: &Path, order: Order, job: StandIn) -> Result<Self> {
        for name in ["", "state", "spool", "ends"] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
        let mut key = [0; 1024];
        fs::File::open("/dev/urandom")?.read_exact(&mut key)?;
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join("munge.key"))?;
        file.write_all(&key)?;
        fs::write(folder.join("slurm.conf"), config(folder, order)?)?;
        let mut slurm = Self { folder: folder.to_owned(), order, job, begun: Instant::now(), daemons: Vec::new() };
        slurm.start_daemon(
            "munged",
            &["--foreground", "--force", "--num-threads=2"],
            &[
                ("--key-file", "munge.key"),
                ("--socket", "munge.socket"),
                ("--pid-file", "munge.pid"),
                ("--seed-file", "munge.seed"),
            ],
        )?;
        wait_for("munged", || folder.join("munge.socket").exists())?;
        slurm.start_daemon("slurmctld", &["-D", "-c"], &[])?;
        slurm.start_daemon("slurmd", &["-D", "-c"], &[])?;
        wait_for("Slurm's node", || {
            slurm.command("sinfo").args(["-h", "-o", "%t"]).output().is_ok_and(|out| out.stdout == b"idle\n")
        })
        .with_context(|| slurm.complaints())?;
        slurm.begun = Instant::now();
        Ok(slurm)
    }

    fn start_daemon(&mut self, program: &str, words: &[&str], files: &[(&str, &str)]) -> Result<()> {
        let log = fs::File::create(self.folder.join(format!("{program}.out")))?;
        let mut command = self.command(program);
        command.args(words).stdout(log.try_clone()?).stderr(log);
        command.args(files.iter().map(|(option, file)| format!("{option}={}", self.folder.join(file).display())));
        self.daemons.push(command.spawn().with_context(|| format!("cannot run {program}"))?);
        Ok(())
    }

    /// One of Slurm's programs. Daemons are where only root looks for programs.
    fn command(&self, program: &str) -> Command {
        let sbin = Path::new("/usr/sbin").join(program);
        let mut command = Command::new(if sbin.exists() { sbin } else { PathBuf::from(program) });
        command.env("SLURM_CONF", self.folder.join("slurm.conf")).stdin(Stdio::null());
        command
    }

    fn complaints(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.folder.join(name)).unwrap_or_default();
        ["munged.out", "slurmctld.out", "slurmd.out"].map(read).concat()
    }
}

impl Runner for Slurm {
    fn hand_in(&mut self, number: usize, job: &JobArrival) -> Result<()> {
        let halves = (job.kind.max_speed.0 / HALF_CPU).round();
        let end = self.folder.join(format!("ends/{number}"));
        // The file has its name when all of it is there.
        let script =
            format!("{} && date +%s.%N > {end}.new && mv {end}.new {end}", self.job.words(job).join(" "), end = end.display());
        let mut command = self.command("sbatch");
        command.args(["--parsable", "--ntasks=1", "--time=1", "--output=/dev/null", "--chdir=/"]);
        command.args([format!("--cpus-per-task={halves}"), format!("--mem={}M", JOB_MEMORY.0 >> 20), format!("--wrap={script}")]);
        if self.order == Order::Deadline {
            let due_s = self.begun.elapsed().as_secs_f64() + job.relative_goal_s;
            command.arg(format!("--priority={}", HIGHEST - (10.0 * due_s) as u64));
            command.arg(format!("--partition=class{}", class(job)));
        }
        let output = command.output().context("cannot run sbatch")?;
        ensure!(output.status.success(), "Slurm does not take a job: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    fn over(&mut self) -> Result<usize> {
        Ok(self.ends()?.len())
    }

    fn finish(&mut self) -> Result<Ends> {
        let log = fs::read_to_string(self.folder.join("slurmctld.log")).unwrap_or_default();
        Ok(Ends { at_s: self.ends()?, changes: log.lines().filter(|line| line.contains(SUSPENDED)).count() })
    }
}

impl Slurm {
    fn ends(&self) -> Result<BTreeMap<usize, f64>> {
        let mut ends = BTreeMap::new();
        for entry in fs::read_dir(self.folder.join("ends"))? {
            let entry = entry?;
            if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
                ends.insert(number, fs::read_to_string(entry.path())?.trim().parse()?);
            }
        }
        Ok(ends)
    }
}

/// What slurmctld writes when it suspends a job for another.
const SUSPENDED: &str = "gang: suspending JobId=";

impl Drop for Slurm {
    fn drop(&mut self) {
        // What still runs is a job's, which slurmd's helpers would leave behind.
        let _ = self.command("scancel").args(["--user=root"]).status();
        let _ = wait_for("Slurm's jobs", || self.command("squeue").arg("-h").output().map_or(true, |out| out.stdout.is_empty()));
        for daemon in self.daemons.iter_mut().rev() {
            end(daemon);
        }
    }
}

fn end(daemon: &mut Child) {
    let pid = i32::try_from(daemon.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::TERM);
    }
    if wait_for("a daemon", || daemon.try_wait().is_ok_and(|status| status.is_some())).is_err() {
        let _ = daemon.kill();
        let _ = daemon.wait();
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        ensure!(Instant::now() < deadline, "{what} is not there in {} s", PATIENCE.as_secs());
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The job's class: 0 is the strictest.
fn class(job: &JobArrival) -> usize {
    let factor = job.relative_goal_s / job.kind.best_s();
    GOAL_FACTORS.iter().position(|(_, of_class)| factor <= of_class + 1e-6).unwrap_or(GOAL_FACTORS.len() - 1)
}

fn config(folder: &Path, order: Order) -> Result<String> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname")?;
    let host = host.trim().split('.').next().unwrap_or_default();
    let (controller, node) = (free_address()?.port(), free_address()?.port());
    let cpus = 2 * SLICES;
    let memory = SLICES as u64 * (SLICE_MEMORY.0 >> 20);
    let at = |name: &str| folder.join(name).display().to_string();
    let mut text = format!(
        "ClusterName=bench\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={controller}\nSlurmdPort={node}\n\
         SlurmUser=root\nSlurmdUser=root\nAuthType=auth/munge\nAuthInfo=socket={}\nCredType=cred/munge\n\
         StateSaveLocation={}\nSlurmdSpoolDir={}\nSlurmctldPidFile={}\nSlurmdPidFile={}\nSlurmctldLogFile={}\nSlurmdLogFile={}\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nMpiDefault=none\n\
         SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\nSlurmdParameters=config_overrides\nReturnToService=2\n\
         PriorityType=priority/basic\nSchedulerType=sched/backfill\n\
         SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1,bf_resolution=1,bf_continue\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory={memory} State=UNKNOWN\n",
        at("munge.socket"),
        at("state"),
        at("spool"),
        at("slurmctld.pid"),
        at("slurmd.pid"),
        at("slurmctld.log"),
        at("slurmd.log"),
    );
    match order {
        Order::Arrival => text += &format!("PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE\n"),
        Order::Deadline => {
            text += "PreemptType=preempt/partition_prio\nPreemptMode=SUSPEND,GANG\nSchedulerTimeSlice=5\nDebugFlags=Gang\n";
            for class in 0..GOAL_FACTORS.len() {
                let tier = GOAL_FACTORS.len() - class;
                text += &format!(
                    "PartitionName=class{class} Nodes={host} PriorityTier={tier} OverSubscribe=FORCE:1 MaxTime=INFINITE\n"
                );
            }
        }
    }
    Ok(text)
}
