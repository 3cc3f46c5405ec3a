//! Why an application is on a node, or not: the solution, tried with one instance there.

use weal_model::{AppName, Bytes, NodeName, NodeVerdict, WhyNode};

use super::HELD;
use crate::placement::policy::Policy;
use crate::placement::problem::layout::{Layout, Obstacle};
use crate::placement::problem::translate::Translation;
use crate::placement::solve::Solution;
use crate::placement::solve::try_instead;

/// Why `app`, which the pool has, is or is not on `node` under `solution`.
pub(in crate::placement) fn why_node(
    translation: &Translation,
    policy: &Policy,
    solution: &Solution,
    app: &AppName,
    node: &NodeName,
) -> WhyNode {
    let answer = |verdict, sentences| WhyNode { node: node.clone(), verdict, sentences };
    let (Some(m), Some(n)) = (translation.app_index(app), translation.node_index(node)) else {
        return answer(NodeVerdict::NoNode, vec![no_node(translation, policy, node)]);
    };
    let (verdict, sentences) = Question { translation, policy, solution, m, n }.answer();
    answer(verdict, sentences)
}

fn no_node(translation: &Translation, policy: &Policy, node: &NodeName) -> String {
    if policy.pool.nodes.iter().any(|spec| spec.name == *node) {
        return format!("Node {node} does not answer, so nothing is placed there.");
    }
    let names: Vec<&str> = translation.nodes.iter().map(NodeName::as_str).collect();
    format!("The pool has no node {node}: there are {}.", names.join(", "))
}

struct Question<'a> {
    translation: &'a Translation<'a>,
    policy: &'a Policy,
    solution: &'a Solution,
    m: u32,
    n: u32,
}

