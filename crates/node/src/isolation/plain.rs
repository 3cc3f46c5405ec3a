//! Plain processes: what can be had without control groups, by watching `/proc` and by signals.
//!
//! The members of an instance are the descendants of its shim (a subreaper, so they stay its descendants when they
//! detach), and those in the shim's session. Once that shim is gone, the number of its session may be somebody else's: then
//! it is whoever carries the instance's mark in its environment.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::process::Signal;
use weal_host::process::ticks_to_seconds;
use weal_host::{Proc, Stat};
use weal_model::NodeSpec;

use super::hybrid::stand_still;
use super::{GroupLimits, Isolation, Kind, Loss, Member, NodeUsage, Occupied, Usage};
use crate::files::read_json;
use crate::shim::{PID_FILE, Record, SPEC_FILE, Started, mark, marked_in};
use crate::signals::send;
use crate::strays::{self, runs_as};

/// No isolation.
#[derive(Debug)]
pub struct Plain {
    proc: Proc,
    losses: Vec<Loss>,
    /// CPU ticks last seen per instance: a process that is gone unnoticed takes its time with it, and counters only grow.
    seen_ticks: Mutex<BTreeMap<String, u64>>,
}

impl Plain {
    /// Watching `proc`, because of `why`.
    pub fn new(proc: Proc, why: &str) -> Self {
        Self { proc, losses: losses(why), seen_ticks: Mutex::default() }
    }

    fn started(member: Member<'_>) -> Option<Started> {
        read_json(&member.dir.join(PID_FILE)).ok().flatten()
    }

    /// The shim's own line, if it lives, and the instance's processes.
    fn family(&self, member: Member<'_>) -> (Option<Stat>, Vec<Stat>) {
        let started = Self::started(member);
        let session = started.filter(|started| started.session == started.shim.pid && self.proc.is_alive(started.shim));
        let session = session.map(|started| started.session);
        let mut family = match started {
            Some(started) => self.proc.family(&[started.shim, started.main], session.as_slice()),
            None => Vec::new(),
        };
        let is_shim = |stat: &Stat| started.is_some_and(|started| stat.identity() == started.shim);
        if session.is_none() {
            let (mark, users) = (mark(member.dir), users(member.dir));
            // Anybody can write the mark.
            let is_member = |pid: u32| self.proc.has_variable(pid, &mark) && runs_as(&self.proc, pid, |uid| users.contains(&uid));
            let strays = self.proc.all().into_iter().filter(|stat| is_member(stat.pid));
            let known: Vec<u32> = family.iter().map(|stat| stat.pid).collect();
            family.extend(strays.filter(|stat| !known.contains(&stat.pid)));
        }
        let (shims, members): (Vec<Stat>, Vec<Stat>) = family.into_iter().partition(is_shim);
        (shims.into_iter().next(), members)
    }

    fn signal_all(&self, member: Member<'_>, what: Signal) -> io::Result<()> {
        let (_, members) = self.family(member);
        members.iter().filter_map(|stat| self.proc.open(stat.identity())).try_for_each(|handle| send(handle, what))
    }
}

/// The users that the instance in `dir` runs as: its own, and that of this process, which starts it. Without a record they are those of all the pool's
/// programs. The processes of others are none of its, whatever they say: they could be started faster than they are ended.
fn users(dir: &Path) -> BTreeSet<u32> {
    let record: Option<Record> = read_json(&dir.join(SPEC_FILE)).ok().flatten();
    let own = |record: Record| {
        record.launch.user.map(|user| user.uid).into_iter().chain([rustix::process::geteuid().as_raw()]).collect()
    };
    record.map_or_else(|| pool_users(dir.parent().unwrap_or(dir)), own)
}

/// The users of the pool whose instances' folders are in `instances`.
fn pool_users(instances: &Path) -> BTreeSet<u32> {
    instances.ancestors().nth(2).and_then(|state| strays::users(state).ok()).unwrap_or_default()
}

