//! The filter of system calls (seccomp). It is an allow-list, so that what a later kernel brings is closed until somebody has looked at it.
//!
//! Three programs are loaded, because one program has one answer for all that it does not let pass, and programs take the answers
//! differently: EPERM for what an administrator does, EAFNOSUPPORT for a kind of socket, ENOSYS for what is not there. Of two errors the
//! kernel takes that of the program that was loaded later.

use std::collections::BTreeMap;
use std::io;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction,
    SeccompCmpArgLen::{Dword, Qword},
    SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use serde::{Deserialize, Serialize};

use crate::syscalls;

/// What passes the filter besides what any service needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// New namespaces, user namespaces among them: container engines, sandboxes of browsers.
    pub namespaces: bool,
    /// `ptrace` and its like: debuggers, crash reporters.
    pub debugging: bool,
    /// Real-time scheduling: audio, industrial control.
    pub realtime: bool,
    /// Changes of user, of owners, of priorities and of limits. They are in `@system-service`, as many a service starts as root.
    pub identities: bool,
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// The programs of a filter, in the order in which they are loaded.
pub struct Programs([BpfProgram; 3]);

/// The filter cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("the filter of system calls cannot be made: {0}")]
pub struct NoFilter(#[from] seccompiler::BackendError);

impl Filter {
    /// Compiles it. Loading it later allocates nothing.
    ///
    /// # Errors
    /// There is no such filter for this architecture.
    pub fn compile(self) -> Result<Programs, NoFilter> {
        let error = |code: i32| SeccompAction::Errno(code.cast_unsigned());
        let known = program(self.allowed()?, error(libc::ENOSYS), SeccompAction::Allow)?;
        let refused = program(self.refused()?, SeccompAction::Allow, error(libc::EPERM))?;
        let sockets = program(sockets()?, SeccompAction::Allow, error(libc::EAFNOSUPPORT))?;
        Ok(Programs([known, refused, sockets]))
    }

    /// What exists for the program.
    fn allowed(self) -> Result<Rules, NoFilter> {
        let every = [syscalls::SERVICE, syscalls::OLD].concat();
        let mut rules: Rules = every.into_iter().map(|call| (call, Vec::new())).collect();
        rules.extend(syscalls::CHANGES_OF_MODE.iter().map(|(call, _)| (*call, Vec::new())));
        // What of these is refused stands in the other programs.
        for call in [libc::SYS_socket, libc::SYS_clone, libc::SYS_unshare, libc::SYS_sched_setscheduler, libc::SYS_personality] {
            rules.insert(call, Vec::new());
        }
        if self.namespaces {
            rules.extend([libc::SYS_setns, libc::SYS_clone3].map(|call| (call, Vec::new())));
        }
        if self.realtime {
            rules.insert(libc::SYS_sched_setattr, Vec::new());
        }
        if self.debugging {
            rules.extend(syscalls::DEBUGGING.iter().map(|call| (*call, Vec::new())));
        }
        if !self.identities {
            for call in [syscalls::IDENTITIES, syscalls::OLD_IDENTITIES].concat() {
                rules.remove(&call);
            }
        }
        // `clone3` and `openat2` have their flags in memory, where no filter can look: programs fall back to what one can look at.
        Ok(rules)
    }

    /// What is refused with EPERM.
    fn refused(self) -> Result<Rules, NoFilter> {
        let every = [syscalls::ADMINISTRATION, syscalls::OLD_ADMINISTRATION].concat();
        let mut rules: Rules = every.into_iter().map(|call| (call, Vec::new())).collect();
        if !self.identities {
            rules.extend([syscalls::IDENTITIES, syscalls::OLD_IDENTITIES].concat().into_iter().map(|call| (call, Vec::new())));
            // Limits are read by it, too: without a new one it passes.
            rules.insert(
                libc::SYS_prlimit64,
                vec![SeccompRule::new(vec![SeccompCondition::new(2, Qword, SeccompCmpOp::Ne, 0)?])?],
            );
        }
        if !self.debugging {
            rules.extend(syscalls::DEBUGGING.iter().map(|call| (*call, Vec::new())));
        }
        if !self.namespaces {
            rules.insert(libc::SYS_setns, Vec::new());
            let any_namespace = |flags: &[u64]| flags.iter().map(|flag| any_bit(0, *flag)).collect::<Result<_, _>>();
            rules.insert(libc::SYS_clone, any_namespace(&NAMESPACES)?);
            rules.insert(libc::SYS_unshare, any_namespace(&[&NAMESPACES[..], &[libc::CLONE_NEWTIME as u64]].concat())?);
        }
        if !self.realtime {
            // SCHED_OTHER, SCHED_BATCH and SCHED_IDLE pass; what is above the policy's byte is a flag.
            let policies = [libc::SCHED_FIFO, libc::SCHED_RR, 6].map(|policy| {
                SeccompRule::new(vec![SeccompCondition::new(
                    1,
                    Dword,
                    SeccompCmpOp::MaskedEq(0xff),
                    u64::from(policy.cast_unsigned()),
                )?])
            });
            rules.insert(libc::SYS_sched_setscheduler, policies.into_iter().collect::<Result<_, _>>()?);
        }
        // Only the one that a program has, or a look at it. Others switch off protections.
        let differs = |value| SeccompCondition::new(0, Dword, SeccompCmpOp::Ne, value);
        rules.insert(libc::SYS_personality, vec![SeccompRule::new(vec![differs(0)?, differs(0xffff_ffff)?])?]);
        // Files that give their user's rights to whoever runs them.
        for (call, mode) in syscalls::CHANGES_OF_MODE {
            rules.insert(*call, SET_ID.iter().map(|bit| any_bit(*mode, *bit)).collect::<Result<_, _>>()?);
        }
        for (call, flags, mode) in syscalls::NEW_FILES {
            rules.insert(*call, creates_set_id(*flags, *mode)?);
        }
        Ok(rules)
    }
}

/// The bits of a mode that give a program its file's user or group.
const SET_ID: [u64; 2] = [libc::S_ISUID as u64, libc::S_ISGID as u64];

/// Matches a call that makes a file with such a bit. Without flags that say otherwise, the mode means nothing.
fn creates_set_id(flags: u8, mode: u8) -> Result<Vec<SeccompRule>, NoFilter> {
    const ONLY_TMPFILE: u64 = (libc::O_TMPFILE & !libc::O_DIRECTORY) as u64;
    let has = |argument, bit| SeccompCondition::new(argument, Dword, SeccompCmpOp::MaskedEq(bit), bit);
    let mut rules = Vec::new();
    for flag in [libc::O_CREAT as u64, ONLY_TMPFILE] {
        for bit in SET_ID {
            rules.push(SeccompRule::new(vec![has(flags, flag)?, has(mode, bit)?])?);
        }
    }
    Ok(rules)
}

/// The flags that make a namespace. In `clone`, the byte of `CLONE_NEWTIME` holds a signal, so that it cannot make one of those.
const NAMESPACES: [u64; 7] = [
    libc::CLONE_NEWNS as u64,
    libc::CLONE_NEWCGROUP as u64,
    libc::CLONE_NEWUTS as u64,
    libc::CLONE_NEWIPC as u64,
    libc::CLONE_NEWUSER as u64,
    libc::CLONE_NEWPID as u64,
    libc::CLONE_NEWNET as u64,
];

/// Kinds of sockets that a service needs: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK. The rules match all others.
fn sockets() -> Result<Rules, NoFilter> {
    let (unix, inet, inet6, netlink) = (1, 2, 10, 16);
    let domain = |op, value| SeccompCondition::new(0, Dword, op, value);
    let rules = vec![
        SeccompRule::new(vec![domain(SeccompCmpOp::Lt, unix)?])?,
        SeccompRule::new(vec![domain(SeccompCmpOp::Gt, inet)?, domain(SeccompCmpOp::Lt, inet6)?])?,
        SeccompRule::new(vec![domain(SeccompCmpOp::Gt, inet6)?, domain(SeccompCmpOp::Lt, netlink)?])?,
        SeccompRule::new(vec![domain(SeccompCmpOp::Gt, netlink)?])?,
    ];
    Ok(Rules::from([(libc::SYS_socket, rules)]))
}

/// Matches an argument in which `bit` is set.
fn any_bit(argument: u8, bit: u64) -> Result<SeccompRule, seccompiler::BackendError> {
    SeccompRule::new(vec![SeccompCondition::new(argument, Dword, SeccompCmpOp::MaskedEq(bit), bit)?])
}

fn program(rules: Rules, other: SeccompAction, listed: SeccompAction) -> Result<BpfProgram, NoFilter> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, other, listed, arch)?.try_into()?)
}

impl Programs {
    /// Puts this thread, and all that it starts, behind the filter for good. It cannot get new privileges any more.
    ///
    /// # Errors
    /// The kernel has no seccomp.
    pub fn load(&self) -> io::Result<()> {
        for program in &self.0 {
            seccompiler::apply_filter(program).map_err(|error| match error {
                seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error) => error,
                other => io::Error::other(other.to_string()),
            })?;
        }
        Ok(())
    }
}
