//! What becomes of each key of the compose specification.

/// What becomes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It has a counterpart, or its own note says what becomes of it.
    Mapped,
    /// It changes nothing that would be missed here.
    Needless,
    /// It is left out, for this reason.
    LeftOut(&'static str),
}

use Fate::{LeftOut, Mapped, Needless};

const NAMESPACE: &str = "an application runs on this machine and in its network";
const SANDBOX: &str = "see `sandbox` for what an application may do";
const DEVICES: &str = "see `devices` of `sandbox`";
const BUILDS: &str = "weal builds nothing: build it, and name the program in `run`";
const LABELS: &str = "nothing here reads labels";
const RESOURCE: &str = "see `memory`, `cpu` and `limits` for what an application may use";
const FILES: &str = "files are where they are: see `cwd`, `$DATA` and `write` of `sandbox`";

/// Keys of a service.
const OF_SERVICE: &[(&str, Fate)] = &[
    ("annotations", LeftOut(LABELS)),
    ("attach", Needless),
    ("blkio_config", LeftOut("disks are not shared out")),
    ("build", LeftOut(BUILDS)),
    ("cap_add", LeftOut(SANDBOX)),
    ("cap_drop", Needless),
    ("cgroup", LeftOut(NAMESPACE)),
    ("cgroup_parent", LeftOut("weal makes control groups of its own")),
    ("command", Mapped),
    ("configs", LeftOut(FILES)),
    ("container_name", Needless),
    ("cpu_count", LeftOut(RESOURCE)),
    ("cpu_percent", LeftOut(RESOURCE)),
    ("cpu_period", LeftOut(RESOURCE)),
    ("cpu_quota", LeftOut(RESOURCE)),
    ("cpu_rt_period", LeftOut(RESOURCE)),
    ("cpu_rt_runtime", LeftOut(RESOURCE)),
    ("cpu_shares", LeftOut("CPU is shared out by goals: see `importance` of a class")),
    ("cpus", Mapped),
    ("cpuset", LeftOut("applications are not bound to cores")),
    ("credential_spec", LeftOut("it is for Windows")),
    ("depends_on", Mapped),
    ("deploy", Mapped),
    ("develop", LeftOut("weal does not watch sources")),
    ("device_cgroup_rules", LeftOut(DEVICES)),
    ("devices", LeftOut(DEVICES)),
    ("dns", LeftOut(NAMESPACE)),
    ("dns_opt", LeftOut(NAMESPACE)),
    ("dns_search", LeftOut(NAMESPACE)),
    ("domainname", LeftOut(NAMESPACE)),
    ("entrypoint", Mapped),
    ("env_file", Mapped),
    ("environment", Mapped),
    ("expose", Mapped),
    ("extends", LeftOut("write out what it takes over")),
    ("external_links", LeftOut("give the address in `env`")),
    ("extra_hosts", LeftOut("write them into /etc/hosts")),
    ("gpus", LeftOut(DEVICES)),
    ("group_add", LeftOut("an application has the groups of its `user`, or one `group`")),
    ("healthcheck", Mapped),
    ("hostname", LeftOut(NAMESPACE)),
    ("image", Mapped),
    ("init", Needless),
    ("ipc", LeftOut(NAMESPACE)),
    ("isolation", LeftOut("it is for Windows")),
    ("label_file", LeftOut(LABELS)),
    ("labels", LeftOut(LABELS)),
    ("links", Mapped),
    ("logging", LeftOut("weal keeps what an application writes: see weal logs")),
    ("mac_address", LeftOut(NAMESPACE)),
    ("mem_limit", Mapped),
    ("mem_reservation", LeftOut("memory is reserved as far as `memory` goes")),
    ("mem_swappiness", LeftOut("weal decides what is paged out")),
    ("memswap_limit", LeftOut("weal decides what is paged out")),
    ("models", LeftOut("run the model's server as an application")),
    ("network_mode", LeftOut(NAMESPACE)),
    ("networks", LeftOut(NAMESPACE)),
    ("oom_kill_disable", LeftOut("an application is held to its `memory`")),
    ("oom_score_adj", LeftOut("an application is held to its `memory`")),
    ("pid", LeftOut(NAMESPACE)),
    ("pids_limit", LeftOut("see `processes` of `sandbox`")),
    ("platform", LeftOut("programs are this machine's")),
    ("ports", Mapped),
    ("post_start", LeftOut("weal runs nothing after a start")),
    ("pre_stop", LeftOut("weal runs nothing before a stop: see `stop-signal`")),
    ("privileged", LeftOut(SANDBOX)),
    ("profiles", Mapped),
    ("provider", LeftOut("weal starts programs only")),
    ("pull_policy", Needless),
    ("read_only", Needless),
    ("restart", Mapped),
    ("runtime", LeftOut("weal runs no containers")),
    ("scale", Mapped),
    ("secrets", Mapped),
    ("security_opt", LeftOut(SANDBOX)),
    ("shm_size", LeftOut("/dev/shm is this machine's")),
    ("stdin_open", Needless),
    ("stop_grace_period", Mapped),
    ("stop_signal", Mapped),
    ("storage_opt", LeftOut(FILES)),
    ("sysctls", LeftOut("set them on this machine, with sysctl.d")),
    ("tmpfs", LeftOut("/tmp is an application's own, below its `memory` it is not counted")),
    ("tty", Needless),
    ("ulimits", Mapped),
    ("use_api_socket", LeftOut("weal runs no containers")),
    ("user", Mapped),
    ("userns_mode", LeftOut(SANDBOX)),
    ("uts", LeftOut(NAMESPACE)),
    ("volumes", LeftOut(FILES)),
    ("volumes_from", LeftOut(FILES)),
    ("working_dir", Mapped),
];

