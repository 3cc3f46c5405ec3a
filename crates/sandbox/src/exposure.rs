//! How exposed the machine is to a program, on the scale of `systemd-analyze security`: 0 is shut off from everything, 10 is root without bounds.
//!
//! Items and weights are systemd's (systemd-analyze(1), `security`; version 252), so that the score compares with that of a unit. An item counts
//! as closed only if the plan closes it on this machine by whatever means: a clock that needs a capability and a system call which are both gone
//! is protected.

use std::path::Path;

use crate::mounts::Tmp;
use crate::plan::SandboxPlan;

/// As whom a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConfinedAs {
    /// The superuser.
    Root,
    /// A user that it shares with other programs.
    Shared,
    /// A user of its own.
    Own,
}

/// What is judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Item {
    /// systemd's name of the setting that closes it.
    pub setting: &'static str,
    /// What the program may do as long as it is open, as the end of a sentence.
    pub may: &'static str,
    /// How much it counts.
    pub weight: u32,
    /// How far it is open, from 0 to 1.
    pub open: f64,
}

/// The judgement of one plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Exposure {
    /// Every item.
    pub items: Vec<Item>,
}

/// What a plan closes, by the means that close it.
struct Closed {
    identity: ConfinedAs,
    capabilities: bool,
    mounts: bool,
    files: bool,
    tmp: bool,
    homes: bool,
    root: bool,
    own_files: bool,
    identities: bool,
    devices: bool,
    filter: bool,
    namespaces: bool,
    debugging: bool,
    realtime: bool,
    confined: bool,
}

impl Exposure {
    /// Judges `plan` for a program that runs as `identity`.
    pub fn of(plan: &SandboxPlan, identity: ConfinedAs) -> Self {
        let filter = plan.filter;
        let mounts = plan.mounts.as_ref();
        let closed = Closed {
            identity,
            // The kernel takes them from whoever becomes another user, and weal rules set-user-ID programs out for all that it starts.
            capabilities: plan.drops_capabilities || identity != ConfinedAs::Root,
            mounts: mounts.is_some(),
            files: mounts.is_some() || plan.landlock.is_some(),
            tmp: mounts.is_some_and(|mounts| mounts.tmp != Tmp::Shared),
            homes: plan.has_own_root() || mounts.is_some_and(|mounts| mounts.hide.iter().any(|path| path == Path::new("/home"))),
            root: plan.has_own_root(),
            own_files: plan.hides_files,
            identities: filter.is_some_and(|filter| !filter.identities),
            devices: mounts.is_some_and(|mounts| mounts.devices.is_empty()),
            filter: filter.is_some(),
            namespaces: filter.is_some_and(|filter| !filter.namespaces),
            debugging: filter.is_some_and(|filter| !filter.debugging),
            realtime: filter.is_some_and(|filter| !filter.realtime),
            confined: *plan != SandboxPlan::default(),
        };
        Self { items: closed.items() }
    }

    /// From 0 to 10, rounded to a tenth as systemd prints it.
    pub fn score(&self) -> f64 {
        let weight: f64 = self.items.iter().map(|item| f64::from(item.weight)).sum();
        let open: f64 = self.items.iter().map(|item| f64::from(item.weight) * item.open).sum();
        (open / weight * 100.0).round() / 10.0
    }

    /// What the program may do, the heaviest first, each thing once.
    pub fn may(&self) -> Vec<&'static str> {
        let mut said = Vec::new();
        for item in self.open() {
            if !said.contains(&item.may) {
                said.push(item.may);
            }
        }
        said
    }

    /// What is open, the heaviest first.
    pub fn open(&self) -> Vec<&Item> {
        let mut open: Vec<&Item> = self.items.iter().filter(|item| item.open > 0.0).collect();
        open.sort_by(|a, b| (f64::from(b.weight) * b.open).total_cmp(&(f64::from(a.weight) * a.open)));
        open
    }
}

impl Closed {
    fn items(&self) -> Vec<Item> {
        [self.identities(), self.kernel(), self.view(), self.capabilities(), self.namespaces(), self.sockets(), self.calls()]
            .concat()
    }

