//! The node agent with real processes, under every isolation that this machine offers.
//!
//! Each case is a function over a [`Bench`]: an agent in a process of its own with a fresh state directory. It runs under
//! plain processes, and under the hybrid layout and cgroup v2 where they can be used; where cgroup v2 cannot, `vm.rs`
//! boots a kernel that has it and runs the same cases inside. Those that fill the machine's swap or use up its memory have a
//! machine each.

mod all_cases;
mod bench;
mod cases;
mod faults;
mod images;
mod jobs;
mod listening;
mod sleep;
mod survival;
mod vm;

use bench::Bench;

macro_rules! under_every_isolation {
    ($($file:ident::$case:ident),* $(,)?) => {
        mod none {
            $(#[test] fn $case() { crate::run("none", crate::$file::$case); })*
        }
        mod hybrid {
            $(#[test] fn $case() { crate::run("cgroup-hybrid", crate::$file::$case); })*
        }
        mod v2 {
            $(#[test] fn $case() { crate::run("cgroup-v2", crate::$file::$case); })*
        }
    };
}

under_every_isolation!(
    cases::an_instance_becomes_ready_answers_and_leaves_nothing_behind,
    cases::one_that_ignores_sigterm_is_killed_after_its_stop_timeout,
    cases::detached_children_do_not_survive_a_stop,
    cases::a_missing_binary_is_named,
    cases::one_that_exits_at_once_backs_off_and_what_it_wrote_stays_in_its_log,
    cases::one_that_never_gets_healthy_is_said_to,
    cases::a_flooded_log_stays_bounded_and_readable,
    cases::one_that_leaks_past_its_memory_limit_is_killed_and_restarted,
    survival::instances_survive_the_agent_and_are_adopted,
    survival::an_instance_that_ended_without_agent_is_noticed,
    survival::a_killed_shim_is_replaced_and_its_instance_lives,
    survival::a_shim_that_cannot_be_replaced_at_once_is_replaced_later,
    survival::a_shim_that_is_late_is_waited_for,
    survival::a_shim_that_starts_late_starts_its_instance_once,
    cases::a_health_command_lives_in_its_instances_groups,
    cases::an_instance_is_confined_and_so_is_its_health_command,
    cases::a_stranger_at_its_port_gets_no_requests,
    listening::a_stranger_in_the_place_of_one_that_serves_is_noticed_at_the_next_health_check,
    listening::a_stranger_that_takes_datagrams_in_the_place_of_one_is_noticed_where_some_are_sent,
    listening::one_that_closes_its_listener_is_replaced_and_each_time_later,
    listening::an_instance_has_256_processes_at_most_and_its_user_is_told,
    cases::one_that_stops_answering_is_replaced_after_a_while,
    survival::the_next_agent_knows_how_one_ended_that_waits_to_be_started,
    cases::the_status_of_a_program_of_many_threads_is_told,
    cases::cpu_seconds_match_what_was_burnt,
    jobs::a_run_ends_once_and_its_output_outlives_it,
    jobs::a_run_that_ends_while_no_agent_is_there_is_told_by_the_next,
    jobs::a_program_that_cannot_be_run_is_the_jobs_own_fault,
    jobs::the_tasks_of_a_gang_share_their_inputs_and_the_last_brings_the_results,
    cases::a_suspended_instance_uses_no_cpu_and_goes_on,
    survival::a_killed_agent_leaves_no_half_frozen_instance,
    cases::a_repeated_start_changes_nothing_but_what_needs_no_new_process,
    survival::stop_all_works_without_an_agent,
    survival::an_agent_killed_in_the_middle_of_a_start_leaves_one_instance_or_none,
    cases::parking_pages_out_or_says_why_not,
    cases::cpu_limits_hold_where_they_can,
    cases::instances_run_as_their_user,
    cases::what_left_its_instance_is_ended_by_its_user,
    survival::an_instance_whose_record_cannot_be_read_is_ended,
    survival::an_instance_whose_record_was_removed_while_no_agent_lived_is_ended,
    survival::an_agent_that_ends_writes_down_again_what_was_removed,
    survival::what_a_removed_state_folder_leaves_is_ended_with_its_groups,
    cases::the_agent_comes_before_instances_and_leaves_no_group,
    sleep::fifty_callers_wake_one_instance_once,
    sleep::one_that_is_named_is_woken_although_another_is_awake,
    sleep::the_wake_socket_answers_nothing_else,
    sleep::a_sleeper_that_is_killed_is_started_again_for_who_asks,
    sleep::an_agent_killed_in_any_transition_leaves_it_awake_or_asleep,
    sleep::a_tree_that_forks_while_it_is_frozen_stands_still,
    sleep::ten_thousand_mappings_sleep_and_wake,
    sleep::a_hook_renews_what_slept_too_long,
    sleep::what_it_needs_is_remembered_over_the_agent,
    sleep::a_warm_sleeper_keeps_what_it_needs,
    sleep::a_health_check_that_was_underway_holds_nobody_up,
    sleep::one_that_was_only_suspended_and_was_paged_out_by_others_is_read_ahead,
    sleep::more_than_the_swap_is_never_begun,
    sleep::what_sleeps_in_swap_leaves_its_nodes_memory_to_others,
    sleep::fifty_applications_wake_at_once,
    sleep::a_purge_that_a_wake_breaks_off_is_refused_because_it_is_wanted,
);

macro_rules! alone {
    ($($case:ident on $machine:expr),* $(,)?) => {
        mod alone {
            mod on_unified {
                $(#[test] fn $case() {
                    crate::vm::alone(concat!("on_unified::", stringify!($case)), &$machine, crate::faults::$case);
                })*
            }
            mod on_hybrid {
                $(#[test] fn $case() {
                    let machine = crate::vm::VirtualMachine { layout: "hybrid", ..$machine };
                    crate::vm::alone(concat!("on_hybrid::", stringify!($case)), &machine, crate::faults::$case);
                })*
            }
        }
    };
}

alone!(
    a_swap_that_fills_up_in_the_middle_of_a_purge_leaves_it_suspended_and_whole on crate::faults::SMALL_SWAP,
    it_sleeps_and_wakes_whole_while_the_machine_is_short_of_memory on crate::faults::LITTLE_MEMORY,
    a_slow_disk_under_the_swap_makes_it_slow_and_nothing_else on crate::faults::SLOW_DISK,
    a_reserve_is_kept_free_by_parking_who_has_slept_longest on crate::faults::SOME_MEMORY,
);

/// Runs `case`, unless this machine cannot have that isolation.
fn run(kind: &str, case: fn(&Bench)) {
    match Bench::new(kind) {
        Some(bench) => case(&bench),
        None => weal_testing::skip(format_args!("this machine does not offer {kind} to this user")),
    }
}