impl Question<'_> {
    fn answer(&self) -> (NodeVerdict, Vec<String>) {
        let (problem, layout) = (&self.translation.problem, &self.solution.layout);
        let (app, name) = (&problem.apps[self.m as usize], self.name(self.m));
        let node = &self.translation.nodes[self.n as usize];
        let planned = layout.count(self.m, self.n);
        if planned > 0 || app.current_on(self.n) > 0 {
            return (NodeVerdict::There, self.there(planned));
        }
        if !self.policy.algorithm.knows_goals() {
            let how = self.policy.algorithm.word();
            return (
                NodeVerdict::Forbidden,
                vec![format!("Placement is `{how}`, which has put {name} elsewhere and weighs no gain.")],
            );
        }
        if self.policy.held.contains(name) {
            return (NodeVerdict::Forbidden, vec![format!("{name} stays as it is for now: {HELD}.")]);
        }
        if app.manual {
            let text = format!("weal may not change the placement of {name} (`manual`, or `control` is off).");
            return (NodeVerdict::Forbidden, vec![text]);
        }
        // A rule of the config first: it holds whatever room there is.
        if !app.allows(self.n) {
            return (NodeVerdict::Forbidden, vec![self.forbidden(Obstacle::NotAllowed)]);
        }
        if let Some(&other) = app.apart.iter().find(|&&other| layout.count(other, self.n) > 0) {
            return (NodeVerdict::Forbidden, vec![self.forbidden(Obstacle::Apart(other))]);
        }
        match layout.may_add_with_companions(problem, self.m, self.n) {
            Ok(()) => {
                let mut with = layout.clone();
                with.add_with_companions(problem, self.m, self.n);
                self.weigh(with, &format!("an instance of {name} on {node}"), NodeVerdict::NoGain)
            }
            Err(Obstacle::MaxInstances | Obstacle::MaxNodes) => self.instead(),
            Err(Obstacle::Memory) => (NodeVerdict::Memory, self.memory()),
            Err(obstacle) => (NodeVerdict::Forbidden, vec![self.forbidden(obstacle)]),
        }
    }

    fn name(&self, m: u32) -> &AppName {
        &self.translation.apps[m as usize].name
    }

    fn there(&self, planned: u32) -> Vec<String> {
        let (name, node) = (self.name(self.m), &self.translation.nodes[self.n as usize]);
        let load = self.solution.layout.find(self.m, self.n).map_or(0.0, |edge| self.solution.layout.edge(edge).load);
        vec![match (planned, self.translation.problem.apps[self.m as usize].current_on(self.n)) {
            (0, _) => format!("{name} is on {node}, and the plan is to take it off there."),
            (_, 0) => format!("{name} is about to be started on {node}, with {load:.2} CPU."),
            (1, _) => format!("{name} is on {node}, where the plan gives it {load:.2} CPU."),
            (more, _) => format!("{name} is on {node} with {more} instances, and the plan gives them {load:.2} CPU."),
        }]
    }

    // What the node's memory is taken by.
    fn memory(&self) -> Vec<String> {
        let (problem, layout) = (&self.translation.problem, &self.solution.layout);
        let node = &self.translation.nodes[self.n as usize];
        let need = Bytes(problem.apps[self.m as usize].memory);
        let holders = layout.on_node(self.n).iter().map(|&edge| {
            let edge = layout.edge(edge);
            let memory = Bytes(problem.apps[edge.app as usize].memory.saturating_mul(u64::from(edge.count)));
            format!("{} holds {memory}", self.name(edge.app))
        });
        let holders: Vec<String> = holders.collect();
        let taken = if holders.is_empty() { String::new() } else { format!(": {}", holders.join(", ")) };
        vec![
            format!(
                "An instance of {} needs {need} of memory, and {node} has {} of its {} free{taken}.",
                self.name(self.m),
                Bytes(layout.free_memory(self.n)),
                Bytes(problem.nodes[self.n as usize].memory),
            ),
            format!("More memory on {node}, a smaller `memory` of the application, or less beside it would change that."),
        ]
    }

    fn forbidden(&self, obstacle: Obstacle) -> String {
        let (name, node) = (self.name(self.m), &self.translation.nodes[self.n as usize]);
        let spec = self.translation.apps[self.m as usize];
        match obstacle {
            Obstacle::NotAllowed => {
                let nodes: Vec<&str> = spec.nodes.iter().flatten().map(NodeName::as_str).collect();
                format!("The config allows {name} only on {} (`nodes`).", nodes.join(", "))
            }
            Obstacle::Apart(other) => {
                format!("The config keeps {name} apart from {}, which is on {node} (`apart`).", self.name(other))
            }
            Obstacle::Together(other) => {
                format!("{name} must be together with {}, which cannot be on {node} (`together`).", self.name(other))
            }
            Obstacle::MinCpu => format!("{node} does not have the CPU that each instance of {name} must get."),
            _ => format!("{name} may not have another instance on {node} (`per-node`)."),
        }
    }

    // It has all instances that it may have: is there one that would do better here?
    fn instead(&self) -> (NodeVerdict, Vec<String>) {
        let (problem, layout) = (&self.translation.problem, &self.solution.layout);
        let (name, node) = (self.name(self.m), &self.translation.nodes[self.n as usize]);
        let most = problem.apps[self.m as usize].instances.1;
        let from: Vec<u32> = layout.of_app(self.m).iter().map(|&edge| layout.edge(edge).node).collect();
        let first = format!("{name} has {most} of {most} instances (`instances.max`), so one would have to move to {node}.");
        let mut best: Option<(f64, NodeVerdict, Vec<String>)> = None;
        let mut why_not = None;
        for old in from {
            let mut with = layout.clone();
            if let Err(obstacle) = layout.may_remove(problem, self.m, old, true) {
                why_not = Some(obstacle);
                continue;
            }
            with.remove(problem, self.m, old);
            if let Err(obstacle) = with.may_add_with_companions(problem, self.m, self.n) {
                why_not = Some(obstacle);
                continue;
            }
            with.add_with_companions(problem, self.m, self.n);
            let what = format!("{name} on {node} instead of {}", self.translation.nodes[old as usize]);
            let reached = try_instead(problem, self.solution, with.clone()).utilities[self.m as usize];
            let (verdict, sentences) = self.weigh(with, &what, NodeVerdict::MaxInstances);
            if best.as_ref().is_none_or(|(utility, ..)| reached > *utility) {
                best = Some((reached, verdict, sentences));
            }
        }
        match (best, why_not) {
            (Some((_, verdict, sentences)), _) => (verdict, std::iter::once(first).chain(sentences).collect()),
            (None, Some(Obstacle::Memory)) => (NodeVerdict::Memory, std::iter::once(first).chain(self.memory()).collect()),
            (None, Some(Obstacle::Fixed)) => {
                (NodeVerdict::Forbidden, vec![first, "The config pins its instances where they are (`pinned`).".into()])
            }
            (None, Some(obstacle)) => (NodeVerdict::Forbidden, vec![first, self.forbidden(obstacle)]),
            (None, None) => (NodeVerdict::MaxInstances, vec![first]),
        }
    }

    // What another placement would gain, against what it would cost.
    fn weigh(&self, with: Layout, what: &str, no_gain: NodeVerdict) -> (NodeVerdict, Vec<String>) {
        let tried = try_instead(&self.translation.problem, self.solution, with);
        let lowest = |utilities: &[f64]| utilities.iter().copied().fold(f64::INFINITY, f64::min);
        let (before, after) = (self.solution.utilities[self.m as usize], tried.utilities[self.m as usize]);
        let expected = format!(
            "With {what}, the plan expects {} at a utility of {after:+.2} instead of {before:+.2}, and the worst off of all at {:+.2} \
             instead of {:+.2}.",
            self.name(self.m),
            lowest(&tried.utilities),
            lowest(&self.solution.utilities),
        );
        let gained: f64 =
            tried.utilities.iter().zip(&self.solution.utilities).map(|(with, without)| (with - without).max(0.0)).sum();
        let verdict = if tried.taken { NodeVerdict::Gain } else { no_gain };
        let because = if tried.taken {
            format!("That is worth the {:.2} of utility that the change costs: a coming plan may do it.", tried.cost)
        } else if gained <= self.translation.problem.tolerance {
            "No application would gain by it.".to_owned()
        } else if gained <= tried.cost {
            format!(
                "That is not worth the {:.2} of utility that the change costs over {:.0} s.",
                tried.cost, self.policy.horizon_s
            )
        } else {
            "The application that is worst off gains nothing by it, or less than the measurements can tell.".to_owned()
        };
        (verdict, vec![expected, because])
    }
}