    fn identities(&self) -> Vec<Item> {
        let user = match self.identity {
            ConfinedAs::Root => 1.0,
            ConfinedAs::Shared => 0.1,
            ConfinedAs::Own => 0.0,
        };
        let mut items = vec![
            part("User=", "do what its user may", 2000, user),
            item("NoNewPrivileges=", "get the rights of set-user-ID programs", 1000, self.confined),
            item("AmbientCapabilities=", "inherit capabilities", 500, true),
            item("KeyringMode=", "use the kernel's keys of others", 1000, self.confined),
            item("NotifyAccess=", "speak for the service manager", 1000, true),
            item("Delegate=", "manage its own control groups", 100, true),
            part("UMask=", "leave new files readable for all", 100, if self.own_files { 0.0 } else { 0.5 }),
        ];
        if self.identity != ConfinedAs::Root {
            items.push(item("SupplementaryGroups=", "do what groups of its user may", 200, self.identity == ConfinedAs::Own));
            items.push(item("RemoveIPC=", "leave IPC objects behind", 100, self.mounts));
        }
        items
    }

    fn kernel(&self) -> Vec<Item> {
        // Root owns the clock's device and the files of /proc/sys, also root without capabilities.
        let is_user = self.identity != ConfinedAs::Root;
        vec![
            item("ProtectClock=", "set the clock", 1000, self.capabilities && (is_user || self.filter && self.mounts)),
            item("ProtectKernelLogs=", "read the kernel's log", 1000, self.capabilities && self.filter && self.mounts),
            item("ProtectKernelModules=", "load kernel modules", 1000, self.capabilities),
            item("ProtectKernelTunables=", "change the kernel's settings", 1000, is_user || self.mounts),
            item("ProtectControlGroups=", "change control groups", 1000, self.mounts),
            item("ProtectHostname=", "change the host name", 50, self.capabilities),
            item("LockPersonality=", "switch off protections of its memory", 100, self.filter),
            item("MemoryDenyWriteExecute=", "run code that it has written", 100, false),
            item("RestrictRealtime=", "take a CPU for itself in real time", 500, self.realtime),
            item("RestrictSUIDSGID=", "make set-user-ID files", 1000, self.filter),
        ]
    }

    fn view(&self) -> Vec<Item> {
        let home = match () {
            () if self.homes => 0.0,
            () if self.files => 0.5,
            () => 1.0,
        };
        let processes = if self.mounts { 0.0 } else { 1.0 };
        vec![
            part("ProtectHome=", "read home directories, as far as their permissions go", 1000, home),
            item("ProtectSystem=", "write outside of its own folders", 1000, self.files),
            part("ProtectProc=", "see others' processes", 1000, processes),
            item("ProcSubset=", "read what /proc says of the machine", 10, false),
            item("PrivateTmp=", "meet others in /tmp", 1000, self.tmp),
            item("PrivateDevices=", "open devices", 1000, self.devices),
            part("DeviceAllow=", "make use of devices that it can reach", 1000, if self.devices { 0.2 } else { 1.0 }),
            item("PrivateMounts=", "change mounts", 1000, self.capabilities || self.mounts),
            item("PrivateNetwork=", "use the network", 2500, false),
            item("PrivateUsers=", "see others' users", 1000, false),
            item("RootDirectory=", "see the machine's files", 200, self.root),
            item("IPAddressDeny=", "speak to any address", 1000, false),
        ]
    }

    fn capabilities(&self) -> Vec<Item> {
        const SETS: [(&str, &str, u32); 26] = [
            ("CAP_SYS_ADMIN", "administrate the machine", 1500),
            ("CAP_SET(UID|GID|PCAP)", "become other users", 1500),
            ("CAP_SYS_PTRACE", "look into any process", 1500),
            ("CAP_SYS_TIME", "set the clock", 1000),
            ("CAP_NET_ADMIN", "set up the network", 1000),
            ("CAP_SYS_RAWIO", "reach hardware", 1000),
            ("CAP_SYS_MODULE", "load kernel modules", 1000),
            ("CAP_AUDIT_*", "reach the audit log", 500),
            ("CAP_SYSLOG", "reach the kernel's log", 500),
            ("CAP_SYS_(NICE|RESOURCE)", "take more than its share", 500),
            ("CAP_MKNOD", "make devices", 500),
            ("CAP_(CHOWN|FSETID|SETFCAP)", "give files away", 1000),
            ("CAP_(DAC_*|FOWNER|IPC_OWNER)", "pass over file permissions", 1000),
            ("CAP_KILL", "signal any process", 500),
            ("CAP_NET_(BIND_SERVICE|BROADCAST|RAW)", "use ports below 1024 and raw sockets", 500),
            ("CAP_SYS_BOOT", "reboot", 100),
            ("CAP_MAC_*", "change mandatory access control", 100),
            ("CAP_LINUX_IMMUTABLE", "make files immutable", 75),
            ("CAP_IPC_LOCK", "lock memory", 50),
            ("CAP_SYS_CHROOT", "change its root", 50),
            ("CAP_BLOCK_SUSPEND", "keep the machine awake", 25),
            ("CAP_WAKE_ALARM", "wake the machine", 25),
            ("CAP_LEASE", "take leases on files", 25),
            ("CAP_SYS_TTY_CONFIG", "hang up terminals", 25),
            ("CAP_BPF", "load BPF programs", 25),
            ("CAP_SYS_PACCT", "switch accounting", 25),
        ];
        SETS.iter().map(|(set, may, weight)| item(set, may, *weight, self.capabilities)).collect()
    }

