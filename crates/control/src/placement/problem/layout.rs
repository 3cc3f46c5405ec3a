//! A placement under construction: which instances are where, and the load that each node carries for each application.
//!
//! Instances of an application on a node are one *edge* of the bipartite graph between applications and nodes, with the
//! number of instances and the CPU that they get. Everything that the search asks is answered without a scan of the pool.

use super::dense::Problem;

/// The instances of one application on one node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Edge {
    /// The application.
    pub app: u32,
    /// The node.
    pub node: u32,
    /// How many instances. Invariant: an edge of a list has at least 1.
    pub count: u32,
    /// CPU that they get together, in cores. Invariant: within `0 ..= count * instance_cpu`.
    pub load: f64,
}

/// Why an instance cannot be added or removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Obstacle {
    /// The node has not enough memory for it.
    Memory,
    /// The application has its most instances.
    MaxInstances,
    /// The application is on its most nodes.
    MaxNodes,
    /// The node has its most instances of it.
    PerNode,
    /// The node is not among those allowed.
    NotAllowed,
    /// This application must not be there as well.
    Apart(u32),
    /// This application must be there as well and is not.
    Together(u32),
    /// The CPU that every instance must get is not there.
    MinCpu,
    /// It would fall below its fewest instances or nodes.
    MinInstances,
    /// It is pinned or in manual mode.
    Fixed,
}

/// Which instances are where, with their loads.
#[derive(Debug, Clone)]
pub struct Layout {
    edges: Vec<Edge>,
    vacant: Vec<u32>,
    by_app: Vec<Vec<u32>>,
    by_node: Vec<Vec<u32>>,
    instances: Vec<u32>,
    free_memory: Vec<u64>,
    /// Per node: CPU that every instance there must get, summed.
    reserved: Vec<f64>,
    /// Per node: CPU not given out.
    spare: Vec<f64>,
    /// Per application: CPU given.
    given: Vec<f64>,
    epsilon: f64,
}

impl Layout {
    /// Nothing anywhere.
    pub fn empty(problem: &Problem) -> Self {
        Self {
            edges: Vec::new(),
            vacant: Vec::new(),
            by_app: vec![Vec::new(); problem.apps.len()],
            by_node: vec![Vec::new(); problem.nodes.len()],
            instances: vec![0; problem.apps.len()],
            free_memory: problem.nodes.iter().map(|node| node.memory).collect(),
            reserved: vec![0.0; problem.nodes.len()],
            spare: problem.nodes.iter().map(|node| node.cpu).collect(),
            given: vec![0.0; problem.apps.len()],
            epsilon: problem.epsilon(),
        }
    }

    /// [`Problem::epsilon`], which takes a scan of the pool to know.
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// What runs now, without loads. Instances that do not fit any more (a node lost memory) are there all the same, and
    /// free memory saturates at zero.
    pub fn current(problem: &Problem) -> Self {
        let mut layout = Self::empty(problem);
        for (m, app) in (0u32..).zip(&problem.apps) {
            for &(n, count) in &app.current {
                for _ in 0..count {
                    layout.add(problem, m, n);
                }
            }
        }
        layout
    }

    /// The edge between `m` and `n`, if there is any instance.
    pub fn find(&self, m: u32, n: u32) -> Option<u32> {
        let (few, same) = (&self.by_node[n as usize], &self.by_app[m as usize]);
        if few.len() <= same.len() {
            few.iter().copied().find(|&edge| self.edges[edge as usize].app == m)
        } else {
            same.iter().copied().find(|&edge| self.edges[edge as usize].node == n)
        }
    }

    /// The edge with this index.
    pub fn edge(&self, edge: u32) -> Edge {
        self.edges[edge as usize]
    }

    /// All edges, application by application.
    pub fn all(&self) -> impl Iterator<Item = Edge> {
        self.by_app.iter().flatten().map(|&edge| self.edge(edge))
    }

    /// The edges of an application.
    pub fn of_app(&self, m: u32) -> &[u32] {
        &self.by_app[m as usize]
    }

    /// The edges of a node.
    pub fn on_node(&self, n: u32) -> &[u32] {
        &self.by_node[n as usize]
    }

    /// How many instances an application has.
    pub fn instances(&self, m: u32) -> u32 {
        self.instances[m as usize]
    }

    /// How many instances of `m` are on `n`.
    pub fn count(&self, m: u32, n: u32) -> u32 {
        self.find(m, n).map_or(0, |edge| self.edge(edge).count)
    }

    /// Memory that is free on `n`, in bytes.
    pub fn free_memory(&self, n: u32) -> u64 {
        self.free_memory[n as usize]
    }

