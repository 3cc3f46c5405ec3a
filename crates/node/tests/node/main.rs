//! The node agent with real processes, under every isolation that this machine offers.
//!
//! Each case is a function over a [`Bench`]: an agent in a process of its own with a fresh state directory. It runs under
//! plain processes, and under the hybrid layout and cgroup v2 where they can be used; where cgroup v2 cannot, `vm.rs`
//! boots a kernel that has it and runs the same cases inside.

mod bench;
mod cases;
mod vm;

use std::io::Write;

use bench::Bench;

macro_rules! under_every_isolation {
    ($($case:ident),* $(,)?) => {
        mod none {
            $(#[test] fn $case() { crate::run("none", crate::cases::$case); })*
        }
        mod hybrid {
            $(#[test] fn $case() { crate::run("cgroup-hybrid", crate::cases::$case); })*
        }
        mod v2 {
            $(#[test] fn $case() { crate::run("cgroup-v2", crate::cases::$case); })*
        }
    };
}

under_every_isolation!(
    an_instance_becomes_ready_answers_and_leaves_nothing_behind,
    one_that_ignores_sigterm_is_killed_after_its_stop_timeout,
    detached_children_do_not_survive_a_stop,
    a_missing_binary_is_named,
    one_that_exits_at_once_backs_off_with_its_last_words,
    one_that_never_gets_healthy_is_said_to,
    a_flooded_log_stays_bounded_and_readable,
    one_that_leaks_past_its_memory_limit_is_killed_and_restarted,
    instances_survive_the_agent_and_are_adopted,
    an_instance_that_ended_without_agent_is_noticed,
    a_killed_shim_is_replaced_and_its_instance_lives,
    cpu_seconds_match_what_was_burnt,
    a_suspended_instance_uses_no_cpu_and_goes_on,
    a_killed_agent_leaves_no_half_frozen_instance,
    a_repeated_start_changes_nothing_but_what_needs_no_new_process,
    stop_all_works_without_an_agent,
    an_agent_killed_in_the_middle_of_a_start_leaves_one_instance_or_none,
    parking_pages_out_or_says_why_not,
    cpu_limits_hold_where_they_can,
    instances_run_as_their_user,
);

/// Runs `case`, unless this machine cannot have that isolation.
fn run(kind: &str, case: fn(&Bench)) {
    match Bench::new(kind) {
        Some(bench) => case(&bench),
        None => {
            // Past the capture of the test harness: a skip shall be seen.
            let _ = writeln!(std::io::stderr(), "skipped: this machine does not offer {kind} to this user");
        }
    }
}