impl Isolation for Plain {
    fn kind(&self) -> Kind {
        Kind::None
    }

    fn losses(&self) -> &[Loss] {
        &self.losses
    }

    fn reclaims(&self) -> bool {
        false
    }

    fn set_node(&self, _: &NodeSpec) -> io::Result<()> {
        Ok(())
    }

    fn remove_node(&self, _: &str) {}

    fn node_usage(&self, _: &str) -> NodeUsage {
        NodeUsage::default()
    }

    /// What is started now counts from nothing.
    fn create(&self, member: Member<'_>, _: &GroupLimits) -> io::Result<()> {
        self.remove(member)
    }

    fn limit(&self, _: Member<'_>, _: &GroupLimits) -> io::Result<()> {
        Ok(())
    }

    fn entrances(&self, _: Member<'_>) -> Vec<PathBuf> {
        Vec::new()
    }

    fn side_entrances(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn role_entrances(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    /// By what processes were started with: one that has cleared its environment is not found.
    fn places(&self, instances: &Path) -> Vec<Occupied> {
        let users = pool_users(instances);
        let of = |stat: Stat| {
            let folder = marked_in(&self.proc, stat.pid, instances).filter(|_| stat.is_alive())?;
            runs_as(&self.proc, stat.pid, |uid| users.contains(&uid)).then_some(())?;
            Some(Occupied { node: String::new(), instance: folder.to_str()?.to_owned() })
        };
        self.proc.all().into_iter().filter_map(of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn processes(&self, member: Member<'_>) -> Vec<u32> {
        let (_, members) = self.family(member);
        members.into_iter().filter(Stat::is_alive).map(|stat| stat.pid).collect()
    }

    fn usage(&self, member: Member<'_>) -> Usage {
        let (shim, members) = self.family(member);
        let ticks =
            members.iter().map(|stat| stat.own_ticks + stat.waited_ticks).sum::<u64>() + shim.map_or(0, |shim| shim.waited_ticks);
        let mut seen = self.seen_ticks.lock().expect("nothing panics while it is held");
        let highest = seen.entry(member.instance.to_owned()).or_default();
        *highest = ticks.max(*highest);
        let disk: Vec<u64> = members.iter().filter_map(|stat| self.proc.disk_bytes(stat.pid)).collect();
        Usage {
            cpu_seconds: Some(ticks_to_seconds(*highest)),
            memory: Some(members.iter().map(|stat| memory(&self.proc, stat)).sum()),
            swap: Some(members.iter().filter_map(|stat| self.proc.swapped(stat.pid)).sum()),
            disk_bytes: (!disk.is_empty()).then(|| disk.iter().sum()),
            oom_kills: 0,
        }
    }

    fn freeze(&self, member: Member<'_>) -> io::Result<()> {
        self.signal_all(member, Signal::STOP)
    }

    fn is_frozen(&self, member: Member<'_>) -> bool {
        stand_still(&self.proc, &self.processes(member))
    }

    fn thaw(&self, member: Member<'_>) -> io::Result<()> {
        self.signal_all(member, Signal::CONT)
    }

    fn kill(&self, member: Member<'_>) -> io::Result<()> {
        self.signal_all(member, Signal::KILL)
    }

    fn can_reclaim(&self, _: Member<'_>) -> bool {
        false
    }

    fn allow_swap(&self, _: Member<'_>, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn writeback(&self, _: Member<'_>) -> Option<u64> {
        None
    }

    fn reclaimable(&self, _: Member<'_>) -> u64 {
        0
    }

    fn charged(&self, _: Member<'_>) -> u64 {
        0
    }

    fn reclaim(&self, _: Member<'_>, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, member: Member<'_>) -> io::Result<()> {
        self.seen_ticks.lock().expect("nothing panics while it is held").remove(member.instance);
        Ok(())
    }

    fn clear(&self) {}
}

/// What is lost without groups, because of `why`.
pub fn losses(why: &str) -> Vec<Loss> {
    let why = Loss::NoGroups { why: why.to_owned() };
    vec![why, Loss::CpuOnlyCounted, Loss::MemoryPolled, Loss::NoFreezer, Loss::NoKill, Loss::NoPressure]
}

/// Its part of shared memory where that can be read, else everything resident.
fn memory(proc: &Proc, stat: &Stat) -> u64 {
    let resident = stat.resident_pages * rustix::param::page_size() as u64;
    proc.proportional_memory(stat.pid).unwrap_or(resident)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use weal_host::Identity;
    use weal_model::AppSpec;
    use weal_protocol::node::InstanceSpec;

    use super::*;
    use crate::files::write_json;

    #[test]
    fn who_has_the_number_of_a_session_that_is_gone_is_nobody_of_an_instances() {
        let folder = tempfile::tempdir().unwrap();
        let (proc, dir) = (folder.path().join("proc"), folder.path().join("state/node/instances/web-1"));
        fs::create_dir_all(&dir).unwrap();
        let run = |pid: u32, parent: u32, session: u32, start: u64, environ: &str| {
            let folder = proc.join(pid.to_string());
            fs::create_dir_all(&folder).unwrap();
            let stat = format!("{pid} (x) S {parent} {pid} {session} 0 -1 0 0 0 0 0 7 3 0 0 20 0 1 0 {start} 0 55 0");
            fs::write(folder.join("stat"), stat).unwrap();
            fs::write(folder.join("environ"), environ).unwrap();
        };
        let plain = Plain::new(Proc::new(&proc), "a test");
        let member = Member { node: "n1", instance: "web-1", dir: &dir };
        let started =
            Started { shim: Identity { pid: 10, start_ticks: 100 }, main: Identity { pid: 11, start_ticks: 101 }, session: 10 };
        write_json(&dir.join(PID_FILE), &started).unwrap();
        run(10, 1, 10, 100, "");
        run(11, 10, 10, 101, "");
        run(12, 1, 10, 102, "");
        assert_eq!(plain.processes(member), [11, 12], "while the shim lives, its session is the instance's");
        // Shim and instance are gone, and another's session has got the number.
        fs::remove_dir_all(proc.join("11")).unwrap();
        run(10, 1, 10, 900, "");
        run(12, 10, 10, 901, "");
        run(13, 1, 13, 103, &mark(&dir));
        run(14, 1, 14, 104, &mark(&dir));
        fs::write(proc.join("13/status"), "Uid:\t0\t0\t0\t0\n").unwrap();
        fs::write(proc.join("14/status"), "Uid:\t4000\t4000\t4000\t4000\n").unwrap();
        assert_eq!(
            plain.processes(member),
            [13],
            "without a record, it is who carries the mark and runs as one of the pool's users"
        );
        let occupied: Vec<String> = plain.places(dir.parent().unwrap()).into_iter().map(|place| place.instance).collect();
        assert_eq!(occupied, ["web-1"]);
        fs::remove_dir_all(proc.join("13")).unwrap();
        assert!(plain.places(dir.parent().unwrap()).is_empty(), "anybody can write the mark");
        let launch = r#""argv": [], "env": {}, "cwd": "/", "entrances": [], "side_entrances": []"#;
        let user = |uid: u32| {
            let user = format!(r#"{{"name": "x", "uid": {uid}, "gid": {uid}, "groups": [], "home": "/"}}"#);
            let spec = InstanceSpec::of(&AppSpec::example("web"), "web-1".into(), "n1".into());
            let spec = serde_json::to_string(&spec).unwrap();
            let record = format!(r#"{{"spec": {spec}, "port": 1, "launch": {{{launch}, "user": {user}}}}}"#);
            fs::write(dir.join(SPEC_FILE), record).unwrap();
        };
        user(4000);
        assert!(plain.processes(member).contains(&14));
        user(4001);
        assert!(!plain.processes(member).contains(&14), "somebody else's program that carries the mark is none of it");
    }
}