    /// CPU that is not given out on `n`.
    pub fn spare(&self, n: u32) -> f64 {
        self.spare[n as usize]
    }

    /// CPU given to `m`.
    pub fn given(&self, m: u32) -> f64 {
        self.given[m as usize]
    }

    /// Whether one more instance of `m` may be on `n`, apart from what must be together with it.
    pub fn may_add(&self, problem: &Problem, m: u32, n: u32) -> Result<(), Obstacle> {
        let app = &problem.apps[m as usize];
        if self.free_memory(n) < app.memory {
            return Err(Obstacle::Memory);
        }
        if self.instances(m) >= app.instances.1 {
            return Err(Obstacle::MaxInstances);
        }
        if !app.allows(n) {
            return Err(Obstacle::NotAllowed);
        }
        match self.count(m, n) {
            0 if self.by_app[m as usize].len() >= app.nodes.1 as usize => return Err(Obstacle::MaxNodes),
            count if count >= app.per_node => return Err(Obstacle::PerNode),
            _ => {}
        }
        if app.instance_min_cpu > 0.0
            && self.reserved[n as usize] + app.instance_min_cpu > problem.nodes[n as usize].cpu + self.epsilon
        {
            return Err(Obstacle::MinCpu);
        }
        if let Some(&other) = app.apart.iter().find(|&&other| self.count(other, n) > 0) {
            return Err(Obstacle::Apart(other));
        }
        if let Some(&other) = app.together.iter().find(|&&other| self.count(other, n) == 0) {
            return Err(Obstacle::Together(other));
        }
        Ok(())
    }

    /// Whether an instance of `m` may be on `n` once those that must be together with it are there too.
    pub fn may_add_with_companions(&self, problem: &Problem, m: u32, n: u32) -> Result<(), Obstacle> {
        let app = &problem.apps[m as usize];
        match self.may_add(problem, m, n) {
            Err(Obstacle::Together(_)) => {}
            answer => return answer,
        }
        let mut memory = app.memory;
        for &other in app.together.iter().filter(|&&other| self.count(other, n) == 0) {
            let companion = &problem.apps[other as usize];
            if companion.manual && self.instances(other) >= companion.instances.0 {
                return Err(Obstacle::Together(other));
            }
            match self.may_add(problem, other, n) {
                // Companions that need `m` itself come with it.
                Err(Obstacle::Together(third)) if third == m || app.together.contains(&third) => {}
                Err(obstacle) => return Err(obstacle),
                Ok(()) => {}
            }
            memory = memory.saturating_add(problem.apps[other as usize].memory);
        }
        if self.free_memory(n) < memory { Err(Obstacle::Memory) } else { Ok(()) }
    }

    /// Whether one instance of `m` may leave `n` for good, or, with `moving`, leave it for another node.
    pub fn may_remove(&self, problem: &Problem, m: u32, n: u32, moving: bool) -> Result<(), Obstacle> {
        let app = &problem.apps[m as usize];
        let count = self.count(m, n);
        if app.manual || (app.pinned && count <= app.current_on(n)) {
            return Err(Obstacle::Fixed);
        }
        if !moving && self.instances(m) <= app.instances.0 {
            return Err(Obstacle::MinInstances);
        }
        if count == 1 {
            if !moving && self.by_app[m as usize].len() <= app.nodes.0 as usize {
                return Err(Obstacle::MinInstances);
            }
            let needed_by = self.by_node[n as usize].iter().map(|&edge| self.edge(edge).app);
            if let Some(other) = needed_by.into_iter().find(|&other| problem.apps[other as usize].together.contains(&m)) {
                return Err(Obstacle::Together(other));
            }
        }
        Ok(())
    }

    /// Puts one instance of `m` on `n`, without any load; the caller knows that it may be there.
    pub fn add(&mut self, problem: &Problem, m: u32, n: u32) -> u32 {
        let app = &problem.apps[m as usize];
        self.instances[m as usize] += 1;
        self.free_memory[n as usize] = self.free_memory[n as usize].saturating_sub(app.memory);
        self.reserved[n as usize] += app.instance_min_cpu;
        if let Some(edge) = self.find(m, n) {
            self.edges[edge as usize].count += 1;
            return edge;
        }
        let new = Edge { app: m, node: n, count: 1, load: 0.0 };
        let edge = if let Some(edge) = self.vacant.pop() {
            self.edges[edge as usize] = new;
            edge
        } else {
            self.edges.push(new);
            self.edges.len() as u32 - 1
        };
        self.by_app[m as usize].push(edge);
        self.by_node[n as usize].push(edge);
        edge
    }