    fn namespaces(&self) -> Vec<Item> {
        const KINDS: [(&str, u32); 7] =
            [("user", 1500), ("mnt", 500), ("ipc", 500), ("pid", 500), ("cgroup", 500), ("uts", 100), ("net", 500)];
        let may = "make namespaces, in which more of the kernel can be reached";
        KINDS.iter().map(|(_, weight)| item("RestrictNamespaces=", may, *weight, self.namespaces)).collect()
    }

    fn sockets(&self) -> Vec<Item> {
        vec![
            item("RestrictAddressFamilies=~AF_(INET|INET6)", "use the network", 1500, false),
            item("RestrictAddressFamilies=~AF_UNIX", "use local sockets", 25, false),
            item("RestrictAddressFamilies=~AF_NETLINK", "ask the kernel about the network", 200, false),
            item("RestrictAddressFamilies=~AF_PACKET", "send and see raw packets", 1000, self.filter),
            item("RestrictAddressFamilies=~…", "use exotic sockets", 1250, self.filter),
        ]
    }

    fn calls(&self) -> Vec<Item> {
        let set = |name, weight, is_closed| item(name, "make system calls that no service needs", weight, is_closed);
        // `@system-service` holds changes of user and of limits, which without capabilities the kernel bounds.
        vec![
            item("SystemCallArchitectures=", "make system calls of other architectures", 1000, self.filter),
            set("SystemCallFilter=~@swap", 1000, self.filter),
            set("SystemCallFilter=~@obsolete", 250, self.filter),
            set("SystemCallFilter=~@clock", 1000, self.filter),
            set("SystemCallFilter=~@cpu-emulation", 250, self.filter),
            set("SystemCallFilter=~@debug", 1000, self.debugging),
            set("SystemCallFilter=~@mount", 1000, self.filter),
            set("SystemCallFilter=~@module", 1000, self.filter),
            set("SystemCallFilter=~@raw-io", 1000, self.filter),
            set("SystemCallFilter=~@reboot", 1000, self.filter),
            set("SystemCallFilter=~@privileged", 700, self.identities),
            set("SystemCallFilter=~@resources", 700, self.identities),
        ]
    }
}

fn item(setting: &'static str, may: &'static str, weight: u32, is_closed: bool) -> Item {
    part(setting, may, weight, if is_closed { 0.0 } else { 1.0 })
}

