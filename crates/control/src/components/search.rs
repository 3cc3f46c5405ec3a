//! Placements that carry much: by annealing, by sampling, by rule of thumb (Stewart & Shen 5.1).

use super::service::{Placement, Service};
use crate::seeded::Seeded;

/// Temperature at the start, as a share of the saturation at hand: steps down by as much are still taken often.
const HOT: f64 = 0.1;
/// Temperature at the end: steps down by more than a thousandth are hardly taken any more.
const COLD: f64 = 0.0005;

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Searched {
    /// The best placement seen.
    pub placement: Placement,
    /// Requests per second that it carries.
    pub saturation: f64,
}

/// Everything everywhere; what cannot be replicated stands on the server where that costs least.
pub fn replicate_all(service: &Service) -> Searched {
    let servers = service.servers.len();
    let at = |home: usize| {
        let here = |s: usize| service.components.iter().map(|component| component.replicable || s == home).collect();
        Placement((0..servers).map(here).collect())
    };
    let candidates = (0..servers).map(|home| searched(service, at(home)));
    candidates.max_by(|a, b| a.saturation.total_cmp(&b.saturation)).expect("a service has servers")
}

/// The best of `count` random placements: each component on a random number of random servers.
pub fn sample(service: &Service, count: u32, seed: u64) -> Searched {
    let mut random = Seeded::new(seed);
    let candidates = (0..count.max(1)).map(|_| searched(service, drawn(service, &mut random)));
    let best = candidates.reduce(|best, next| if next.saturation > best.saturation { next } else { best });
    best.expect("at least one is drawn")
}

/// Simulated annealing from a random placement, with `count` placements examined. A step adds a replica, removes one, or moves
/// one; what carries more is kept, what carries less with a chance that falls with the loss and, geometrically, with time.
pub fn anneal(service: &Service, count: u32, seed: u64) -> Searched {
    let mut random = Seeded::new(seed);
    let mut at = searched(service, drawn(service, &mut random));
    let mut best = at.clone();
    for step in 0..count {
        let temperature = HOT * (COLD / HOT).powf(f64::from(step) / f64::from(count)) * best.saturation.max(1e-9);
        let Some(next) = neighbour(service, &at.placement, &mut random) else { continue };
        let next = searched(service, next);
        let loss = at.saturation - next.saturation;
        if loss <= 0.0 || random.chance((-loss / temperature).exp()) {
            at = next;
        }
        if at.saturation > best.saturation {
            best = at.clone();
        }
    }
    best
}

fn searched(service: &Service, placement: Placement) -> Searched {
    Searched { saturation: service.saturation(&placement), placement }
}

fn drawn(service: &Service, random: &mut Seeded) -> Placement {
    let servers = service.servers.len() as u64;
    let mut placement = Placement(vec![vec![false; service.components.len()]; servers as usize]);
    for (c, component) in service.components.iter().enumerate() {
        let replicas = if component.replicable { 1 + random.below(servers) } else { 1 };
        for _ in 0..replicas {
            placement.0[random.below(servers) as usize][c] = true;
        }
    }
    placement
}

/// One replica more, less or elsewhere; `None` when the draw leads to nothing that is allowed.
fn neighbour(service: &Service, placement: &Placement, random: &mut Seeded) -> Option<Placement> {
    let servers = service.servers.len() as u64;
    let c = random.below(service.components.len() as u64) as usize;
    let (from, to) = (random.below(servers) as usize, random.below(servers) as usize);
    let mut next = placement.clone();
    match random.below(3) {
        0 => next.0[to][c] = true,
        1 => next.0[from][c] = false,
        _ if placement.0[from][c] && !placement.0[to][c] => (next.0[from][c], next.0[to][c]) = (false, true),
        _ => return None,
    }
    (next != *placement && service.accepts(&next)).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::super::service::tests::two_components;
    use super::super::{Call, Component, Server};
    use super::*;

    /// Every placement of a small service.
    fn best_by_force(service: &Service) -> f64 {
        let (servers, components) = (service.servers.len(), service.components.len());
        let all = (0..1u32 << (servers * components)).map(|bits| {
            let here = |s: usize| (0..components).map(|c| bits >> (s * components + c) & 1 == 1).collect();
            Placement((0..servers).map(here).collect())
        });
        all.filter(|placement| service.accepts(placement)).map(|one| service.saturation(&one)).fold(0.0, f64::max)
    }

    #[test]
    fn annealing_finds_the_best_placement_of_small_services() {
        assert!((anneal(&two_components(), 3000, 1).saturation - best_by_force(&two_components())).abs() < 1e-9);
        for seed in 0..12 {
            let mut random = Seeded::new(seed);
            let component = |c: usize, random: &mut Seeded| Component {
                name: format!("c{c}"),
                per_request: random.between(0.001, 0.05),
                standing: random.between(0.0, 0.05),
                replicable: c > 0,
            };
            let components: Vec<Component> = (0..4).map(|c| component(c, &mut random)).collect();
            let calls = (1..4).map(|from| Call { from, to: 0, overhead: random.between(0.0, 0.01), delay_s: 0.0 }).collect();
            let servers = (0..4).map(|_| Server { speed: random.between(0.5, 1.5) }).collect();
            let service = Service { components, calls, servers };
            let (found, best) = (anneal(&service, 10_000, seed), best_by_force(&service));
            assert!(service.accepts(&found.placement));
            assert!(found.saturation > 0.9 * best, "seed {seed}: {} of {best}", found.saturation);
            assert!(replicate_all(&service).saturation <= best + 1e-9 && sample(&service, 100, seed).saturation <= best + 1e-9);
        }
    }
}
