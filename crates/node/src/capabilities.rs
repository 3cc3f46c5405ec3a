//! What can be done on this machine: the data of the planner, `weal status` and `weal doctor`.

use weal_host::{Proc, swap};
use weal_protocol::{Capabilities, NodeOrigin};
use weal_sandbox::ConfinementSupport;

use crate::isolation::detect::{System, foresee};
use crate::isolation::{Isolation, Kind, Loss};
use crate::ladder::Ladder;
use crate::paging;

/// What an agent with this isolation can do now: it changes as others fill the swap.
pub fn of(isolation: &dyn Isolation, confinement: ConfinementSupport, proc: &Proc) -> Capabilities {
    let ladder = Ladder::look(proc, &swap::of_this_machine(), paging::may_advise() || isolation.reclaims());
    assemble(isolation.kind(), isolation.losses(), &ladder, confinement)
}

/// What an agent could do if this user started one now, and how it could sleep better. Changes nothing, so what shows only when control groups
/// are used is not known yet.
pub fn of_this_machine() -> (Capabilities, Ladder) {
    let layout = foresee(&System::default());
    let ladder = Ladder::look(&Proc::system(), &swap::of_this_machine(), paging::may_advise() || layout.reclaims());
    (assemble(layout.kind(), &layout.losses(), &ladder, ConfinementSupport::probe()), ladder)
}

fn assemble(kind: Kind, losses: &[Loss], ladder: &Ladder, confinement: ConfinementSupport) -> Capabilities {
    let divides_cpu = !losses.iter().any(Loss::is_of_cpu);
    let mut sentences: Vec<String> = losses.iter().map(ToString::to_string).collect();
    if !confinement.is_root {
        sentences.push("not root: instances cannot run as another user".to_owned());
    }
    sentences.extend(confinement.missing().into_iter().map(str::to_owned));
    if let Some(missing) = ladder.missing {
        sentences.push(format!("instances can be suspended, but not paged out: {missing}"));
    }
    Capabilities {
        isolation: kind.as_str().to_owned(),
        nodes: NodeOrigin::Configured,
        rungs: ladder.rungs(),
        cpu_shares: divides_cpu,
        cpu_limits: divides_cpu,
        memory_limits: !losses.iter().any(Loss::is_of_memory),
        reserves: ladder.missing.is_none(),
        jobs: true,
        moves_jobs: false,
        losses: sentences,
    }
}

#[cfg(test)]
mod tests {
    use weal_model::{Bytes, Rung};

    use super::*;
    use crate::isolation::{plain, unified};
    use crate::ladder::Missing;

    fn ladder(missing: Option<Missing>) -> Ladder {
        Ladder { missing, swap: Bytes::gib(1), advice: Vec::new() }
    }

    fn machine(is_root: bool) -> ConfinementSupport {
        ConfinementSupport { is_root, mounts: is_root, landlock_version: 0, filter: true }
    }

    #[test]
    fn whatever_is_missing_is_a_fact_and_a_sentence() {
        let whole = assemble(
            Kind::CgroupV2,
            &unified::losses(&["cpu".into(), "memory".into(), "pids".into()]),
            &ladder(None),
            machine(true),
        );
        assert_eq!(whole, Capabilities { moves_jobs: false, ..Capabilities::all("cgroup-v2") });
        let plain = assemble(Kind::None, &plain::losses("a test"), &ladder(Some(Missing::Swap)), machine(false));
        assert_eq!((plain.cpu_limits, plain.cpu_shares, plain.memory_limits), (false, false, true), "memory is polled");
        assert_eq!((plain.rungs.as_slice(), plain.reserves), ([Rung::Suspended].as_slice(), false));
        for part in ["no cgroups: a test", "not root", "share /tmp", "wherever their user may", "not paged out: there is no swap"]
        {
            assert!(plain.losses.iter().any(|loss| loss.contains(part)), "{:?}", plain.losses);
        }
        let no_memory = assemble(Kind::CgroupV2, &unified::losses(&["cpu".into(), "pids".into()]), &ladder(None), machine(true));
        assert_eq!((no_memory.cpu_limits, no_memory.memory_limits, no_memory.losses.len()), (true, false, 1));
    }
}