fn part(setting: &'static str, may: &'static str, weight: u32, open: f64) -> Item {
    Item { setting, may, weight, open }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use weal_model::SandboxSpec;

    use super::*;
    use crate::{ConfinementSupport, Paths};

    fn strict() -> SandboxPlan {
        let machine = ConfinementSupport { is_root: true, mounts: true, landlock_version: 6, filter: true };
        let paths = Paths { data: "/d".into(), tmp: "/t".into(), keep: Vec::new() };
        SandboxPlan::new(&SandboxSpec::default(), machine, &paths)
    }

    fn role() -> SandboxPlan {
        SandboxPlan::of_role(
            ConfinementSupport { is_root: true, mounts: true, landlock_version: 6, filter: true },
            Path::new("/s"),
        )
    }

    #[test]
    fn a_role_that_faces_others_is_confined_further() {
        let exposure = Exposure::of(&role(), ConfinedAs::Own);
        assert!(exposure.score() <= 1.5, "{}: {:?}", exposure.score(), exposure.open());
    }

    #[test]
    fn an_application_in_the_strict_sandbox_scores_as_a_hardened_unit() {
        let exposure = Exposure::of(&strict(), ConfinedAs::Own);
        assert!(exposure.score() <= 2.5, "{}: {:?}", exposure.score(), exposure.open());
        assert!(exposure.open().iter().any(|item| item.setting == "PrivateNetwork="), "what is open is said");
        assert!(Exposure::of(&SandboxPlan::default(), ConfinedAs::Root).score() >= 9.0);
    }

    #[test]
    fn a_user_may_do_nothing_that_takes_capabilities_and_nothing_is_said_twice() {
        let unprivileged = ConfinementSupport { is_root: false, mounts: false, landlock_version: 6, filter: true };
        let paths = Paths { data: "/d".into(), tmp: "/t".into(), keep: Vec::new() };
        for plan in [SandboxPlan::default(), SandboxPlan::new(&SandboxSpec::default(), unprivileged, &paths)] {
            let may = Exposure::of(&plan, ConfinedAs::Shared).may();
            for privileged in ["set the clock", "administrate the machine", "load kernel modules", "change mounts", "reboot"] {
                assert!(!may.contains(&privileged), "{may:?}");
            }
            assert_eq!(may.iter().filter(|what| **what == "use the network").count(), 1, "{may:?}");
        }
        assert!(Exposure::of(&SandboxPlan::default(), ConfinedAs::Root).may().contains(&"administrate the machine"));
    }

    /// The same settings in a unit, judged by systemd itself. systemd counts the capabilities of `User=` only where the unit takes them away, so
    /// the unit of a plain user says what the kernel does.
    #[test]
    fn systemd_judges_the_same_settings_alike() {
        let strict_unit = "DynamicUser=yes\nNoNewPrivileges=yes\nCapabilityBoundingSet=\nPrivateDevices=yes\nPrivateTmp=yes\nPrivateMounts=yes\n\
            ProtectClock=yes\nProtectKernelLogs=yes\nProtectControlGroups=yes\nProtectKernelModules=yes\nProtectKernelTunables=yes\n\
            ProtectHome=read-only\nProtectSystem=strict\nProtectProc=invisible\nProtectHostname=yes\nLockPersonality=yes\n\
            RestrictRealtime=yes\nRestrictSUIDSGID=yes\nRestrictNamespaces=yes\nRestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n\
            SystemCallArchitectures=native\nSystemCallFilter=@system-service\nKeyringMode=private\nRemoveIPC=yes\nUMask=0022\n\
            DevicePolicy=closed\n";
        let role_unit = strict_unit
            .replace("ProtectHome=read-only", "ProtectHome=yes")
            .replace(
                "SystemCallFilter=@system-service",
                "SystemCallFilter=@system-service\nSystemCallFilter=~@privileged @resources",
            )
            .replace("UMask=0022", "UMask=0077");
        let user_unit = "User=nobody\nCapabilityBoundingSet=\nProtectClock=yes\nProtectKernelModules=yes\nProtectKernelTunables=yes\n\
            ProtectHostname=yes\nPrivateMounts=yes\n";
        for (unit, plan, identity) in [
            ("", SandboxPlan::default(), ConfinedAs::Root),
            (user_unit, SandboxPlan::default(), ConfinedAs::Shared),
            (strict_unit, strict(), ConfinedAs::Own),
            (role_unit.as_str(), role(), ConfinedAs::Own),
        ] {
            let Some(theirs) = judged(unit) else { return weal_testing::skip("there is no systemd-analyze here") };
            let ours = Exposure::of(&plan, identity).score();
            assert!(
                (ours - theirs).abs() < 0.25,
                "systemd says {theirs}, weal {ours}: {:?}",
                Exposure::of(&plan, identity).open()
            );
        }
    }

    #[test]
    fn the_agent_is_judged_as_a_unit_of_root_without_what_changes_the_machine() {
        let unit = "NoNewPrivileges=yes\nKeyringMode=private\nUMask=0077\nProtectClock=yes\nProtectKernelLogs=yes\nProtectKernelModules=yes\n\
            CapabilityBoundingSet=~CAP_SYS_MODULE CAP_SYS_RAWIO CAP_SYS_BOOT CAP_SYS_TIME CAP_SYS_TTY_CONFIG CAP_SYS_PACCT CAP_LINUX_IMMUTABLE \
            CAP_AUDIT_WRITE CAP_AUDIT_CONTROL CAP_AUDIT_READ CAP_MAC_OVERRIDE CAP_MAC_ADMIN CAP_SYSLOG CAP_WAKE_ALARM CAP_BLOCK_SUSPEND CAP_BPF\n";
        let ours = Exposure::of_agent().score();
        assert!(ours < Exposure::of(&SandboxPlan::default(), ConfinedAs::Root).score());
        let Some(theirs) = judged(unit) else { return weal_testing::skip("there is no systemd-analyze here") };
        assert!((ours - theirs).abs() < 0.35, "systemd says {theirs}, weal {ours}: {:?}", Exposure::of_agent().open());
    }

    fn judged(settings: &str) -> Option<f64> {
        let folder = tempfile::tempdir().unwrap();
        let unit = folder.path().join("app.service");
        std::fs::write(&unit, format!("[Service]\nExecStart=/bin/true\n{settings}")).unwrap();
        let output =
            Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(unit).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("Overall exposure level"))?;
        line.split_whitespace().find_map(|word| word.parse().ok())
    }
}
