//! Which instances run where, and in which state.
//!
//! The problem (Carrera 5.3.1): nodes with CPU and memory; applications with memory per instance, bounds and a curve
//! utility(CPU); find the instances and their loads such that the utilities, sorted from the worst, are lexicographically
//! as great as can be, with the fewest changes. It is NP-hard. The way from a snapshot to a plan:
//!
//! | step | room |
//! | --- | --- |
//! | what is desired, what was learnt, how hard to search | [`Policy`], [`Iterations`] |
//! | names become indices; what no placement can exceed, and what each must keep | [`problem`] |
//! | a better placement near the current one, with the best loads for it | [`solve`](mod@solve) |
//! | which jobs run beside it and where, and what that asks of instances | `together` |
//! | the older algorithms, for comparison | [`baselines`] |
//! | which instances may sleep, how deep, and how much memory is kept free | `standby` |
//! | indices become ordered actions on named instances and jobs | `steps` |
//! | why; why not there; what another goal, node or load would do | `explain` |
//! | which applications change places for nothing, and are doubted for that the next time | [`restless`] |
//!
//! Each room uses those above it and none below. This file has the way through them.
//!
//! A change has a cost in utility, from what starting and resuming were measured to take, and is made only when it gains
//! more. That is the only damping: there are no cooldown timers, and a stable snapshot gives an empty plan.

pub mod baselines;
mod explain;
mod policy;
pub mod problem;
pub mod restless;
pub mod solve;
mod standby;
mod steps;
mod together;

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod noise_tests;
#[cfg(test)]
mod plan_tests;
#[cfg(test)]
mod robust_tests;

use std::borrow::Cow;

use weal_model::{AppName, NodeName, Plan, Report, Snapshot, WhyNode};

use baselines::nested_loops::{Objective, equal_shares, nested_loops};
pub use explain::{Shift, WhatIf};
pub use policy::{AppCosts, Iterations, Policy};
use problem::Problem;
use problem::translate::Translation;
pub(crate) use problem::translate::asleep_memory;
use solve::{Solution, solve};
pub(crate) use standby::SPARE_CPU;
pub use weal_model::Algorithm;

/// Where everything should be, and why.
///
/// The plan belongs to this snapshot: its actions are ordered such that what frees memory comes before what takes it. A plan
/// of a stable snapshot has no actions. Nothing is planned, and a note says why, when no node answers.
pub fn plan(snapshot: &Snapshot, policy: &Policy, budget: Iterations) -> (Plan, Report) {
    let (attempt, _) = settle(snapshot, policy, budget);
    (attempt.plan, attempt.report)
}

/// The attempt that becomes the plan, and the policy that it was made by: `policy`, or one that holds more applications where they are.
fn settle<'a>(snapshot: &Snapshot, policy: &'a Policy, budget: Iterations) -> (Attempt, Cow<'a, Policy>) {
    let first = attempt(snapshot, policy, budget);
    let again = |held: &[AppName]| {
        let mut patient = policy.clone();
        patient.held.extend(held.iter().cloned());
        (attempt(snapshot, &patient, budget), Cow::Owned(patient))
    };
    // Whose place is not free before others have gone waits for the next plan with all that it has.
    if !first.bereft.is_empty() {
        return again(&first.bereft);
    }
    // Two that wait for each other never go: nobody else may be left without anything because of them.
    if first.without_any > 0 && !first.in_the_way.is_empty() {
        let second = again(&first.in_the_way);
        if second.0.without_any < first.without_any {
            return second;
        }
    }
    (first, Cow::Borrowed(policy))
}

/// Why `app`, which the pool has, is or is not on `node`: the problem solved as a plan would solve it, with those held that the plan would hold.
pub fn why_node(snapshot: &Snapshot, policy: &Policy, budget: Iterations, app: &AppName, node: &NodeName) -> WhyNode {
    let (_, policy) = settle(snapshot, policy, budget);
    let translation = translated(snapshot, &policy);
    let mut solution = solve_with(&translation.problem, policy.algorithm, budget.0);
    together::place(&translation, &policy, &mut solution);
    explain::why_node(&translation, &policy, &solution, app, node)
}

/// What a change would do: plans for the world as it is and for the changed one, with the same budget.
pub fn what_if(is: (&Snapshot, &Policy), changed: (&Snapshot, &Policy), budget: Iterations) -> WhatIf {
    explain::compare(plan(is.0, is.1, budget), plan(changed.0, changed.1, budget))
}

/// A placement by the given algorithm.
pub fn solve_with(problem: &Problem, algorithm: Algorithm, budget: u32) -> Solution {
    match algorithm {
        Algorithm::Weal => solve(problem, budget),
        Algorithm::Thesis => nested_loops(problem, Objective::Utility, budget),
        Algorithm::Demand => nested_loops(problem, Objective::SatisfiedDemand, budget),
        Algorithm::Static => equal_shares(problem, true),
        Algorithm::Autoscaler => equal_shares(problem, false),
    }
}

/// A plan, and what is wrong with it.
struct Attempt {
    plan: Plan,
    report: Report,
    /// Applications with less than their fewest instances although they have more now.
    bereft: Vec<AppName>,
    /// How many have nothing at all.
    without_any: usize,
    /// Who runs and waits for others to go.
    in_the_way: Vec<AppName>,
}

fn attempt(snapshot: &Snapshot, policy: &Policy, budget: Iterations) -> Attempt {
    let translation = translated(snapshot, policy);
    if translation.nodes.is_empty() {
        let (plan, report) = keep(snapshot, "no node answers: everything stays as it is");
        return Attempt { plan, report, bereft: Vec::new(), without_any: 0, in_the_way: Vec::new() };
    }
    let mut solution = solve_with(&translation.problem, policy.algorithm, budget.0);
    let jobs = together::place(&translation, policy, &mut solution);
    let (steps, jobs) = steps::of(&translation, snapshot, policy, &mut solution, jobs);
    let plan = Plan {
        generation: snapshot.generation,
        actions: steps.reasons.iter().map(|reason| reason.action.clone()).collect(),
        ahead: steps.ahead(),
        placement: steps.placement(&translation, &solution),
        shares: steps.shares(&translation, &solution),
        reserves: standby::reserves(&translation, policy),
    };
    let (bereft, without_any) = (steps.bereft(&translation), steps.without_any(&translation));
    let in_the_way = steps.in_the_way(&translation);
    let report = explain::report(&translation, snapshot, policy, &solution, steps, jobs);
    Attempt { plan, report, bereft, without_any, in_the_way }
}

/// The problem that a snapshot and a policy pose.
fn translated<'a>(snapshot: &'a Snapshot, policy: &'a Policy) -> Translation<'a> {
    let mut translation = Translation::of(snapshot, policy);
    standby::limit_instances(&mut translation, policy);
    translation
}

fn keep(snapshot: &Snapshot, why: &str) -> (Plan, Report) {
    let plan = Plan { generation: snapshot.generation, ..Plan::default() };
    let report = Report { generation: snapshot.generation, notes: vec![why.to_owned()], ..Report::default() };
    (plan, report)
}
