//! All cases of another layout, each in one virtual machine. They take longest; the harness, which goes by names, begins with them, so that the
//! others run beside them.

use crate::bench::Bench;
use crate::vm::{Swap, VirtualMachine, boot, say};

#[test]
fn hold_on_a_kernel_with_cgroup_v2() {
    if Bench::new("cgroup-v2").is_some() {
        return say("cgroup v2 works here: the v2 cases ran natively");
    }
    boot(&VirtualMachine { layout: "unified", memory_mib: 1536, swap: Swap::Memory }, "v2::");
}

#[test]
fn of_parking_hold_on_the_hybrid_layout_and_without_cgroups_where_there_is_swap() {
    let machine = VirtualMachine { layout: "hybrid", memory_mib: 1536, swap: Swap::Memory };
    boot(&machine, "hybrid::parking,none::parking,hybrid::one_that_leaks,hybrid::what_sleeps_in_swap");
}