    /// Adds an instance of `m` on `n` and what must be together with it.
    pub fn add_with_companions(&mut self, problem: &Problem, m: u32, n: u32) {
        self.add(problem, m, n);
        for &other in &problem.apps[m as usize].together {
            if self.count(other, n) == 0 {
                self.add(problem, other, n);
            }
        }
    }

    /// Takes one instance of `m` off `n`; load that the others cannot carry goes with it.
    pub fn remove(&mut self, problem: &Problem, m: u32, n: u32) {
        let Some(edge) = self.find(m, n) else { return };
        let app = &problem.apps[m as usize];
        let Edge { count, load, .. } = self.edge(edge);
        let can_stay = if count == 1 { 0.0 } else { f64::from(count - 1) * app.instance_cpu };
        if load > can_stay {
            self.shift(edge, can_stay - load);
        }
        self.instances[m as usize] -= 1;
        self.reserved[n as usize] -= app.instance_min_cpu;
        self.edges[edge as usize].count -= 1;
        if count == 1 {
            self.by_app[m as usize].retain(|&other| other != edge);
            self.by_node[n as usize].retain(|&other| other != edge);
            self.vacant.push(edge);
        }
        self.recount_memory(problem, n);
    }

    // From scratch, since free memory saturates at zero on a node that holds too much.
    fn recount_memory(&mut self, problem: &Problem, n: u32) {
        let used: u64 = self.by_node[n as usize]
            .iter()
            .map(|&edge| self.edge(edge))
            .map(|edge| problem.apps[edge.app as usize].memory.saturating_mul(u64::from(edge.count)))
            .fold(0, u64::saturating_add);
        self.free_memory[n as usize] = problem.nodes[n as usize].memory.saturating_sub(used);
    }

    /// Changes the load of an edge by `cpu` cores.
    pub fn shift(&mut self, edge: u32, cpu: f64) {
        let Edge { app, node, .. } = self.edges[edge as usize];
        self.edges[edge as usize].load += cpu;
        self.spare[node as usize] -= cpu;
        self.given[app as usize] += cpu;
    }

    /// Forgets all loads.
    pub fn clear_loads(&mut self, problem: &Problem) {
        for edge in &mut self.edges {
            edge.load = 0.0;
        }
        self.given.fill(0.0);
        for (spare, node) in self.spare.iter_mut().zip(&problem.nodes) {
            *spare = node.cpu;
        }
    }

    /// CPU that the instances of an edge could still take if their node had it.
    pub fn room(&self, problem: &Problem, edge: u32) -> f64 {
        let Edge { app, count, load, .. } = self.edge(edge);
        (f64::from(count) * problem.apps[app as usize].instance_cpu - load).max(0.0)
    }

    /// Whether any node holds more memory than it has.
    pub fn fits(&self, problem: &Problem) -> bool {
        (0u32..).zip(&problem.nodes).all(|(n, node)| self.memory_used(problem, n) <= node.memory)
    }

    /// Memory that the instances of a node need.
    pub fn memory_used(&self, problem: &Problem, n: u32) -> u64 {
        let edges = self.on_node(n).iter().map(|&edge| self.edge(edge));
        edges
            .map(|edge| problem.apps[edge.app as usize].memory.saturating_mul(u64::from(edge.count)))
            .fold(0, u64::saturating_add)
    }

    /// Instances that are added and removed against what runs now, and what that costs in all.
    pub fn changes(&self, problem: &Problem) -> Changes {
        let mut changes = Changes::default();
        for (m, app) in (0u32..).zip(&problem.apps) {
            let mut kept = 0;
            for &edge in self.of_app(m) {
                let Edge { node, count, .. } = self.edge(edge);
                kept += count.min(app.current_on(node));
                let added = count.saturating_sub(app.current_on(node));
                let resumed = added.min(app.standby_on(node));
                changes.added += added;
                changes.cost += f64::from(resumed) * app.cost.resume + f64::from(added - resumed) * app.cost.start;
            }
            let removed = app.current.iter().map(|entry| entry.1).sum::<u32>() - kept;
            changes.removed += removed;
            changes.cost += f64::from(removed) * app.cost.remove;
        }
        changes
    }
}

/// What a layout changes against the current placement.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Changes {
    /// Instances started or resumed.
    pub added: u32,
    /// Instances stopped or suspended.
    pub removed: u32,
    /// What that costs, in utility.
    pub cost: f64,
}

impl Changes {
    /// The distance of Carrera eq. 5.1.
    pub fn count(&self) -> u32 {
        self.added + self.removed
    }
}