#[cfg(test)]
mod tests {
    use weal_model::InstanceState::Ready;
    use weal_model::{AppSpec, Cpu, PoolSpec, Utility};

    use super::*;
    use crate::placement::fixtures::{app, node_name, pool, snapshot};
    use crate::placement::{self, Iterations};
    use crate::utility::Curve;

    fn ask(
        pool: &PoolSpec,
        running: &[(&str, usize, weal_model::InstanceState)],
        wants: f64,
        node: &str,
    ) -> (NodeVerdict, String) {
        let mut policy = Policy::new(pool.clone());
        let curve = Curve::through([(Cpu(0.0), Utility(-1.0)), (Cpu(wants), Utility(1.0))]);
        policy.demands.insert("search".into(), curve);
        let seen = snapshot(pool, running);
        let why = placement::why_node(&seen, &policy, Iterations::default(), &"search".into(), &node.into());
        (why.verdict, why.sentences.join(" "))
    }

    #[test]
    fn each_reason_is_told_with_its_numbers() {
        let on = |node: usize| [("search-1", node, Ready), ("shop-1", 1 - node, Ready)];
        let two = pool(2, vec![app("search", 600, 1, 2), app("shop", 600, 1, 1)]);
        assert_eq!(ask(&two, &on(0), 1.0, "n0").0, NodeVerdict::There);
        assert_eq!(ask(&two, &on(0), 1.0, "n7"), (NodeVerdict::NoNode, "The pool has no node n7: there are n0, n1.".to_owned()));
        let (verdict, text) = ask(&two, &on(0), 9.0, "n1");
        assert_eq!(verdict, NodeVerdict::Memory);
        assert!(text.starts_with("An instance of search needs 600MiB of memory, and n1 has 400MiB of its"), "{text}");
        assert!(text.contains("shop holds 600MiB"), "{text}");

        let mut search: AppSpec = app("search", 100, 1, 2);
        search.apart.insert("shop".into());
        let (verdict, text) = ask(&pool(2, vec![search, app("shop", 100, 1, 1)]), &on(0), 9.0, "n1");
        assert_eq!((verdict, text.contains("apart from shop")), (NodeVerdict::Forbidden, true), "{text}");

        let mut search: AppSpec = app("search", 100, 1, 2);
        search.nodes = Some([node_name(0)].into());
        let (verdict, text) = ask(&pool(2, vec![search, app("shop", 100, 1, 1)]), &on(0), 9.0, "n1");
        assert_eq!((verdict, text.as_str()), (NodeVerdict::Forbidden, "The config allows search only on n0 (`nodes`)."));

        let (verdict, text) = ask(&pool(2, vec![app("search", 100, 1, 1), app("shop", 100, 1, 1)]), &on(0), 1.0, "n1");
        assert_eq!(verdict, NodeVerdict::MaxInstances);
        assert!(text.contains("1 of 1 instances") && text.contains("No application would gain by it"), "{text}");

        let (verdict, text) = ask(&pool(2, vec![app("search", 100, 1, 2), app("shop", 100, 1, 1)]), &on(0), 1.0, "n1");
        assert_eq!((verdict, text.contains("No application would gain by it")), (NodeVerdict::NoGain, true), "{text}");

        let (verdict, text) = ask(&pool(2, vec![app("search", 100, 1, 2), app("shop", 100, 1, 1)]), &on(0), 4.0, "n1");
        assert_eq!((verdict, text.contains("about to be started")), (NodeVerdict::There, true), "{text}");
    }
}