/// Keys of `deploy`.
const OF_DEPLOY: &[(&str, Fate)] = &[
    ("endpoint_mode", LeftOut("the gateway chooses instances: see `dispatch`")),
    ("labels", LeftOut(LABELS)),
    ("mode", LeftOut("see `instances` and `per-node`")),
    ("placement", LeftOut("see `nodes`, `together` and `apart`")),
    ("replicas", Mapped),
    ("resources", Mapped),
    ("restart_policy", Mapped),
    ("rollback_config", LeftOut("a config that is refused changes nothing")),
    ("update_config", LeftOut("instances are replaced one after the other")),
];

const AT_TOP: &[(&str, Fate)] = &[
    ("configs", LeftOut(FILES)),
    ("include", LeftOut("import that file too, and join what comes out")),
    ("models", LeftOut("run the model's server as an application")),
    ("name", Needless),
    ("networks", LeftOut(NAMESPACE)),
    ("secrets", Mapped),
    ("services", Mapped),
    ("version", Needless),
    ("volumes", LeftOut(FILES)),
];

/// `None` for what no compose file has.
pub(super) fn fate(key: &str) -> Option<Fate> {
    find(OF_SERVICE, key)
}

/// The same for keys of `deploy`.
pub(super) fn fate_in_deploy(key: &str) -> Option<Fate> {
    find(OF_DEPLOY, key)
}

/// The same for keys of the file itself.
pub(super) fn fate_at_top(key: &str) -> Option<Fate> {
    find(AT_TOP, key)
}

fn find(fates: &[(&str, Fate)], key: &str) -> Option<Fate> {
    fates.iter().find(|(name, _)| *name == key).map(|(_, fate)| *fate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_one_fate_and_keys_stand_in_order() {
        for fates in [OF_SERVICE, OF_DEPLOY, AT_TOP] {
            assert!(fates.windows(2).all(|pair| pair[0].0 < pair[1].0), "{fates:?}");
        }
        assert_eq!((fate("privileged"), fate("privilegd")), (Some(LeftOut(SANDBOX)), None));
    }
}
